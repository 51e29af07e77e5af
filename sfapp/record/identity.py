"""Who this process is in the job: from torchrun's environment, unless the caller says."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from sfapp.errors import RecorderError
from sfapp.model.window import RankIdentity


def _number(name: str, default: int) -> int:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise RecorderError(f"the environment says {name}={text!r}, which is not a number") from None


def identity_from_environment(role: str | None, rank: int | None = None) -> RankIdentity:
    """Rank, local rank and node rank as torchrun sets them; a job of one without it.

    Args:
        role: the diagnosis role, where declared.
        rank: what torch.distributed says, where it is initialised.
    """
    return RankIdentity(
        rank=_number("RANK", 0) if rank is None else rank,
        local_rank=_number("LOCAL_RANK", 0),
        node_rank=_number("GROUP_RANK", 0),
        hostname=socket.gethostname(),
        role=role,
    )


def world_size_from_environment() -> int:
    """How many ranks the job has."""
    return _number("WORLD_SIZE", 1)


def run_id_from_environment() -> str:
    """The name of a run that was given none: the scheduler's, the same on all ranks, else the time."""
    named = [os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")]
    for name in named:
        if name not in ("", "none"):
            return name
    return f"run-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def role_of(roles: str | Mapping[int, str] | Sequence[str], rank: int) -> str | None:
    """A rank's role: the one given, or its entry among every rank's.

    Raises:
        RecorderError: the entries end before this rank.
    """
    if isinstance(roles, str):
        return roles
    if isinstance(roles, Mapping):
        return roles.get(rank)
    if rank >= len(roles):
        raise RecorderError(f"roles has {len(roles)} entries, none for rank {rank}")
    return roles[rank]
