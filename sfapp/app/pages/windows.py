"""``/windows``: all windows as a timeline and as a table, and the state of the store."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import Request
from nicegui import background_tasks, ui

from sfapp.app.connection import connected
from sfapp.app.notifications import follow
from sfapp.app.panels.overview import file_faults, no_packets, overview_tabs, store_notices
from sfapp.app.panels.progress import ReadingProgress
from sfapp.app.panels.running_jobs import RunningJobs
from sfapp.app.panels.windows_grid import WindowsGrid
from sfapp.app.panels.windows_timeline import WindowsTimeline
from sfapp.app.panels.windows_toolbar import WindowsToolbar
from sfapp.app.routes import Handler
from sfapp.app.theme import Crumb, box, empty, frame, is_dark, label_text, link
from sfapp.app.view_history import UndoableView
from sfapp.app.window_list import ListState, parse_list, parse_sort
from sfapp.errors import StoreError
from sfapp.model import Gates
from sfapp.model.view import WindowKey
from sfapp.service.window_overview import TIMELINE_WINDOWS, WindowsOverview
from sfapp.service.workspace import Workspace
from sfapp.views import format
from sfapp.views import text as words
from sfapp.views.address import window_page

Rows = Sequence[Mapping[str, Any]]

RUNS_OFFERED = 500
"""Runs to choose from, those with the newest windows; the search finds the windows of others."""


def _run_choices(overview: WindowsOverview) -> dict[str, str]:
    """Return runs to choose from, with their numbers of windows."""
    return {
        run.run_id: f"{format.clip(run.run_id)} · {format.count(run.windows)}"
        for run in overview.runs[:RUNS_OFFERED]
    }


def build(workspace: Workspace) -> tuple[Handler, ...]:
    """Return the page's handler."""

    async def windows_page(request: Request) -> None:
        state, messages = parse_list(request.query_params.multi_items())
        overview = await asyncio.to_thread(workspace.windows_overview, state.run)
        page = WindowsPage(workspace, state, overview, is_dark(request))
        page.build(request, messages)
        if await connected():
            await page.start()

    return (windows_page,)


