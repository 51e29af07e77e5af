"""Description of a job and of this rank, as known to the recording process."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from sfapp.model.manifest import Parallelism, Prefetch, RecorderInfo, Wrapper
from sfapp.model.parse import MOST_WINDOW, whole_number
from sfapp.model.rank_table import RankIdentity
from sfapp.packets.host_files import STARTED, process_fields
from sfapp.packets.paths import packet_path

_PACKET_NAME = re.compile(r"^(\d{8,})(?:(?:\.[0-9a-f]{16})?(\.rank\d+))?\.parquet$")

LAST_COUNTED = MOST_WINDOW // 2
"""Largest number of a window that a run continues after. A file of any name may lie in the folder; after the
largest number that a window can have, no window of the run could be written."""

NOT_AGREED = "start-"
"""Beginning of an attempt's name on which ranks did not agree: another start may have the same."""

_LAUNCHER_NUMBERS = ("TORCHELASTIC_RESTART_COUNT", "WORLD_SIZE", "MASTER_PORT")
_LAUNCHER_RUN, _NO_RUN = "TORCHELASTIC_RUN_ID", "none"
"""torchrun's ``--rdzv-id``, and its default."""

_SLURM = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """Description of a job as its packets carry it, the same for all windows of one recorder.

    Attributes:
        root: the folder that packets are written to.
        extra: further entries of the manifest's ``extra``.
        attempt, process: of a streamed job, as in the manifest.
    """

    root: Path
    run_id: str
    world_size: int
    wrapper: Wrapper
    parallelism: Parallelism
    prefetch: Prefetch
    model_fit: bool
    recorder: RecorderInfo
    extra: dict[str, Any] = field(default_factory=dict)
    attempt: str | None = None
    process: str | None = None

    def next_window(self, rank: int | None = None) -> int:
        """Return the first window number that no packet of this run has, so that a restarted job continues.

        Args:
            rank: this rank, if ranks cannot agree on a number. Files that other ranks may have written since
                this process started are then ignored.
        """
        folder = packet_path(self.root, self.run_id, 0).parent
        try:
            found = [(path.name, 0.0 if rank is None else _modified(path)) for path in folder.iterdir()]
        except OSError:  # The folder does not exist or cannot be read; writing reports the latter.
            return 0
        return following_window(found, rank)


def following_window(files: Iterable[tuple[str, float]], rank: int | None = None) -> int:
    """Return the first window number that none of these packets of a run has.

    Args:
        files: name of each, and the time in seconds since the epoch at which it was modified.
        rank: as in ``JobInfo.next_window``.
    """
    found = [
        (name, modified)
        for each, modified in files
        if (name := _PACKET_NAME.match(each)) and int(name[1]) <= LAST_COUNTED
    ]
    if rank is not None:
        age, own_suffixes = process_seconds(), (None, f".rank{rank}")
        started = 0.0 if age is None else time.time() - age
        found = [
            (name, modified) for name, modified in found if name[2] in own_suffixes or modified < started
        ]
    return max((int(name[1]) + 1 for name, _ in found), default=0)


def attempt_by_launcher() -> str:
    """Return a name for this attempt at the run if ranks do not agree on one: what a launcher gives all ranks
    of a start, and usually another after a restart or a change of the world size."""
    parts = [str(whole_number(os.environ.get(name, "0")) or 0) for name in _LAUNCHER_NUMBERS]
    run = os.environ.get(_LAUNCHER_RUN, _NO_RUN)
    if run == _NO_RUN:  # With an id of its own, a job may span several of Slurm's.
        run = ".".join(filter(None, map(os.environ.get, _SLURM)))
    if run:
        parts.append(blake2b(os.fsencode(run), digest_size=4).hexdigest())
    return NOT_AGREED + ".".join(parts)


@dataclass(slots=True, eq=False)
class JobRank:
    """One rank of a job, for its recorder and the receiver of its windows.

    Attributes:
        part_reason: why this rank's windows are written as parts, without the other ranks; None if they
            are not, and in a job of one rank.
        attempt: name of this start of the run, the same on all ranks that started together if they could
            agree on one.
    """

    identity: RankIdentity
    job: JobInfo
    part_reason: str | None = None
    attempt: str = field(default_factory=attempt_by_launcher)

    def of_process(self, process: str) -> JobRank:
        """Return this rank as one whose windows name its attempt and this process."""
        job = replace(self.job, attempt=self.attempt, process=process)
        return JobRank(self.identity, job, self.part_reason, self.attempt)

    def alone(self, reason: str) -> JobRank:
        """Return this rank as one whose windows are written as parts for ``reason``."""
        return JobRank(self.identity, self.job, reason, self.attempt)


def process_seconds() -> float | None:
    """Return the seconds since this process was started, or None if the system does not provide them."""
    try:
        ticks = int(process_fields("self")[STARTED])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return None


def _modified(path: Path) -> float:
    """Return when a file was modified; infinity if it was removed meanwhile."""
    try:
        return path.stat().st_mtime
    except OSError:
        return float("inf")
