"""``/``: the problems of all runs, the costliest first, above the timeline of their windows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import RedirectResponse
from nicegui import background_tasks, ui
from starlette.responses import Response

from sfapp.app.address import rooted
from sfapp.app.connection import connected
from sfapp.app.notifications import follow
from sfapp.app.panels.overview import file_faults, no_packets, overview_tabs, store_notices
from sfapp.app.panels.plot_card import FigureCard
from sfapp.app.panels.problem_list import ProblemList
from sfapp.app.panels.progress import ReadingProgress
from sfapp.app.panels.run_timeline import open_clicked
from sfapp.app.panels.running_jobs import RunningJobs
from sfapp.app.theme import (
    Crumb,
    box,
    frame,
    is_dark,
    label_text,
    link,
    show_address,
    with_keys,
)
from sfapp.app.window_list import ListState
from sfapp.incidents import IncidentState
from sfapp.model import Gates
from sfapp.model.problems import Problem
from sfapp.model.view import WindowKey
from sfapp.service.problems import ListedProblem, listed
from sfapp.service.workspace import Workspace
from sfapp.views import format
from sfapp.views import text as words
from sfapp.views.address import window_page
from sfapp.views.figures.window_timeline import window_timeline
from sfapp.views.text.problems import matches, problems_headline, rank_time

TIMELINE_WINDOWS = 400
"""Maximum number of windows in the timeline below the problems, the latest ones. The page of windows shows
all."""


@dataclass(frozen=True, slots=True)
class ProblemsState:
    """The view of this page, encoded in its address.

    Attributes:
        run: only problems of this run. text: only problems whose words contain this text.
    """

    run: str | None = None
    text: str | None = None

    @property
    def href(self) -> str:
        """Return the address of this view."""
        pairs = [(name, value) for name, value in (("run", self.run), ("text", self.text)) if value]
        return f"/?{urlencode(pairs, quote_via=quote)}" if pairs else "/"


@dataclass(frozen=True, slots=True)
class ProblemsOverview:
    """The store's contents for this page; ``generation`` and ``reading`` are read first, so that later
    changes are noticed."""

    generation: int
    reading: bool
    problems: list[Problem]
    runs: int
    windows: int
    refused: int
    conflicts: int
    is_located: bool = False

    @classmethod
    def of(cls, workspace: Workspace) -> ProblemsOverview:
        """Read the overview, with the problems that are known without reading packets. Blocking."""
        store = workspace.store
        generation, reading = store.generation, workspace.status().kind == "reading"
        runs = store.runs()
        return cls(
            generation,
            reading,
            workspace.problems(locates=False),
            len(runs),
            sum(run.windows for run in runs),
            len(store.quarantine()),
            len(store.conflicts()),
        )


def build(workspace: Workspace) -> None:
    """Register the page."""

    @ui.page("/", response_timeout=30)
    async def problems_page(request: Request) -> Response | None:
        asked = dict(request.query_params.multi_items())
        unknown = set(asked) - {"run", "text", "token"}
        if unknown & {item.name for item in fields(ListState)}:  # an old link to the list of windows
            return RedirectResponse(rooted(f"/windows?{request.url.query}"))
        overview = await asyncio.to_thread(ProblemsOverview.of, workspace)
        await workspace.incident_service.current()
        state = ProblemsState(asked.get("run") or None, asked.get("text") or None)
        page = ProblemsPage(workspace, state, overview, is_dark(request))
        page.build(request, [f"The link's {format.clip(name)!r} is not an option of this page; it is ignored."
                             for name in sorted(unknown)])  # fmt: skip
        if await connected():
            await page.start()
        return None


class ProblemsPage:
    """One open page of problems."""

    def __init__(
        self, workspace: Workspace, state: ProblemsState, overview: ProblemsOverview, dark: bool
    ) -> None:
        self._workspace = workspace
        self._state = state
        self._overview = overview
        self._dark = dark
        self._timeline: FigureCard | None = None

    def build(self, request: Request, messages: list[str]) -> None:
        """Build the page without its timeline, which is drawn once the browser is connected."""
        with frame(self._workspace, request, "problems", (Crumb("Problems"),), searches=True) as page:
            page.dark.on_value_change(lambda event: self._draw_timeline(bool(event.value)))
            with box("stack"):
                overview_tabs("problems")
                store_notices(self._workspace, messages)
                ReadingProgress(self._workspace)
                RunningJobs(self._workspace)
                self._head = box("overview-head")
                self._empty = box("card")
                with box("card", "section") as self._card:
                    self._toolbar()
                    self._list = ProblemList()
                    self._decided = ui.element("details").classes("decided")
                    with self._decided:
                        self._decided_title = label_text("", "summary").mark("decided")
                        self._decided_list = ProblemList()
                self._timeline_box = box("timeline")
        self._show()

    async def start(self) -> None:
        """Draw the timeline, then follow the store and the decisions about problems."""
        follow(self._workspace.changed, self._follow)
        follow(self._workspace.incident_service.changed, self._show_marks)
        await self._draw_timeline(self._dark)
        await self._follow()

    # --- parts ----------------------------------------------------------------------------------------

    def _toolbar(self) -> None:
        with box("toolbar"):
            search = (
                ui.input(
                    placeholder="Search ranks, hosts, stages, runs",
                    value=self._state.text or "",
                    on_change=lambda event: self._filter(text=event.value or None),
                )
                .props("dense outlined clearable debounce=250 aria-label='Search problems'")
                .classes("search")
                .mark("search")
            )
            with_keys(search, "/")
            self._run_badge = label_text("", "button", "badge brushed").mark("run-filter")
            self._run_badge.on("click", lambda: self._filter(run=None))
            box("grow")
            link(".json", "/problems.json", "badge")

    def _show(self) -> None:
        """Show the present head and list."""
        overview = self._overview
        found = [one for one in self._listed() if self._is_asked(one)]
        current = [one for one in found if one.needs_attention]
        decided = [one for one in found if not one.needs_attention]
        self._show_head(current)
        self._list.show(current)
        self._decided_list.show(decided)
        self._decided_title.text = f"{format.counted(len(decided), 'problem')} muted or marked as fixed"
        self._decided.set_visibility(bool(decided))
        self._run_badge.text = f"Run {format.clip(self._state.run or '')} ✕"
        self._run_badge.set_visibility(self._state.run is not None)
        self._card.set_visibility(bool(overview.problems))
        self._timeline_box.set_visibility(bool(overview.windows))
        self._empty.clear()
        is_empty = not overview.windows and not overview.reading
        self._empty.set_visibility(is_empty)
        if is_empty:
            with self._empty:
                no_packets(self._workspace, "Problems")

    def _show_marks(self, _: IncidentState) -> None:
        self._show()

    def _show_head(self, found: Sequence[ListedProblem]) -> None:
        overview = self._overview
        self._head.clear()
        with self._head:
            if overview.windows:
                self._headline(found)
            box("grow")
            file_faults(overview.refused, overview.conflicts)

    def _headline(self, found: Sequence[ListedProblem]) -> None:
        windows = self._overview.windows
        ongoing = sum(one.status in ("ongoing", "returned") for one in found)
        lost = sum(one.problem.cost.rank_hours for one in found if one.problem.cost)
        with box():
            headline = problems_headline(ongoing, len(found) - ongoing)
            label_text(headline, "h1").mark("headline")
            parts = [
                *([f"{rank_time(lost)} lost"] if lost else []),
                f"{format.counted(self._overview.runs, 'run')}, {format.counted(windows, 'window')}",
                words.attention_by_chance(windows, Gates().alpha),
            ]
            label_text(" · ".join(parts), "p", "subtitle")

    # --- what is listed -------------------------------------------------------------------------------

    def _listed(self) -> list[ListedProblem]:
        return listed(self._overview.problems, self._workspace.incident_service.state)

    def _is_asked(self, one: ListedProblem) -> bool:
        run, text = self._state.run, self._state.text
        return (run is None or one.problem.run_id == run) and (text is None or matches(one.problem, text))

    def _filter(self, **changes: str | None) -> None:
        self._state = replace(self._state, **changes)
        show_address(self._state.href)
        self._show()

    # --- following the store --------------------------------------------------------------------------

    async def _draw_timeline(self, dark: bool) -> None:
        self._dark = dark
        rows = await asyncio.to_thread(self._workspace.timeline, None, TIMELINE_WINDOWS)
        if not rows:
            return
        figure = await asyncio.to_thread(window_timeline, rows, dark=dark)
        if self._timeline is None:
            with self._timeline_box:
                self._timeline = FigureCard(figure)
            self._timeline.on_click(lambda point: open_clicked(point, _open))
        else:
            self._timeline.redraw(figure)

    async def _follow(self) -> None:
        """Update the parts of the page whose data changed; the steps of problems are then read from
        packets."""
        reading = self._workspace.status().kind == "reading"
        now = (self._workspace.store.generation, reading)
        if now != (self._overview.generation, self._overview.reading):
            self._overview = await asyncio.to_thread(ProblemsOverview.of, self._workspace)
            self._show()
            await self._draw_timeline(self._dark)
        if not self._overview.is_located and not reading:
            background_tasks.create(self._locate(), context=self._head)

    async def _locate(self) -> None:
        """Show the steps at which problems began and ended, read from packets."""
        generation = self._overview.generation
        problems = await asyncio.to_thread(self._workspace.problems)
        if self._overview.generation == generation:
            self._overview = replace(self._overview, problems=problems, is_located=True)
            self._show()


def _open(key: WindowKey) -> None:
    ui.navigate.to(window_page(key))