class WindowsPage:
    """One open page of windows."""

    def __init__(self, workspace: Workspace, state: ListState, overview: WindowsOverview, dark: bool) -> None:
        self._workspace = workspace
        self._views = UndoableView(
            state, parse=lambda query: parse_list(query)[0], href=lambda view: view.href, show=self._show_view
        )
        self._overview = overview
        self._shown: Rows = ()
        self._dark = dark

    @property
    def _state(self) -> ListState:
        return self._views.view

    def build(self, request: Request, messages: list[str]) -> None:
        """Build the page without its timeline, which is drawn once the browser is connected."""
        with frame(self._workspace, request, "windows", (Crumb("Windows"),), searches=True) as page:
            page.dark.on_value_change(lambda event: self._draw_timeline(bool(event.value)))
            with box("stack"):
                overview_tabs("windows")
                store_notices(self._workspace, messages)
                ReadingProgress(self._workspace)
                RunningJobs(self._workspace)
                self._head = box("overview-head")
                self._empty = box("card")
                self._timeline = WindowsTimeline(self._filter_range)
                self._timeline_note = label_text("", "p", "muted").mark("timeline-note")
                self._list_box = box("stack")
                with self._list_box:
                    overview = self._overview
                    self._toolbar = WindowsToolbar(
                        self._state, _run_choices(overview), overview.counts.stages, self._change
                    )
                    with self._toolbar.undo_place:
                        self._views.button()
                    with box("card grid-card", "section"):
                        self._grid = WindowsGrid(
                            self._state.unsorted_query, sort=self._state.sort, change_sort=self._sort
                        )
        self._show_head()

    async def start(self) -> None:
        """Draw the timeline, then follow the store."""
        follow(self._workspace.changed, self._follow)
        await self._draw_timeline(self._dark)
        await self._follow()  # The store may have changed while the browser was loading.

    # --- parts ----------------------------------------------------------------------------------------

    def _show_head(self) -> None:
        """Show how many windows need attention and how many files were refused, or what to do if there are no
        windows."""
        overview = self._overview
        self._head.clear()
        with self._head:
            if overview.rows:
                self._headline()
            box("grow")
            file_faults(overview.refused, overview.conflicts)
        self._empty.clear()
        is_empty = not overview.rows and not overview.reading
        self._empty.set_visibility(is_empty)
        if is_empty:
            with self._empty:
                self._nothing()
        self._list_box.set_visibility(bool(overview.rows))

    def _headline(self) -> None:
        counts = self._overview.counts
        worst = counts.worst
        with box():
            headline = words.attention_count(counts.slow, counts.windows, counts.incomplete)
            label_text(headline, "h1").mark("headline")
            with box("subtitle", "p"):
                label_text(format.counted(counts.runs, "run"), "span")
                if worst is not None:
                    rank = "" if worst["aim_rank"] is None else f" on rank {worst['aim_rank']}"
                    run_id = format.clip(worst["run_id"])
                    stage = format.short_stage(worst["aim_stage"])
                    cause = f"{stage}{rank}, window {worst['window']} of {run_id}"
                    label_text("· slowest:", "span")
                    link(cause, window_page(WindowKey(worst["run_id"], worst["window"])))
                    label_text(f"· {words.attention_by_chance(counts.windows, Gates().alpha)}", "span")

    def _nothing(self) -> None:
        if self._state.run is not None:
            empty("Run not found", f"The store has no windows of run {self._state.run!r}.")
            link("All windows", "/windows")
            return
        no_packets(self._workspace, "Windows")

    # --- actions -----------------------------------------------------------------------

    def _change(self, **changes: Any) -> None:
        """Change fields of the view."""
        if changes.get("run", self._state.run) != self._state.run:
            changes |= {
                "first": None,
                "last": None,
            }  # The range belongs to the windows that were listed before.
        self._views.change(replace(self._state, **changes), ",".join(changes))

    def _sort(self, sort: str | None) -> None:
        try:
            parse_sort(sort or "")
        except StoreError:  # The browser may send anything.
            return
        self._change(sort=sort)

    def _show_view(self, before: ListState) -> None:
        """Show the view in every part of the page."""
        state = self._state
        self._toolbar.show(state)
        self._grid.list(state.unsorted_query, state.sort)
        if state.run != before.run:
            background_tasks.create(self._show_other_run(), context=self._head)
        else:
            background_tasks.create(self._draw_timeline(self._dark), context=self._head)

    async def _show_other_run(self) -> None:
        run = self._state.run
        overview = await asyncio.to_thread(self._workspace.windows_overview, run)
        if run != self._state.run:
            return
        self._overview = overview
        self._show_head()
        await self._draw_timeline(self._dark)

    def _filter_range(self, low: float | None, high: float | None) -> None:
        """List only the brushed windows, or all of them where the brush was cleared."""
        rows = self._shown
        places = None if low is None or high is None else _places(low, high, len(rows))
        if places is None:
            self._change(first=None, last=None)
            return
        first, last = (WindowKey(rows[place]["run_id"], rows[place]["window"]) for place in places)
        self._change(first=first, last=last)

    def _brushed_places(self, rows: Rows) -> tuple[int, int] | None:
        """Return the first and last place of the brushed windows in the timeline."""
        first, last = self._state.first, self._state.last
        if first is None and last is None:
            return None
        keys = [(row["run_id"], row["window"]) for row in rows]
        inside = [
            place
            for place, key in enumerate(keys)
            if (first is None or key >= (first.run_id, first.window))
            and (last is None or key <= (last.run_id, last.window))
        ]
        return (inside[0], inside[-1]) if inside else None

    # --- following the store --------------------------------------------------------------------------

    async def _draw_timeline(self, dark: bool) -> None:
        """Draw the listed windows; in order, also those beside a range that was brushed."""
        self._dark = dark
        asked = self._state, self._overview.generation
        rows = await asyncio.to_thread(_timeline_rows, self._workspace, self._overview, self._state)
        brushed = self._brushed_places(rows) if self._state.axis is None else None

        def is_current() -> bool:
            return (self._state, self._overview.generation, self._dark) == (*asked, dark)

        if is_current():
            self._shown = rows
            self._note_timeline()
            await self._timeline.draw(
                rows, self._state.axis, dark=dark, brushed=brushed, is_current=is_current
            )

    def _note_timeline(self) -> None:
        """Say that the timeline shows only a part of the windows, if it does."""
        which = "first as listed" if self._state.axis == "sorted" else "latest"
        shown = format.count(len(self._shown))
        self._timeline_note.text = f"The timeline shows the {shown} {which}; the table has all windows."
        self._timeline_note.set_visibility(len(self._shown) >= TIMELINE_WINDOWS)

    async def _follow(self) -> None:
        """Update the parts of the page whose data changed."""
        reading = self._workspace.status().kind == "reading"
        if (self._workspace.store.generation, reading) == (self._overview.generation, self._overview.reading):
            return
        before, run = self._overview, self._state.run
        overview = await asyncio.to_thread(self._workspace.windows_overview, run)
        if run != self._state.run:
            return  # The windows of the run that was picked meanwhile are being read.
        self._overview = overview
        if not before.reading:  # During the first ingest, windows are not new.
            self._announce(before)
        self._show_head()
        self._toolbar.offer_runs(_run_choices(self._overview))
        self._grid.refresh()
        await self._draw_timeline(self._dark)

    def _announce(self, before: WindowsOverview) -> None:
        """Notify the user of the windows that arrived."""
        known = {(row["run_id"], row["window"]) for row in before.rows}
        number = self._overview.counts.windows - before.counts.windows
        arrived = [row for row in self._overview.rows if (row["run_id"], row["window"]) not in known]
        if number == 1 and len(arrived) == 1:
            ui.notify(f"Window {arrived[0]['window']} of {format.clip(arrived[0]['run_id'])} arrived")
        elif number > 0:
            ui.notify(f"{format.counted(number, 'window')} arrived")


def _places(low: float, high: float, count: int) -> tuple[int, int] | None:
    """Return the first and last position whose centre lies in a range of the timeline's axis."""
    low, high = min(low, high), max(low, high)
    first, last = max(0, math.ceil(low)), min(count - 1, math.floor(high))
    return (first, last) if first <= last else None


def _timeline_rows(workspace: Workspace, overview: WindowsOverview, state: ListState) -> Rows:
    """Return the windows of the timeline. Blocking."""
    if state.axis is None and not state.is_filtered:
        return overview.rows
    asked = state.asked if state.axis is not None else replace(state.asked, first=None, last=None)
    return workspace.timeline(asked, TIMELINE_WINDOWS, is_sorted=state.axis == "sorted")
