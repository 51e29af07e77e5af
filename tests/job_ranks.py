"""The rank of a job of one process, for what belongs to a rank."""

from __future__ import annotations

from pathlib import Path

from sfapp.model.manifest import Parallelism, RecorderInfo
from sfapp.model.rank_table import RankIdentity
from sfapp.packets.job import JobInfo, JobRank


def rank_of(root: Path) -> JobRank:
    """Return the rank of a job of one."""
    job = JobInfo(
        root=root, run_id="run", world_size=1, wrapper="other", parallelism=Parallelism(),
        prefetch="unknown", model_fit=False, recorder=RecorderInfo(),
    )  # fmt: skip
    return JobRank(RankIdentity(0, 0, 0, "host"), job)
