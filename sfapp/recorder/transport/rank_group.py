"""This rank in the group over which windows are gathered, and the way a recorder joins it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sfapp.errors import describe_error
from sfapp.model.rank_table import RankIdentity
from sfapp.model.stages import MAX_NAME_LENGTH
from sfapp.packets.job import JobInfo, JobRank, attempt_by_launcher
from sfapp.recorder.transport.transport_group import Transport, TransportGroup
from sfapp.terminal import printable

_FIRST_RETRY_INTERVAL, _LONGEST_RETRY_INTERVAL = 8, 64
"""Numbers of windows between two attempts to gather again. Each interval is a multiple of the one before, so
that ranks with different intervals try at the same windows."""

_SHORTEST_RETRY_SECONDS = 0.5
"""Minimum time that ranks wait for each other when they try to gather again."""

LOCAL = "every rank writes its own part: gather is local"
NOT_DISTRIBUTED = "torch.distributed was not initialised when the recorder was created"


@dataclass(slots=True, eq=False)
class GatherRank(JobRank):
    """One rank of a job whose windows are gathered with the other ranks'.

    ``part_reason`` is the reason if an expected group is missing.

    Attributes:
        group: None in a job of one rank, and for a while after a failed gather.
    """

    group: TransportGroup | None = None
    _failed_group: TransportGroup | None = None
    _retry_interval: int = _FIRST_RETRY_INTERVAL

    def group_for(self, window: int, train_ns: int) -> TransportGroup | None:
        """Return the group over which to gather a window; None if this rank writes its part.

        After a failed gather, all ranks try again at the same windows, regardless of when each of them
        failed: at every eighth, and less often after each further failure. They wait for each other no longer
            than the window took (``train_ns``), because windows would accumulate otherwise.
        """
        if self.group is None and self._failed_group is not None and window % self._retry_interval == 0:
            self.group = self._failed_group.successor(
                f"{self.attempt}/{window}", max(_SHORTEST_RETRY_SECONDS, train_ns / 1e9)
            )
        return self.group

    def drop_group(self, group: TransportGroup, window: int, reason: str) -> None:
        """Stop using a group that failed at this window."""
        if self._failed_group is not None:
            self._retry_interval = min(2 * self._retry_interval, _LONGEST_RETRY_INTERVAL)
        self.group, self._failed_group = None, group
        self.part_reason = f"no gather since window {window}: {reason}"

    def confirm_group(self) -> None:
        """Keep the group, because a window was gathered over it."""
        self._failed_group, self._retry_interval, self.part_reason = None, _FIRST_RETRY_INTERVAL, None


def group_of(rank: JobRank) -> TransportGroup | None:
    """Return the group over which this rank's windows are gathered; None if it writes parts."""
    return rank.group if isinstance(rank, GatherRank) else None


def distributed_rank() -> int | None:
    """Return this rank in torch.distributed; None if that is not initialised."""
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else None


def distributed_world_size() -> int:
    """Return the number of ranks in torch.distributed."""
    import torch.distributed as dist

    return dist.get_world_size()


def join(
    job: JobInfo,
    identity: RankIdentity,
    transport: Transport,
    timeout: float,
    window: int = 0,
    step: int = 0,
) -> tuple[GatherRank, int, int]:
    """Join the other ranks and agree with them on the run's name, its next window and its next step.

    Collective if torch.distributed is initialised or the transport does not need it. If joining fails, this
    rank records alone: its rows become parts, and the job does not fail.

    Args:
        timeout: seconds that a rank waits for the others in each exchange.
        window, step: where this rank would continue; all ranks continue at the highest of their values.
    """
    identity = replace(identity, hostname=printable(identity.hostname, MAX_NAME_LENGTH))  # For packets.
    connect, is_distributed = transport.connect, distributed_rank() is not None
    if connect is None or (transport.needs_process_group and not is_distributed):
        if is_distributed:
            job = replace(job, world_size=distributed_world_size())
        window = max(window, job.next_window(identity.rank))
        if job.world_size == 1 and not is_distributed:
            return GatherRank(identity, job), window, step
        job = replace(job, attempt=attempt_by_launcher())  # Parts of two starts do not belong together.
        return GatherRank(identity, job, LOCAL if is_distributed else NOT_DISTRIBUTED), window, step
    window = max(window, job.next_window())
    if is_distributed:  # Known even if connecting fails: such a rank writes its part.
        job = replace(job, world_size=distributed_world_size())
    try:
        group = connect(timeout)
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
