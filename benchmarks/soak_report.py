"""Count lost and duplicate steps in packets, and write the tables of docs/evidence/soak.md."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from sfapp.model import Window


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault that was injected.

    Attributes:
        begin_ns, end_ns: when, ns since 1970.
        rss_bytes: resident memory of the aggregator afterwards.
    """

    name: str
    begin_ns: int
    end_ns: int
    rss_bytes: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Steps and windows in the packets of one run."""

    steps: int
    lost: int
    duplicated: int
    windows: int
    incomplete_windows: int

    @property
    def holds(self) -> bool:
        """Whether nothing is lost, duplicated or incomplete."""
        return not (self.lost or self.duplicated or self.incomplete_windows)


def count_steps(windows: Sequence[Window], ranks: int) -> StepCounts:
    """Count the steps of a run with this many ranks. Every step should be present exactly once."""
    steps = [step for window in windows for step in window.step_N.tolist()]
    return StepCounts(
        steps=len(steps),
        lost=max(steps) + 1 - len(set(steps)),
        duplicated=len(steps) - len(set(steps)),
        windows=len(windows),
        incomplete_windows=sum(
            window.ranks.rank != tuple(range(ranks)) or bool(window.manifest.faults) for window in windows
        ),
    )


def describe_counts(windows: Sequence[Window], ranks: int) -> str:
    """Return the counts as a sentence."""
    counts = count_steps(windows, ranks)
    return (
        f"{counts.steps} steps in {counts.windows} windows of {ranks} ranks; {counts.lost} lost, "
        f"{counts.duplicated} duplicated, {counts.incomplete_windows} windows incomplete."
    )


def trials_table(trials: Sequence[Trial], windows: Sequence[Window], ranks_per_node: int) -> str:
    """Return the table of step times during each trial on two nodes."""
    wall_N = np.concatenate([window.wall_NR.max(axis=1) for window in windows])
    lines = [
        f"{ranks_per_node} ranks on each of 2 nodes, {os.cpu_count()} cores. "
        f"{describe_counts(windows, 2 * ranks_per_node)} "
        f"Step time of the slowest rank: median {np.median(wall_N) / 1e6:.1f} ms, "
        f"p99 {np.quantile(wall_N, 0.99) / 1e6:.1f} ms, longest {wall_N.max() / 1e6:.0f} ms.",
        "",
        "| trial | duration, s | median step, ms | longest step, ms | aggregator memory, MB | |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    times = np.concatenate([step_ends_ns(window) for window in windows])
    for trial in trials:
        inside = wall_N[(times >= trial.begin_ns) & (times < trial.end_ns)] / 1e6
        median, longest = (np.median(inside), inside.max()) if len(inside) else (np.nan, np.nan)
        seconds = (trial.end_ns - trial.begin_ns) / 1e9
        lines.append(
            f"| {trial.name} | {seconds:.0f} | {median:.1f} | {longest:.0f} "
            f"| {trial.rss_bytes / 1e6:.0f} | {trial.note} |"
        )
    return "\n".join(lines)


def step_ends_ns(window: Window) -> npt.NDArray[np.float64]:
    """Return about when each step ended on the first rank, ns since 1970.

    A window stores when its first and last step ended and how long each step took; steps between are
    interpolated.
    """
    manifest = window.manifest
    first, last = (
        datetime.fromisoformat(at or "").timestamp() * 1e9 for at in (manifest.started_at, manifest.ended_at)
    )
    since_first_N = np.cumsum(window.wall_NR[:, 0][1:], dtype=float)
    share_N = since_first_N / since_first_N[-1] if len(since_first_N) else since_first_N
    return first + (last - first) * np.concatenate([[0.0], share_N])
