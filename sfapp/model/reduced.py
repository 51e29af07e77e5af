"""A window whose frontier was reduced over the ranks instead of gathered from them (docs/packet.md, Reduced).

The frontier is a maximum, so ranks can find it together in O(N·S) bytes, however many they are. What is kept
is every boundary's frontier, leader and runner-up, and the rows of a few ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from sfapp.model.arrays import Array, as_array, to_device, to_numpy

if TYPE_CHECKING:
    import torch

LAG_BINS = 32
"""Bins of a lag sketch: bin 0 holds lags below 1 µs, bin i those from 2^(i−1) to below 2^i µs, the last all
that are longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRank:
    """The slowest rank at a boundary, with or without rows, and where it ran."""

    rank: int
    local_rank: int
    node_rank: int
    hostname: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """The part of a manifest that describes a reduction.

    Attributes:
        ranks: how many ranks took part, R.
        nodes: how many nodes they are on.
        leaders: ranks that have rows because they lead; the others that have rows were drawn.
        named: ranks without rows of which it is known where they ran.
        residual_ns, wall_ns: Σ over steps and all ranks (accounting.md §2).
        overlap_share: the largest over all ranks of Σ_t overlap / Σ_t wall.
        lag_counts: by stage, how many of the N·R boundaries lie how far behind the frontier: ``LAG_BINS``.
        roles_differ: whether the ranks have more than one role.
        waits: the stages with measured waits, of which ``ReducedPlanes.own`` tells the ends of own time.
    """

    ranks: int
    nodes: int
    leaders: tuple[int, ...] = ()
    named: tuple[NamedRank, ...] = ()
    residual_ns: int
    wall_ns: int
    overlap_share: float
    lag_counts: dict[str, tuple[int, ...]]
    roles_differ: bool = False
    waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class OwnPlanes:
    """What all ranks found at the end of the own part of stages with measured waits (accounting.md §15).

    Each int64 [V, N] in host memory, in the order of ``Reduction.waits``, and like the field of that name of
    ``ReducedPlanes``; -1 (``NOT_MEASURED``) in all of them where the wait of any rank is not known.
    """

    frontier_VN: Array
    leader_VN: Array
    second_VN: Array
    carry_frontier_VN: Array
    carry_leader_VN: Array
    carry_second_VN: Array

    def __post_init__(self) -> None:
        for name, plane in self.planes().items():
            object.__setattr__(self, f"{name.removeprefix(_OWN)}_VN", to_numpy(as_array(plane)))

    def planes(self) -> dict[str, Array]:
        """Return the planes by the names of the packet's columns: ``own_frontier``, …"""
        return {name: getattr(self, f"{name.removeprefix(_OWN)}_VN") for name in OWN_PLANES}

    def of_steps(self, chosen: Sequence[int]) -> OwnPlanes:
        """Return the planes of the steps at some places."""
        return OwnPlanes(**{field.name: getattr(self, field.name)[:, chosen] for field in fields(self)})


_OWN = "own_"

OWN_PLANES = tuple(_OWN + field.name.removesuffix("_VN") for field in fields(OwnPlanes))
"""The names of these planes, in the order of the packet's columns."""


@dataclass(frozen=True, slots=True, eq=False)
class ReducedPlanes:
    """What all ranks found together, each int64 [S, N].

    Attributes:
        frontier_SN, leader_SN, second_SN: of the step-aligned frontier, ns, global rank, ns (§1, §3).
        carry_frontier_SN, carry_leader_SN, carry_second_SN: of the carry-over frontier without offsets (§10).
        largest_SN, total_SN: maximum and sum over ranks of the durations, ns.
        own: at the end of own time, of the stages with measured waits; None if there are none.
    """

    frontier_SN: Array
    leader_SN: Array
    second_SN: Array
    carry_frontier_SN: Array
    carry_leader_SN: Array
    carry_second_SN: Array
    largest_SN: Array
    total_SN: Array
    own: OwnPlanes | None = None

    def __post_init__(self) -> None:
        for name, plane in self.planes().items():
            object.__setattr__(self, f"{name}_SN", as_array(plane))

    def planes(self) -> dict[str, Array]:
        """Return the planes by the names of the packet's columns: ``frontier``, ``carry_leader``, …"""
        return {name: getattr(self, f"{name}_SN") for name in PLANES}

    def of_steps(self, chosen: Sequence[int]) -> ReducedPlanes:
        """Return the planes of the steps at some places."""
        return replace(
            self,
            **{f"{name}_SN": plane[:, chosen] for name, plane in self.planes().items()},
            own=None if self.own is None else self.own.of_steps(chosen),
        )

    def to(self, device: torch.device | str) -> ReducedPlanes:
        """Return the planes on a device."""
        return replace(
            self, **{f"{name}_SN": to_device(plane, device) for name, plane in self.planes().items()}
        )


PLANES = tuple(field.name.removesuffix("_SN") for field in fields(ReducedPlanes) if field.name != "own")
"""The names of the planes, in the order of the packet's columns."""
