"""Write the section of docs/evidence/soak.md about a run with many ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import numpy.typing as npt

from benchmarks.soak_report import count_steps, describe_counts, step_ends_ns
from sfapp.model import Window

CORE_SHARE, LAG_SECONDS = 1.0, 1.5
"""Bars: share of one core that the aggregator uses, mean over all minutes; p95 from step to store."""

GROWTH = 0.02
"""Memory is flat if a line fitted to its last minutes grows by at most this share."""

MEASURE_SECONDS = 5.0
_WARM_UP = 0.55
"""The first 16 of 30 minutes: samples are downsampled from minute 15 on (docs/metrics.md), so the aggregator
has done all its work once by then."""

Measurement = tuple[float, float, int]
"""Seconds since 1970, CPU seconds and resident bytes of the aggregator."""

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Observations:
    """Observations from outside the job.

    Attributes:
        stored: by run and window, when its verdict was in the store, seconds since 1970.
        paced: by rank and newest step of a pace sample, its number of steps and when it was in the store.
        measured: measurements of the aggregator.
        pids: process ids of the aggregator; more than one if it was restarted.
        last_steps: by window of the simulated ranks, when the last rank finished it, seconds since 1970.
        joined_at, left_at: when the simulated ranks came and left, seconds since 1970.
        busy: share of all cores that was used in between.
        failed: number of simulating processes that failed.
    """

    stored: dict[tuple[str, int], float] = field(default_factory=dict)
    paced: dict[tuple[int, int], tuple[int, float]] = field(default_factory=dict)
    measured: list[Measurement] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)
    last_steps: dict[int, float] = field(default_factory=dict)
    joined_at: float = 0.0
    left_at: float = 0.0
    busy: float = 0.0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """One run of the page: its windows, ranks and shortest step.

    Attributes:
        name: id of the run.
        sent_windows: number of windows that were sent; None if not fixed.
    """

    name: str
    windows: Sequence[Window]
    ranks: int
    step_seconds: float
    sent_windows: int | None = None

    @property
    def holds(self) -> bool:
        """Whether every step is stored exactly once, and no window is missing."""
        is_complete = self.sent_windows in (None, len(self.windows))
        return is_complete and count_steps(self.windows, self.ranks).holds


@dataclass(frozen=True, slots=True)
class Minute:
    """The aggregator in one minute."""

    core_share: float
    rss_bytes: float


def minutes(measured: Sequence[Measurement]) -> list[Minute]:
    """Return every full minute from the first measurement on."""
    found: list[Minute] = []
    at_M, busy_M, rss_M = np.array(measured, dtype=float).T
    for begin in np.arange(at_M[0], max(at_M[-1] - 59, at_M[0] + 1), 60):
        inside = np.flatnonzero((at_M >= begin) & (at_M <= begin + 60 + MEASURE_SECONDS))
        first, last = inside[0], inside[-1]
        share = (busy_M[last] - busy_M[first]) / (at_M[last] - at_M[first])
        found.append(Minute(float(share), float(rss_M[last])))
    return found


def growth(measured: Sequence[Measurement]) -> tuple[float, float]:
    """Return the growth of memory after warm-up: bytes per minute, and the share of its mean in all.

    The slope is that of a least-squares line.
    """
    at_M, _, rss_M = np.array(measured, dtype=float).T
    later = at_M >= at_M[0] + _WARM_UP * (at_M[-1] - at_M[0])
    minutes_M = (at_M[later] - at_M[-1]) / 60
    slope, _ = np.polyfit(minutes_M, rss_M[later], 1)
    return float(slope), float(slope * (minutes_M[-1] - minutes_M[0]) / rss_M[later].mean())


def pace_lags(windows: Sequence[Window], paced: Mapping[tuple[int, int], tuple[int, float]]) -> Floats:
    """Return seconds from each step's end on its slowest rank until each rank's was in the store."""
    ended = {
        int(step): float(end) / 1e9
        for window in windows
        for step, end in zip(window.step_N.tolist(), step_ends_ns(window), strict=True)
    }
    return np.array(
        [
            at - ended[step]
            for (_, newest), (steps, at) in paced.items()
            for step in range(newest - steps + 1, newest + 1)
            if step in ended
        ]
    )


def verdict_lags(stored: Mapping[tuple[str, int], float], run: str, ended: Mapping[int, float]) -> Floats:
    """Return seconds from a window's last step (``ended``) until its verdict was in the store."""
    return np.array([stored[run, window] - at for window, at in ended.items() if (run, window) in stored])


