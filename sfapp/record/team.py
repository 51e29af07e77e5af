"""The ranks that windows are gathered from, and how a recorder joins them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from sfapp.model.window import RankIdentity
from sfapp.record.compose import Job
from sfapp.record.gather import TelemetryGroup, one_line
from sfapp.record.reduce import ReducingGroup

GatherMode = Literal["gloo", "nccl", "reduce", "local"]
GATHER_MODES: tuple[GatherMode, ...] = get_args(GatherMode)

LOCAL = "every rank leaves its own part: gather is local"
NOT_DISTRIBUTED = "torch.distributed was not initialised when the recorder was made"


def _attempt_by_torchrun() -> str:
    """A name for this attempt at the run where ranks do not agree on one: as far as torchrun counts."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


@dataclass(slots=True, eq=False)
class Team:
    """The ranks that a window is gathered from, as this rank sees them.

    Attributes:
        group: None in a job of one, and from the first failed gather on.
        why_alone: why there is no group, where there should be one.
        attempt: the same on all ranks that were started together, where they could agree on a name.
    """

    identity: RankIdentity
    job: Job
    group: TelemetryGroup | None
    why_alone: str | None
    attempt: str = field(default_factory=_attempt_by_torchrun)


def distributed_rank() -> int | None:
    """This rank as torch.distributed says, None where it is not initialised."""
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else None


def distributed_world_size() -> int:
    """How many ranks torch.distributed has."""
    import torch.distributed as dist

    return dist.get_world_size()


def join(
    job: Job, identity: RankIdentity, timeout: float, gather: GatherMode, window: int = 0, step: int = 0
) -> tuple[Team, int, int]:
    """Join the other ranks and agree on the run's name, its next window and its next step; collective where
    torch.distributed is initialised. Where that fails this rank records alone: parts, not a failed job.

    Args:
        window, step: where this rank would go on; the ranks go on with the highest of all.
    """
    if distributed_rank() is None:
        alone = NOT_DISTRIBUTED if job.world_size > 1 else None
        return Team(identity, job, None, alone), max(window, job.next_window(identity.rank)), step
    if gather == "local":
        job = replace(job, world_size=distributed_world_size())
        return Team(identity, job, None, LOCAL), max(window, job.next_window(identity.rank)), step
    window = max(window, job.next_window())
    try:
        group = ReducingGroup(timeout) if gather == "reduce" else TelemetryGroup(timeout, gather)
        job = replace(
            job,
            world_size=group.world_size,
            recorder=replace(job.recorder, backend=group.training_backend),
        )
        if group.world_size == 1:
            return Team(identity, job, None, None), window, step
        agreed = group.greet(identity, job.run_id, window, step)
    except Exception as error:  # fail-open
        return Team(identity, job, None, f"no group: {one_line(error)}"), window, step
    team = Team(identity, replace(job, run_id=agreed.run_id), group, None, agreed.attempt)
    return team, agreed.next_window, agreed.next_step
