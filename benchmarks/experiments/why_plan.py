"""The plan of causes on one rank, by job and window."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.experiments.slow_files import mount_refusal
from sfapp.model.explanation import CauseKind

FAMILIES: Mapping[str, tuple[CauseKind, ...]] = {
    "cpu hog": ("no_core",),
    "cgroup throttling": ("throttled",),
    "garbage collector": ("gc",),
    "slow storage": ("storage", "blocked"),
    "page faults": ("page_faults",),
    "lock": ("blocked",),
    "loader worker": ("blocked",),
    "remote service": ("blocked",),
}
"""Each family with the right classes of causes. A file system in user space delays a reader like any other
service, and only block devices have a delay of their own."""

CGROUP = Path("/sys/fs/cgroup/cpu")
"""Where a control group with a quota of CPU time can be made (version 1); version 2 has it at its root."""

STEPS, RANKS = 30, 8
DELAY = 0.045
"""Mean delay of a step, in seconds."""

WARM_UP, HEALTHY_FIRST = 1, 2


@dataclass(frozen=True, slots=True)
class WhyFault:
    """The cause in one window.

    Attributes:
        family: a key of ``FAMILIES``; None in a healthy window.
        is_warm_up: whether the window is left out of every table.
    """

    family: str | None = None
    rank: int = 0
    is_warm_up: bool = False


@dataclass(frozen=True, slots=True)
class WhyJob:
    """One launch: a run of windows with host evidence."""

    name: str
    seed: int
    ranks: int
    steps: int
    faults: tuple[WhyFault, ...]

    @property
    def module(self) -> str:
        """The script that torchrun starts on every rank."""
        return "benchmarks.experiments.why_job"

    @property
    def group(self) -> Path:
        """The control group whose quota the throttled rank uses up."""
        root = CGROUP if CGROUP.is_dir() else CGROUP.parent
        return root / f"sfapp-{self.name}"


def skipped_families() -> dict[str, str]:
    """Return the families that cannot be caused on this machine, with the reason."""
    reasons = {"cgroup throttling": quota_refusal(), "slow storage": mount_refusal()}
    return {family: reason for family, reason in reasons.items() if reason}


def quota_refusal() -> str:
    """Return why no control group with a quota can be made; empty if it can."""
    group = (CGROUP if CGROUP.is_dir() else CGROUP.parent) / f"sfapp-check-{os.getpid()}"
    try:
        group.mkdir()
        try:
            if not any((group / name).exists() for name in ("cpu.cfs_quota_us", "cpu.max")):
                return "control groups have no quota of CPU time here"
        finally:
            group.rmdir()
    except OSError as error:
        return f"control groups cannot be made: {error.strerror}"
    return ""


def why_windows(seed: int, ranks: int, families: tuple[str, ...]) -> tuple[WhyFault, ...]:
    """Return healthy windows, then each family on a rank of its own, each followed by a healthy window."""
    drawn = random.Random(f"why {seed}")
    order = drawn.sample(families, len(families))
    chosen = drawn.sample(range(ranks), ranks)
    faults = [*[WhyFault(is_warm_up=True)] * WARM_UP, *[WhyFault()] * HEALTHY_FIRST]
    for place, family in enumerate(order):
        faults += [WhyFault(family, chosen[place % ranks]), WhyFault()]
    return tuple(faults)


def full_why() -> tuple[WhyJob, ...]:
    """Return the plan of all tables: three seeds, and a healthy job; about 6 minutes on two cores."""
    skipped = skipped_families()
    families = tuple(family for family in FAMILIES if family not in skipped)
    jobs = [
        WhyJob(f"why-{seed}", seed, RANKS, STEPS, why_windows(seed, RANKS, families)) for seed in range(3)
    ]
    healthy = (WhyFault(is_warm_up=True), *[WhyFault()] * 8)
    return (*jobs, WhyJob("why-healthy", 9, RANKS, STEPS, healthy))


def small_why() -> tuple[WhyJob, ...]:
    """Return the plan for the tests: one launch of four ranks."""
    faults = why_windows(0, 4, ("garbage collector", "lock"))
    return (WhyJob("why-small", 0, 4, STEPS, faults),)
