"""``/runs/<run>``: one run over its windows, with a chooser of its healthy window."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request
from nicegui import events, ui

from sfapp.app.address import run_of
from sfapp.app.connection import connected
from sfapp.app.notices import ignored_options, notices
from sfapp.app.notifications import follow
from sfapp.app.pages.not_found import missing
from sfapp.app.panels.plot_card import FigureCard
from sfapp.app.panels.run_timeline import open_clicked
from sfapp.app.panels.windows_grid import WindowsGrid
from sfapp.app.routes import Handler
from sfapp.app.theme import Crumb, box, frame, is_dark, label_text, link
from sfapp.app.window_list import ListState
from sfapp.errors import StoreError, WindowNotFoundError
from sfapp.model.onsets import Episode
from sfapp.model.sides import CompareState, SideKey
from sfapp.model.view import WindowKey
from sfapp.service.problems import episodes_in
from sfapp.service.workspace import Workspace
from sfapp.store import RunSummary, WindowQuery
from sfapp.views import figures, format
from sfapp.views.address import live_page, run_page, window_page
from sfapp.views.figures.history import run_history

AUTOMATIC = -1
"""Value of the chooser for the measured healthy window."""


def build(workspace: Workspace) -> tuple[Handler, ...]:
    """Return the page's handler."""

    async def run_history_page(request: Request, run_id: str) -> None:
        name = run_of(request)
        generation = workspace.store.generation
        try:
            summary = await asyncio.to_thread(workspace.run, name)
        except WindowNotFoundError as error:
            missing(workspace, request, str(error), lambda: workspace.run(name))
            return
        rows = await asyncio.to_thread(workspace.timeline, WindowQuery(name))
        running = {run["run_id"] for run in await asyncio.to_thread(workspace.streaming.newest)}
        page = HistoryPage(workspace, generation, summary, rows, name in running, is_dark(request))
        page.build(request)
        if await connected():
            await page.start()

    return (run_history_page,)


class HistoryPage:
    """One open run history."""

    def __init__(
        self,
        workspace: Workspace,
        generation: int,
        summary: RunSummary,
        rows: list[dict[str, Any]],
        is_running: bool,
        dark: bool,
    ) -> None:
        self._workspace = workspace
        self._generation = generation
        self._summary = summary
        self._rows = rows
        self._episodes: list[Episode] = []
        self._is_running = is_running
        self._dark = dark

    def build(self, request: Request) -> None:
        """Build the page without its plot."""
        run_id = self._summary.run_id
        name = format.clip(run_id)
        crumbs = (Crumb("Problems", "/"), Crumb(f"Run {name}", detail=self._size()))
        with frame(self._workspace, request, f"run {name}", crumbs, heading=f"Run {name}") as page:
            page.dark.on_value_change(lambda event: self._draw(bool(event.value)))
            with box("stack"):
                notices(ignored_options(request))
                with box("toolbar"):
                    label_text("Healthy window", "span", "muted")
                    self._chooser = (
                        ui.select(self._choices(), value=self._chosen(), on_change=self._choose)
                        .props("dense outlined options-dense aria-label='Healthy window'")
                        .mark("healthy")
                    )
                    label_text("The other windows are compared with it.", "span", "muted")
                    box("grow")
                    if self._is_running:
                        link("Watch live", live_page(run_id), "badge running-now").mark("running")
                    link("Compare with…", CompareState(a=SideKey(run_id)).href(), "badge").mark("compare")
                    link(".json", f"{run_page(run_id)}.json", "badge")
                    link(".csv", f"{run_page(run_id)}.csv", "badge")
                self._plot_box = box("history")
                with box("card grid-card", "section"):
                    self._grid = WindowsGrid(ListState(run=run_id).query, one_run=True)

    async def start(self) -> None:
        """Draw the plot once the browser is connected, then follow the store."""
        with self._plot_box:
            self._plot = FigureCard(self._figure())
        self._plot.on_click(lambda point: open_clicked(point, _open))
        follow(self._workspace.changed, self._follow)
        await self._follow()  # The store may have changed while the browser was loading.
        await self._locate()

    def _size(self) -> str:
        summary = self._summary
        parts = (
            format.counted(summary.windows, "window"),
            format.counted(summary.ranks, "rank"),
            format.counted(summary.nodes, "node"),
        )
        return " · ".join(parts)

    def _choices(self) -> dict[int, str]:
        windows = {
            row["window"]: f"{row['window']} · {format.duration(row['step_time_ns'])}" for row in self._rows
        }
        return {AUTOMATIC: "healthy windows, found automatically", **windows}

    def _chosen(self) -> int:
        reference = self._summary.reference_window
        return reference if self._summary.reference_chosen and reference is not None else AUTOMATIC

    async def _choose(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value == self._chosen():
            return
        window = None if event.value == AUTOMATIC else int(event.value)
        try:
            await asyncio.to_thread(self._workspace.set_reference, self._summary.run_id, window)
        except StoreError as error:
            ui.notify(str(error), type="negative")

    def _figure(self) -> figures.Figure:
        return run_history(
            self._rows,
            dark=self._dark,
            reference=self._summary.reference_window,
            episodes=self._episodes,
        )

    async def _locate(self) -> None:
        """Mark where effects began and ended. This reads packets, so the plot is drawn before."""
        found = episodes_in(await asyncio.to_thread(self._workspace.problems, self._summary.run_id))
        if found != self._episodes:
            self._episodes = found
            self._plot.redraw(self._figure())

    def _draw(self, dark: bool) -> None:
        self._dark = dark
        self._plot.redraw(self._figure())

    async def _follow(self) -> None:
        """Update the parts of the page whose data changed."""
        generation = self._workspace.store.generation
        if generation == self._generation:
            return
        self._generation = generation
        try:
            self._summary = await asyncio.to_thread(self._workspace.run, self._summary.run_id)
        except WindowNotFoundError as error:
            ui.notify(f"{error}; showing the last state", type="warning")
            return
        self._rows = await asyncio.to_thread(self._workspace.timeline, WindowQuery(self._summary.run_id))
        self._chooser.set_options(self._choices(), value=self._chosen())
        self._plot.redraw(self._figure())
        self._grid.refresh()
        await self._locate()


def _open(key: WindowKey) -> None:
    ui.navigate.to(window_page(key))
