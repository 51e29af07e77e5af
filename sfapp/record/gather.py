"""Bringing one window's rows to rank 0, over a group of the recorder's own.

A Gloo group beside the training's: telemetry never waits for, or is waited for by, a training collective.
Every call has the group's timeout; whatever fails, the caller still has its own rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from sfapp.model import RankIdentity, stage_hash
from sfapp.record.buffers import WindowBuffer

Rows = npt.NDArray[np.int64]

_ACKNOWLEDGED = 1


class GatherRefused(Exception):
    """All ranks agree that this window cannot be put together; the next may. Stays inside the recorder."""


class GatherFailed(Exception):
    """A collective failed: a rank is gone or late, the group of no more use. Stays inside the recorder."""


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """On rank 0: every rank's rows, in rank order, and the faults any rank saw."""

    rows: tuple[Rows, ...]
    faults: tuple[str, ...]


class TelemetryGroup:
    """The recorder's own process group. Its methods are collective: all ranks call them in the same order."""

    def __init__(self, identity: RankIdentity, timeout: timedelta) -> None:
        """Make the group and exchange identities; collective over all ranks of the job."""
        import torch.distributed as dist

        self._dist = dist
        self._group = dist.new_group(backend="gloo", timeout=timeout)
        self.world_size = dist.get_world_size()
        self.rank = dist.get_rank()
        found: list[Any] = [None] * self.world_size
        dist.all_gather_object(found, asdict(identity), group=self._group)
        self.identities: Sequence[RankIdentity] = [RankIdentity(**fields) for fields in found]

    @property
    def training_backend(self) -> str:
        """What the training itself communicates with."""
        return str(self._dist.get_backend())

    def gather(self, buffer: WindowBuffer) -> Gathered | None:
        """Bring a window to rank 0.

        First a header of fixed size from everyone: only if all have the same window of the same stages and
        the same steps do the rows follow. The result is on rank 0, None elsewhere.

        Raises:
            GatherRefused: ranks have different windows, steps or stages.
            GatherFailed: a rank is gone or late.
        """
        import torch

        try:
            self._agree(torch.from_numpy(_header(buffer)))
            mine = torch.from_numpy(np.ascontiguousarray(buffer.rows()))
            parts = [torch.empty_like(mine) for _ in self.identities] if self.rank == 0 else None
            self._dist.gather(mine, parts, dst=0, group=self._group)
            faults = self._all_faults(buffer)
        except (RuntimeError, ValueError) as error:  # torch's own, DistBackendError included
            raise GatherFailed(_one_line(error)) from error
        if parts is None:
            return None
        return Gathered(tuple(part.numpy() for part in parts), faults)

    def confirm(self, written: bool) -> bool:
        """Rank 0 tells the others whether the window is on disk.

        Raises:
            GatherFailed: the word did not arrive.
        """
        import torch

        word = torch.tensor([_ACKNOWLEDGED if written else 0], dtype=torch.int64)
        try:
            self._dist.broadcast(word, src=0, group=self._group)
        except (RuntimeError, ValueError) as error:
            raise GatherFailed(_one_line(error)) from error
        return int(word[0]) == _ACKNOWLEDGED

    def _agree(self, header: Any) -> None:
        import torch

        headers = [torch.empty_like(header) for _ in self.identities]
        self._dist.all_gather(headers, header, group=self._group)
        for name, place in (("window", 0), ("number of steps", 1), ("stage list", 3), ("steps", 4)):
            values = {int(other[place]) for other in headers}
            if len(values) > 1:
                raise GatherRefused(f"ranks do not have the same {name}")
        if int(header[1]) == 0:
            raise GatherRefused("no rank has steps left")

    def _all_faults(self, buffer: WindowBuffer) -> tuple[str, ...]:
        found: list[Any] | None = [None] * self.world_size if self.rank == 0 else None
        self._dist.gather_object(tuple(buffer.faults), found, dst=0, group=self._group)
        return tuple(dict.fromkeys(fault for faults in found or [] for fault in faults))


def _header(buffer: WindowBuffer) -> Rows:
    """Window, steps, first step, stage list and step numbers, the last two as hashes: int64 [5]."""
    steps = buffer.rows()[:, 0]
    stages = int(stage_hash(buffer.schema.stages)[:15], 16)
    first = int(steps[0]) if len(steps) else -1
    # Order-sensitive and the same on every machine; a collision would need steps to differ and agree in it.
    mixed = 0
    for step in steps.tolist():
        mixed = (mixed * 1_000_003 + step) % (2**61 - 1)
    return np.array([buffer.number, len(steps), first, stages, mixed], dtype=np.int64)


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
