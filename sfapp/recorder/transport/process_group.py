"""The ranks that windows are gathered from, and how a recorder joins them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from sfapp.errors import describe_error
from sfapp.model.window import RankIdentity
from sfapp.packets.job import JobInfo, JobRank
from sfapp.recorder.transport.gather import TelemetryGroup
from sfapp.recorder.transport.reduce import ReducingGroup

GatherMode = Literal["gloo", "nccl", "reduce", "local"]
GATHER_MODES: tuple[GatherMode, ...] = get_args(GatherMode)

FIRST_PAUSE, LONGEST_PAUSE = 8, 64
"""Windows between two attempts to gather again; each a multiple of the one before, so that ranks whose pauses
differ meet all the same."""

SHORTEST_PATIENCE = 0.5
"""Seconds that ranks wait for each other at the least when they try to gather again."""

LOCAL = "every rank leaves its own part: gather is local"
NOT_DISTRIBUTED = "torch.distributed was not initialised when the recorder was made"


@dataclass(slots=True, eq=False)
class GatherRank(JobRank):
    """One rank of a job whose windows are gathered with the other ranks'.

    ``part_reason`` is why there is no group, where there should be one.

    Attributes:
        group: None in a job of one rank, and for a while after a failed gather.
    """

    group: TelemetryGroup | None = None
    _lost: TelemetryGroup | None = None
    _every: int = FIRST_PAUSE

    def group_for(self, window: int, train_ns: int) -> TelemetryGroup | None:
        """The group to gather a window over, None where this rank leaves its part.

        After a gather that failed all ranks try again at the same windows, whichever of them failed when: at
        every eighth, and less often each time that fails too. They wait for each other no longer than the
        window took (``train_ns``), or windows would pile up behind it.
        """
        if self.group is None and self._lost is not None and window % self._every == 0:
            self.group = self._lost.successor(
                f"{self.attempt}/{window}", max(SHORTEST_PATIENCE, train_ns / 1e9)
            )
        return self.group

    def lose(self, group: TelemetryGroup, window: int, why: str) -> None:
        """The group is of no more use from this window on."""
        if self._lost is not None:
            self._every = min(2 * self._every, LONGEST_PAUSE)
        self.group, self._lost = None, group
        self.part_reason = f"no gather since window {window}: {why}"

    def keep(self) -> None:
        """A window came together."""
        self._lost, self._every, self.part_reason = None, FIRST_PAUSE, None


def distributed_rank() -> int | None:
    """This rank as torch.distributed says, None where it is not initialised."""
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else None


def distributed_world_size() -> int:
    """How many ranks torch.distributed has."""
    import torch.distributed as dist

    return dist.get_world_size()


def group_of(rank: JobRank) -> TelemetryGroup | None:
    """Return the group that this rank's windows are gathered over; None where it writes parts."""
    return rank.group if isinstance(rank, GatherRank) else None


def join(
    job: JobInfo, identity: RankIdentity, timeout: float, gather: GatherMode, window: int = 0, step: int = 0
) -> tuple[GatherRank, int, int]:
    """Join the other ranks and agree on the run's name, its next window and its next step; collective where
    torch.distributed is initialised. Where that fails this rank records alone: parts, not a failed job.

    Args:
        window, step: where this rank would go on; the ranks go on with the highest of all.
    """
    if distributed_rank() is None:
        alone = NOT_DISTRIBUTED if job.world_size > 1 else None
        return GatherRank(identity, job, alone), max(window, job.next_window(identity.rank)), step
    if gather == "local":
        job = replace(job, world_size=distributed_world_size())
        return GatherRank(identity, job, LOCAL), max(window, job.next_window(identity.rank)), step
    window = max(window, job.next_window())
    try:
        group = ReducingGroup(timeout) if gather == "reduce" else TelemetryGroup(timeout, gather)
        job = replace(
            job,
            world_size=group.world_size,
            recorder=replace(job.recorder, backend=group.training_backend),
        )
        if group.world_size == 1:
            return GatherRank(identity, job), window, step
        agreed = group.greet(identity, job.run_id, window, step)
    except Exception as error:  # fail-open
        return GatherRank(identity, job, f"no group: {describe_error(error)}"), window, step
    rank = GatherRank(identity, replace(job, run_id=agreed.run_id), None, agreed.attempt, group)
    return rank, agreed.next_window, agreed.next_step
