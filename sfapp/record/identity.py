"""Who this process is in the job: from torchrun's environment, unless the caller says."""

from __future__ import annotations

import os
import socket

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
