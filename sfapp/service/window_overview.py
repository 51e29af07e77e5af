"""The head of the page of windows: runs, counts and the latest windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sfapp.store import RunSummary, WindowCounts, WindowQuery

if TYPE_CHECKING:
    from sfapp.service.workspace import Workspace

TIMELINE_WINDOWS = 2_000
"""Windows that the timeline shows at most: the latest, or the first as listed."""


@dataclass(frozen=True, slots=True)
class WindowsOverview:
    """The windows of one run or of all.

    ``generation`` and ``reading`` are read before the rest, so that later changes are noticed.

    Attributes:
        reading: whether the first ingest is running.
        runs: all runs, the one with the newest window first.
        rows: the latest windows, as ``figures.window_timeline`` draws them.
        refused, conflicts: number of files that were refused, and of conflicts.
    """

    generation: int
    reading: bool
    runs: list[RunSummary]
    counts: WindowCounts
    rows: list[dict[str, Any]]
    refused: int
    conflicts: int


def windows_overview(workspace: Workspace, run_id: str | None) -> WindowsOverview:
    """Return the overview of one run or of all."""
    store = workspace.store
    return WindowsOverview(
        store.generation,
        workspace.status().kind == "reading",
        workspace.runs(),
        workspace.window_counts(run_id),
        workspace.timeline(WindowQuery(run_id), TIMELINE_WINDOWS),
        len(store.quarantine()),
        len(store.conflicts()),
    )
