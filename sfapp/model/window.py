"""One window of one run in memory: the matrix of stage durations and the ranks that measured it.

Shape suffixes, here and in ``sfapp.accounting``: S ordered stages (accumulation-expanded), N steps,
R ranks of the diagnosis group. ``duration_SNR`` is stage-major: each stage is one contiguous plane [N, R].
All durations are int64 nanoseconds of a rank's own clock (accounting.md §1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sfapp.errors import WindowError, WindowNotFoundError
from sfapp.model.arrays import Array, as_array, dtype_name, to_device, to_numpy
from sfapp.model.manifest import Manifest
from sfapp.model.rank_table import RankIdentity, RankTable
from sfapp.model.reduced import NamedRank, ReducedPlanes
from sfapp.model.stages import RESIDUAL, broad_stages

if TYPE_CHECKING:
    import torch

ALL_RANKS = "all"
"""The group of every rank in a window; other groups are ``role:NAME`` and ``node:K``."""

_GROUPS_LISTED = 32
"""Maximum number of groups in an error message: a job of 100,000 ranks has 12,500 nodes."""

NOT_MEASURED = -1
"""Value of a wait that was not measured."""


@dataclass(frozen=True, slots=True, eq=False)
class SideChannel:
    """One side channel of a window: never part of a prefix (packet.md, ``side.*``, ``sampled.*``).

    Attributes:
        value_NR: float64 [N, R], NaN if not sampled or not ready.
        sampled_NR: bool [N, R], whether the value was sampled.

    Arrays are accepted and held as in ``Window``.
    """

    value_NR: Array
    sampled_NR: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "value_NR", as_array(self.value_NR))
        object.__setattr__(self, "sampled_NR", as_array(self.sampled_NR))

    def select_ranks(self, indices: Array) -> SideChannel:
        """Return the channel of the ranks at these positions."""
        return SideChannel(self.value_NR[:, indices], self.sampled_NR[:, indices])

    def to(self, device: torch.device | str) -> SideChannel:
        """Return the channel on a device."""
        return SideChannel(to_device(self.value_NR, device), to_device(self.sampled_NR, device))


@dataclass(frozen=True, eq=False)
class Window:
    """One window of one run, with all ranks or one group of ranks.

    Arrays may be NumPy arrays or torch tensors. A CPU tensor becomes a NumPy array on the same memory; a
    tensor on another device stays there.

    Attributes:
        manifest: the packet's manifest, as corrected by assembling parts.
        duration_SNR: int64 ns [S, N, R], stage-major contiguous, the residual last if there is one.
        wall_NR: int64 ns [N, R], the rank's own measured step time.
        step_N: int64 [N], logical optimizer steps, ascending.
        ranks: identities of the R ranks.
        side: side channels by name.
        group: ``all``, ``role:NAME`` or ``node:K``.
        reduced: the reduction over all ranks, if the rows above are those of a few ranks; None if every rank
            has rows.
        waits: by recorded stage int64 ns [N, R]: how long each rank was blocked in group communication within
            the stage, ``NOT_MEASURED`` where not known (accounting.md §15). Stages without measured waits are
            absent.

    Raises:
        WindowError: shapes, types or signs do not fit together.
    """

    manifest: Manifest
    duration_SNR: Array
    wall_NR: Array
    step_N: npt.NDArray[np.int64]
    ranks: RankTable
    side: Mapping[str, SideChannel] = field(default_factory=dict)
    group: str = ALL_RANKS
    reduced: ReducedPlanes | None = None
    waits: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "duration_SNR", as_array(self.duration_SNR))
        object.__setattr__(self, "wall_NR", as_array(self.wall_NR))
        object.__setattr__(self, "step_N", to_numpy(as_array(self.step_N)))
        object.__setattr__(self, "waits", {stage: as_array(wait) for stage, wait in self.waits.items()})
        if dtype_name(self.duration_SNR) != "int64" or self.duration_SNR.ndim != 3:
            raise WindowError(
                f"durations must be int64 [stages, steps, ranks], not {dtype_name(self.duration_SNR)} "
                f"{list(self.duration_SNR.shape)}"
            )
        stages, steps, ranks = self.duration_SNR.shape
        if stages != len(self.manifest.stages):
            raise WindowError(f"{stages} stage planes for {len(self.manifest.stages)} stage names")
        if not (stages and steps and ranks):
            raise WindowError(f"a window needs stages, steps and ranks, not {stages} × {steps} × {ranks}")
        if tuple(self.wall_NR.shape) != (steps, ranks) or dtype_name(self.wall_NR) != "int64":
            raise WindowError(f"step times must be int64 [{steps}, {ranks}]")
        if self.step_N.shape != (steps,) or len(self.ranks) != ranks:
            raise WindowError("step numbers and rank identities must match the matrix")
        for stage, wait_NR in self.waits.items():
            if stage not in self.manifest.stages:
                raise WindowError(f"waits of {stage!r}, which is no stage of the window")
            if tuple(wait_NR.shape) != (steps, ranks) or dtype_name(wait_NR) != "int64":
                raise WindowError(f"waits of {stage!r} must be int64 [{steps}, {ranks}]")
        if (self.reduced is None) != (self.manifest.reduced is None):
            raise WindowError("a reduced window needs both its planes and their part of the manifest")
        if self.reduced is not None and any(
            tuple(plane.shape) != (stages, steps) or dtype_name(plane) != "int64"
            for plane in self.reduced.planes().values()
        ):
            raise WindowError(f"planes of a reduced window must be int64 [{stages}, {steps}]")
        self._check_own()

    def _check_own(self) -> None:
        """Check the planes at the ends of own time of a reduced window.

        Raises:
            WindowError: they do not fit the manifest and the matrix.
        """
        own = None if self.reduced is None else self.reduced.own
        waited = () if self.manifest.reduced is None else self.manifest.reduced.waits
        if not set(waited) <= set(self.stages) or bool(waited) != (own is not None):
            raise WindowError(
                f"waits of {', '.join(waited) or 'no stage'} do not fit a reduced window's planes"
            )
        shape = (len(waited), len(self.step_N))
        if own is not None and any(
            tuple(plane.shape) != shape or dtype_name(plane) != "int64" for plane in own.planes().values()
        ):
            raise WindowError(f"own planes of a reduced window must be int64 {list(shape)}")

    @property
    def run_id(self) -> str:
        return self.manifest.run_id

    @property
    def number(self) -> int:
        """Number of the window in its run."""
        return self.manifest.window

    @property
    def stages(self) -> tuple[str, ...]:
        """The ordered stages as recorded; with ordered accumulation, one per micro-step."""
        return self.manifest.stages

    @property
    def broad_stages(self) -> tuple[str, ...]:
        """The ordered stages as reported, with micro-steps added up."""
        return broad_stages(self.manifest.stages)

    @property
    def layout(self) -> Mapping[str, tuple[int, ...]]:
        """The coordinates of its ranks in the parallel layout, by dimension; empty if not known."""
        return self.ranks.layout

    @property
    def attributes(self) -> Mapping[str, tuple[str, ...]]:
        """The attributes of its ranks' machines and jobs by name; empty text where not known."""
        return self.ranks.attributes

    @property
    def residual_index(self) -> int | None:
        """Position of the residual stage, or None if the schema has none."""
        return self.stages.index(RESIDUAL) if RESIDUAL in self.stages else None

    @property
    def nbytes(self) -> int:
        """Memory of its rows, in bytes."""
        sides = [array for side in self.side.values() for array in (side.value_NR, side.sampled_NR)]
        arrays = (self.duration_SNR, self.wall_NR, *self.waits.values(), *sides)
        return sum(int(array.nbytes) for array in arrays)

    @property
    def rank_count(self) -> int:
        """R, the number of ranks that took part; in a reduced window, more than have rows."""
        return len(self.ranks) if self.manifest.reduced is None else self.manifest.reduced.ranks

    @property
    def node_count(self) -> int:
        """Number of nodes of these ranks."""
        return len(self.ranks.nodes) if self.manifest.reduced is None else self.manifest.reduced.nodes

    @property
    def hostnames(self) -> frozenset[str]:
        """All host names in this window."""
        named = () if self.manifest.reduced is None else self.manifest.reduced.named
        return frozenset((*self.ranks.hostname, *(each.hostname for each in named)))

    @cached_property
    def missing_ranks(self) -> tuple[int, ...]:
        """The expected ranks that have no rows, ascending."""
        missing = set(self.manifest.missing_ranks)
        if self.group == ALL_RANKS and self.reduced is None:
            missing |= set(range(self.manifest.world_size)) - set(self.ranks.rank)
        return tuple(sorted(missing))

    @property
    def led_by(self) -> RankTable:
        """The ranks to which positions of leaders refer, ascending: those with rows and, in a reduced window,
        the others that lead. The host of such a rank is known if the manifest names the rank, else empty."""
        if self.reduced is None or self.manifest.reduced is None:
            return self.ranks
        named = {each.rank: each for each in self.manifest.reduced.named}
        planes = [self.reduced.leader_SN, self.reduced.carry_leader_SN]
        if self.reduced.own is not None:
            planes += [self.reduced.own.leader_VN, self.reduced.own.carry_leader_VN]
        leaders = {rank for plane in planes for rank in plane.flatten().tolist()} - {NOT_MEASURED}
        found = [self.ranks.identity(index) for index in range(len(self.ranks))]
        for rank in leaders - set(self.ranks.rank):
            place = named.get(rank, NamedRank(rank=rank, local_rank=0, node_rank=0, hostname=""))
            found.append(RankIdentity(rank, place.local_rank, place.node_rank, place.hostname))
        return RankTable.of(found)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Every group for which this window can be diagnosed: ``all``, then roles, then nodes. A reduced
        window has only ``all``."""
        if self.reduced is not None:
            return (ALL_RANKS,)
        roles = tuple(f"role:{role}" for role in self.ranks.roles)
        return (ALL_RANKS, *roles, *(f"node:{node}" for node in self.ranks.nodes))

    def of_group(self, group: str) -> Window:
        """Return the window of the ranks of one role or node (this resolves ``role_aware_needed``,
        accounting.md §7.3).

        Raises:
            WindowNotFoundError: no rank belongs to the group; the message lists the available groups.
        """
        if group == self.group:
            return self
        kind, _, name = group.partition(":")
        column: Sequence[str | None]
        if kind == "role":
            column = self.ranks.role
        elif kind == "node":
            column = [str(node) for node in self.ranks.node_rank]
        else:
            column = ()
        chosen = [index for index, value in enumerate(column) if value == name and group in self.groups]
        if not chosen:
            listed = ", ".join(self.groups[:_GROUPS_LISTED])
            more = ", …" if len(self.groups) > _GROUPS_LISTED else ""
            raise WindowNotFoundError(
                f"no group {group!r} in window {self.number} of run {self.run_id!r}; "
                f"there are: {listed}{more}"
            )
        return replace(
            self,
            duration_SNR=self.duration_SNR[:, :, chosen],
            wall_NR=self.wall_NR[:, chosen],
            ranks=self.ranks.select(chosen),
            side={name: channel.select_ranks(chosen) for name, channel in self.side.items()},
            waits={stage: wait_NR[:, chosen] for stage, wait_NR in self.waits.items()},
            group=group,
        )

    def to(self, device: torch.device | str) -> Window:
        """Return the window with its matrix on a device."""
        return replace(
            self,
            duration_SNR=to_device(self.duration_SNR, device),
            wall_NR=to_device(self.wall_NR, device),
            side={name: channel.to(device) for name, channel in self.side.items()},
            waits={stage: to_device(wait_NR, device) for stage, wait_NR in self.waits.items()},
            reduced=None if self.reduced is None else self.reduced.to(device),
        )
