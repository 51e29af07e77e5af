"""The newest steps of a running job's ranks, before they are part of any window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.model.rank_table import RankIdentity

FIRST_STAGE = 2
"""Position of the first stage in a row, after the step number and the wall time."""


@dataclass(frozen=True, slots=True, eq=False)
class LiveRank:
    """One rank of a running job.

    Attributes:
        stages: as recorded in order, the residual last.
        row_NC: int64 [N, 2 + S], the newest steps in order: step number, wall ns, then the stages' ns.
        silent_s: seconds since its last message. idle_s: seconds since its newest step arrived; None before
            the first one.
        has_left: whether its recorder was closed.
    """

    identity: RankIdentity
    stages: tuple[str, ...]
    row_NC: npt.NDArray[np.int64]
    silent_s: float
    idle_s: float | None
    has_left: bool = False

    @property
    def newest_step(self) -> int | None:
        """Number of the newest finished step."""
        return int(self.row_NC[-1, 0]) if len(self.row_NC) else None


@dataclass(frozen=True, slots=True, eq=False)
class LiveRows:
    """The newest steps of all ranks that an aggregator knows of a run.

    Attributes:
        at_ns: when they were collected, ns since 1970, by the aggregator's clock.
        world_size: number of ranks of the job.
        ranks: ascending by global rank, without ranks beyond the world size.
    """

    run_id: str
    at_ns: int
    world_size: int
    ranks: tuple[LiveRank, ...]
