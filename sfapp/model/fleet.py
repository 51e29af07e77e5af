"""What the runs of a fleet show together: hosts, lost time, and the state of each run (accounting.md §23)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

ALPHA = 0.01
"""Largest corrected chance of a host that is named."""

RunState = Literal["ongoing", "past", "healthy"]
"""Whether a run's latest window needs attention or lacks data, an earlier one did, or none does."""


@dataclass(frozen=True, slots=True)
class FleetHost:
    """How often one host had the late rank, over runs, against chance.

    Attributes:
        runs: number of runs in which the host took part. windows: number of their windows.
        compared_runs: those of them that ran on several hosts and named at least one: only these
            distinguish hosts.
        named_runs: those of these that named this host. expected_runs: number that would by chance.
        chance: of at least ``named_runs``, corrected for the number of hosts.
        named_windows: number of windows that named it.
        stages: the stages in which its ranks were late, with their number of windows, most frequent first.
        first_at, last_at: start of the first and end of the last of these windows, UTC.
        run_ids: the runs that named it, the latest first; a limited number.
    """

    hostname: str
    runs: int
    windows: int
    compared_runs: int
    named_runs: int
    expected_runs: float
    chance: float
    named_windows: int
    stages: tuple[tuple[str, int], ...] = ()
    first_at: datetime | None = None
    last_at: datetime | None = None
    run_ids: tuple[str, ...] = ()

    @property
    def is_suspect(self) -> bool:
        """Whether it is named more often than expected by chance."""
        return self.chance <= ALPHA


@dataclass(frozen=True, slots=True)
class LostTime:
    """Time of all ranks lost in one stage, in rank-hours.

    Attributes:
        above_healthy: step time beyond that of the healthy windows of the run, by the change of the stage's
            advance; negative where the stage became shorter. 0 for runs without healthy windows.
        imbalance: exposed excess of the slowest ranks over typical ones.
    """

    stage: str
    above_healthy: float
    imbalance: float


@dataclass(frozen=True, slots=True)
class FleetRun:
    """One run.

    Attributes:
        troubled_windows: number of windows that need attention or lack data.
        above_healthy, imbalance: as of ``LostTime``, of all stages.
    """

    run_id: str
    state: RunState
    ranks: int
    nodes: int
    windows: int
    troubled_windows: int
    started_at: datetime | None
    ended_at: datetime | None
    above_healthy: float
    imbalance: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """All runs of a store.

    Attributes:
        total_hosts: number of hosts. hosts: those that some run named, suspects first.
        lost: by stage, the largest loss first.
        runs: those whose latest window needs attention first, then by rank-hours lost.
    """

    total_hosts: int = 0
    hosts: tuple[FleetHost, ...] = ()
    lost: tuple[LostTime, ...] = ()
    runs: tuple[FleetRun, ...] = ()

    @property
    def suspects(self) -> tuple[FleetHost, ...]:
        """Hosts that are named more often than expected by chance, the most telling first."""
        return tuple(host for host in self.hosts if host.is_suspect)