def window_ends(windows: Sequence[Window]) -> dict[int, float]:
    """Return when each window's last step ended, seconds since 1970."""
    return {
        window.number: datetime.fromisoformat(window.manifest.ended_at or "").timestamp()
        for window in windows
    }


def spread(lags: Floats) -> str:
    """Return number, median, 95th percentile and maximum as cells of a table."""
    if not len(lags):
        return "0 | | |"
    p50, p95 = np.quantile(lags, [0.5, 0.95])
    return f"{len(lags)} | {p50:.2f} | {p95:.2f} | {lags.max():.2f}"


def section(
    seen: Observations,
    training: CheckedRun,
    simulated: CheckedRun,
    nodes: int,
    lasted_minutes: float,
    others: float,
) -> str:
    """Return the section's text and tables.

    Args:
        others: share of the cores that other programs used.
    """
    measured = [each for each in seen.measured if seen.joined_at <= each[0] <= seen.left_at]
    by_minute = minutes(measured)
    busy = np.array([minute.core_share for minute in by_minute])
    slope, part = growth(measured)
    wall_N = np.concatenate([window.wall_NR.max(axis=1) for window in training.windows]) / 1e6
    at_N = np.concatenate([step_ends_ns(window) for window in training.windows]) / 1e9
    alone, together = at_N < seen.joined_at, (at_N >= seen.joined_at) & (at_N < seen.left_at)
    training_lags = verdict_lags(seen.stored, training.name, window_ends(training.windows))
    simulated_lags = verdict_lags(seen.stored, simulated.name, seen.last_steps)
    lines = [
        f"{training.ranks} training processes and {simulated.ranks:,} simulated ranks on {nodes} nodes and "
        f"one aggregator, {lasted_minutes:.0f} minutes, {os.cpu_count()} cores, of which other programs used "
        f"{others:.0%}. A training step takes at least {training.step_seconds:g} s, a simulated step "
        f"{simulated.step_seconds:g} s. All ranks run at a lower priority (nice) than aggregator, relays and "
        "store, which would have cores of their own on separate machines.",
        "",
        f"- Training: {describe_counts(training.windows, training.ranks)}",
        f"- Simulated: {describe_counts(simulated.windows, simulated.ranks)} {simulated.sent_windows} "
        f"windows were sent; {seen.failed} processes ended with unacknowledged steps.",
        f"- Aggregator, started {len(seen.pids)} time(s): {busy.mean():.2f} of a core, {busy.max():.2f} in "
        f"the busiest minute (bar: {CORE_SHARE:.0f}).",
        f"- Its memory after the first {_WARM_UP:.0%} of the time: {slope / 1e6:+.2f} MB per minute, "
        f"{part:+.1%} in all (bar for half an hour: {GROWTH:.0%}).",
        f"- The cores were busy for {seen.busy:.0%} of that time.",
        f"- Training steps, slowest rank: median {np.median(wall_N[alone]):.0f} ms and longest "
        f"{wall_N[alone].max():.0f} ms without simulated ranks, median "
        f"{np.median(wall_N[together]):.0f} ms, p99 {np.quantile(wall_N[together], 0.99):.0f} ms and longest "
        f"{wall_N[together].max():.0f} ms with them.",
        "",
        f"| seconds until in the store (bar: p95 ≤ {LAG_SECONDS}) | count | p50 | p95 | longest |",
        "| --- | ---: | ---: | ---: | ---: |",
        f"| training step, on the live page | {spread(pace_lags(training.windows, seen.paced))} |",
        f"| last step of a training window, with verdict | {spread(training_lags)} |",
        f"| last step of a simulated window, with verdict | {spread(simulated_lags)} |",
        "",
        "Aggregator by minute, share of a core / MB: "
        + ", ".join(f"{minute.core_share:.2f}/{minute.rss_bytes / 1e6:.0f}" for minute in by_minute)
        + ".",
    ]
    return "\n".join(lines)
