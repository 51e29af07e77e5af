"""The head of the page of windows: runs, counts and the latest windows, kept until the store changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfapp.service.workspace import Workspace
    from sfapp.store import RunSummary, WindowCounts

TIMELINE_WINDOWS = 2_000
"""Windows that the timeline shows at most: the latest, or the first as listed."""

_MOST_CACHED = 8


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


class StoredOverviews:
    """Overviews by run. Any thread may read them."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._runs: tuple[int, list[RunSummary]] = (-1, [])
        self._known: tuple[int, dict[str | None, WindowsOverview]] = (-1, {})

    def runs(self) -> list[RunSummary]:
        """Return every run of the user's store, the one with the newest window first."""
        store = self._workspace.store
        generation, runs = self._runs
        if generation != store.generation:
            generation = store.generation
            runs = store.runs()
            self._runs = generation, runs
        return runs

    def read(self, run_id: str | None) -> WindowsOverview:
        """Return the overview of one run or of all."""
        store, reading = self._workspace.store, self._workspace.status().kind == "reading"
        generation, known = self._known
        if generation != store.generation:
            generation, known = self._known = store.generation, {}
        found = known.get(run_id)
        if found is None:
            found = WindowsOverview(
                generation,
                reading,
                self.runs(),
                self._workspace.window_counts(run_id),
                self._workspace.timeline(run_id, TIMELINE_WINDOWS),
                len(store.quarantine()),
                len(store.conflicts()),
            )
            if len(known) < _MOST_CACHED:
                known[run_id] = found
        return replace(found, reading=reading)
