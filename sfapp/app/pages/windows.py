"""``/windows``: all windows as a timeline and as a table, and the state of the store."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastapi import Request
from nicegui import background_tasks, ui

from sfapp.app.connection import connected
from sfapp.app.notifications import follow
from sfapp.app.panels.overview import file_faults, no_packets, overview_tabs, store_notices
from sfapp.app.panels.plot_card import FigureCard
from sfapp.app.panels.progress import ReadingProgress
from sfapp.app.panels.run_timeline import open_clicked
from sfapp.app.panels.running_jobs import RunningJobs
from sfapp.app.panels.windows_grid import WindowsGrid
from sfapp.app.theme import (
    Crumb,
    box,
    empty,
    frame,
    is_dark,
    label_text,
    link,
    set_address,
    show_address,
    with_keys,
)
from sfapp.app.window_list import ListState, count_windows, parse_list
from sfapp.model import LABELS, Gates
from sfapp.model.view import WindowKey
from sfapp.service.workspace import Workspace
from sfapp.store import RunSummary
from sfapp.views import format
from sfapp.views import text as words
from sfapp.views.address import run_page, window_page
from sfapp.views.figures.window_timeline import window_timeline

ALL = ""
"""Value of a chooser without a filter."""


@dataclass(frozen=True, slots=True)
class StoreOverview:
    """The store's contents for the head of the page.

    ``generation`` and ``reading`` are read before the rest, so that later changes are noticed.
    """

    generation: int
    reading: bool
    runs: list[RunSummary]
    rows: list[dict[str, Any]]
    refused: int
    conflicts: int

    @classmethod
    def of(cls, workspace: Workspace, run_id: str | None) -> StoreOverview:
        """Read the overview from the store, with the rows of one run or of all. Blocking."""
        store = workspace.store
        return cls(
            store.generation,
            workspace.status().kind == "reading",
            store.runs(),
            workspace.timeline(run_id),
            len(store.quarantine()),
            len(store.conflicts()),
        )

    @property
    def stages(self) -> list[str]:
        """Stages that occur in any window."""
        return list(dict.fromkeys(stage for row in self.rows for stage in row["shares"] or ()))

    @property
    def run_choices(self) -> dict[str, str]:
        """Runs to choose from, with their numbers of windows."""
        named = {run.run_id: f"{format.clip(run.run_id)} · {format.count(run.windows)}" for run in self.runs}
        return {ALL: "all runs", **named}


def build(workspace: Workspace) -> None:
    """Register the page."""

    @ui.page("/windows", response_timeout=30)
    async def windows_page(request: Request) -> None:
        state, messages = parse_list(request.query_params.multi_items())
        overview = await asyncio.to_thread(StoreOverview.of, workspace, state.run)
        page = WindowsPage(workspace, state, overview, is_dark(request))
        page.build(request, messages)
        if await connected():
            await page.start()


class WindowsPage:
    """One open page of windows."""

    def __init__(self, workspace: Workspace, state: ListState, overview: StoreOverview, dark: bool) -> None:
        self._workspace = workspace
        self._state = state
        self._overview = overview
        self._dark = dark
        self._timeline: FigureCard | None = None

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
                self._timeline_box = box("timeline")
                self._list_box = box("stack")
                with self._list_box:
                    self._toolbar()
                    with box("card grid-card", "section"):
                        self._grid = WindowsGrid(self._state.query)
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
        for part in (self._timeline_box, self._list_box):
            part.set_visibility(bool(overview.rows))

    def _headline(self) -> None:
        rows = self._overview.rows
        slow, incomplete = count_windows(rows)
        with box():
            label_text(words.attention_count(slow, len(rows), incomplete), "h1").mark("headline")
            with box("subtitle", "p"):
                runs = len({row["run_id"] for row in rows})
                label_text(format.counted(runs, "run"), "span")
                if slow:
                    worst = max(rows, key=lambda row: (row["needs_attention"], row["severity"] or 0.0))
                    rank = "" if worst["aim_rank"] is None else f" on rank {worst['aim_rank']}"
                    run_id = format.clip(worst["run_id"])
                    stage = format.short_stage(worst["aim_stage"])
                    cause = f"{stage}{rank}, window {worst['window']} of {run_id}"
                    label_text("· slowest:", "span")
                    link(cause, window_page(WindowKey(worst["run_id"], worst["window"])))
                    label_text(f"· {words.attention_by_chance(len(rows), Gates().alpha)}", "span")

    def _nothing(self) -> None:
        if self._state.run is not None:
            empty("Run not found", f"The store has no windows of run {self._state.run!r}.")
            link("All windows", "/windows")
            return
        no_packets(self._workspace, "Windows")

    def _toolbar(self) -> None:
        state, overview = self._state, self._overview
        stages = {stage: format.short_stage(stage) for stage in overview.stages}
        with box("toolbar"):
            search = (
                ui.input(
                    placeholder="Search runs, hosts, labels",
                    value=state.text or "",
                    on_change=lambda event: self._filter(text=event.value or None),
                )
                .props("dense outlined clearable debounce=250 aria-label='Search windows'")
                .classes("search")
                .mark("search")
            )
            with_keys(search, "/")
            self._run_chooser = self._chooser("run", overview.run_choices, state.run)
            self._chooser("stage", {ALL: "any stage", **stages}, state.stage)
            self._chooser(
                "label",
                {ALL: "any label", **{label.name: label.words for label in LABELS.values()}},
                state.label,
            )
            ui.switch(
                "Needs attention only",
                value=state.leaves_out_healthy,
                on_change=lambda event: self._filter(needs_attention=event.value or None, min_severity=None),
            ).props("dense").mark("loud")
            self._brush = with_keys(label_text("", "button", "badge brushed"), label="Show all windows")
            self._brush.on("click", lambda: self._filter(first=None, last=None)).mark("brushed")
            box("grow")
            self._run_link = link("Run history", "/windows", "badge").mark("run-history")
            self._json = link(".json", "/windows.json", "badge")
            self._csv = link(".csv", "/windows.csv", "badge").mark("csv")
        self._update_links()

    def _chooser(self, name: str, options: Mapping[str, str], value: str | None) -> ui.select:
        shown = _with(options, value)
        return (
            ui.select(
                shown,
                value=value or ALL,
                on_change=lambda event: self._filter(**{name: event.value or None}),
                with_input=name == "run" and len(shown) > 14,
            )
            .props(f"dense outlined options-dense aria-label='{name}'")
            .mark(name)
        )

    # --- actions -----------------------------------------------------------------------

    def _filter(self, **fields: Any) -> None:
        before = self._state
        if "run" in fields:  # The brushed range belongs to the windows that were listed before.
            fields |= {"first": None, "last": None}
        self._state = replace(before, **fields)
        if self._state == before:
            return
        show_address(self._state.href)
        self._update_links()
        self._grid.list(self._state.query)
        if self._state.run != before.run:
            background_tasks.create(self._show_other_run(), context=self._head)
        elif (self._state.first, self._state.last) != (before.first, before.last):
            background_tasks.create(self._draw_timeline(self._dark), context=self._head)

    async def _show_other_run(self) -> None:
        self._overview = await asyncio.to_thread(StoreOverview.of, self._workspace, self._state.run)
        self._show_head()
        await self._draw_timeline(self._dark)

    def _filter_range(self, low: float | None, high: float | None) -> None:
        """List only the brushed windows, or all if the brush was cleared."""
        rows = self._overview.rows
        places = None if low is None or high is None else _places(low, high, len(rows))
        if places is None:
            self._filter(first=None, last=None)
            return
        first, last = (WindowKey(rows[place]["run_id"], rows[place]["window"]) for place in places)
        self._filter(first=first, last=last)

    def _brushed_places(self) -> tuple[int, int] | None:
        """Return the first and last position of the brushed windows in the timeline."""
        first, last = self._state.first, self._state.last
        if first is None and last is None:
            return None
        keys = [(row["run_id"], row["window"]) for row in self._overview.rows]
        inside = [
            place
            for place, key in enumerate(keys)
            if (first is None or key >= (first.run_id, first.window))
            and (last is None or key <= (last.run_id, last.window))
        ]
        return (inside[0], inside[-1]) if inside else None

    def _update_links(self) -> None:
        self._brush.text = f"{self._state.brushed} ✕"
        self._brush.set_visibility(bool(self._state.brushed))
        query = f"?{self._state.query}" if self._state.query else ""
        set_address(self._json, f"/windows.json{query}")
        set_address(self._csv, f"/windows.csv{query}")
        self._run_link.set_visibility(self._state.run is not None)
        if self._state.run is not None:
            set_address(self._run_link, run_page(self._state.run))

    # --- following the store --------------------------------------------------------------------------

    async def _draw_timeline(self, dark: bool) -> None:
        self._dark = dark
        if not self._overview.rows:
            return
        figure = await asyncio.to_thread(
            window_timeline,
            self._overview.rows,
            dark=dark,
            brushes=True,
            brushed=self._brushed_places(),
        )
        if self._timeline is None:
            with self._timeline_box:
                self._timeline = FigureCard(figure)
            self._timeline.on_click(lambda point: open_clicked(point, _open))
            self._timeline.on_brush(self._filter_range)
        else:
            self._timeline.redraw(figure)

    async def _follow(self) -> None:
        """Update the parts of the page whose data changed."""
        reading = self._workspace.status().kind == "reading"
        if (self._workspace.store.generation, reading) == (self._overview.generation, self._overview.reading):
            return
        before = self._overview
        self._overview = await asyncio.to_thread(StoreOverview.of, self._workspace, self._state.run)
        if not before.reading:  # During the first ingest, windows are not new.
            self._announce(before)
        self._show_head()
        choices = _with(self._overview.run_choices, self._state.run)
        self._run_chooser.set_options(choices, value=self._state.run or ALL)
        self._grid.refresh()
        await self._draw_timeline(self._dark)

    def _announce(self, before: StoreOverview) -> None:
        """Notify the user of the windows that arrived."""
        known = {(row["run_id"], row["window"]) for row in before.rows}
        arrived = [row for row in self._overview.rows if (row["run_id"], row["window"]) not in known]
        if len(arrived) == 1:
            ui.notify(f"Window {arrived[0]['window']} of {format.clip(arrived[0]['run_id'])} arrived")
        elif arrived:
            ui.notify(f"{format.counted(len(arrived), 'window')} arrived")


def _places(low: float, high: float, count: int) -> tuple[int, int] | None:
    """Return the first and last position whose centre lies in a range of the timeline's axis."""
    low, high = min(low, high), max(low, high)
    first, last = max(0, math.ceil(low)), min(count - 1, math.floor(high))
    return (first, last) if first <= last else None


def _with(options: Mapping[str, str], value: str | None) -> dict[str, str]:
    """Return the options including the chosen one, whether or not it is in the store."""
    return {**({} if value is None else {value: format.clip(value)}), **options}


def _open(key: WindowKey) -> None:
    ui.navigate.to(window_page(key))
