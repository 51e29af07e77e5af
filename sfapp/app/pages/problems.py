"""``/``: the problems of all runs, the costliest first, above the timeline of their windows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import Request
from fastapi.responses import RedirectResponse
from nicegui import background_tasks, ui
from starlette.responses import Response

from sfapp.app.address import rooted
from sfapp.app.connection import connected
from sfapp.app.notices import ignored_option
from sfapp.app.notifications import follow
from sfapp.app.panels.overview import file_faults, no_packets, overview_tabs, store_notices
from sfapp.app.panels.problem_list import CLOCK_S, ProblemList
from sfapp.app.panels.problems_toolbar import ProblemsToolbar
from sfapp.app.panels.progress import ReadingProgress
from sfapp.app.panels.running_jobs import RunningJobs
from sfapp.app.panels.windows_timeline import WindowsTimeline
from sfapp.app.routes import Handler
from sfapp.app.theme import Crumb, box, frame, is_dark, label_text
from sfapp.app.view_history import UndoableView
from sfapp.app.window_list import ListState
from sfapp.incidents import IncidentState
from sfapp.model import Gates
from sfapp.model.problems import Problem
from sfapp.model.search_words import MAX_SEARCH
from sfapp.service.problem_query import ORDERS, ProblemQuery
from sfapp.service.problems import ListedProblem, listed
from sfapp.service.workspace import Workspace
from sfapp.store import WindowQuery
from sfapp.views import format
from sfapp.views import text as words
from sfapp.views.text.problems import count_problems, problems_headline, rank_time

TIMELINE_WINDOWS = 400
"""Maximum number of windows in the timeline below the problems, the latest ones. The page of windows shows
all."""

PARAMETERS = frozenset({"run", "text", "ongoing", "sort", "axis"})
"""Names in the address of this page."""

AXES_OFFERED = ("window", "time")

TimelineRows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ProblemsState:
    """The view of this page, encoded in its address.

    Attributes:
        query: the problems that are listed.
        axis: of the timeline, ``time`` or None for windows in order.
    """

    query: ProblemQuery = field(default_factory=ProblemQuery)
    axis: str | None = None

    def address(self, page: str = "/") -> str:
        """Return the address of this view, or of another page with its problems."""
        asked = self.query
        values = (("run", asked.run), ("text", asked.text), ("ongoing", "true" if asked.ongoing else None),
                  ("sort", asked.sort), ("axis", self.axis if page == "/" else None))  # fmt: skip
        pairs = [(name, value) for name, value in values if value]
        return f"{page}?{urlencode(pairs, quote_via=quote)}" if pairs else page


def parse_problems(query: str | Iterable[tuple[str, str]]) -> tuple[ProblemsState, list[str]]:
    """Parse a query; return the view and a notice for every parameter that is ignored."""
    asked = dict(parse_qsl(query) if isinstance(query, str) else query)
    asked.pop("token", None)
    notices = []
    for name, allowed in (("sort", ORDERS), ("axis", AXES_OFFERED)):
        value = asked.get(name)
        if value and value not in allowed:
            notices.append(f"In the link, there is no {name} {format.clip(value)!r}; showing the default.")
            del asked[name]
    notices += [ignored_option(name) for name in sorted(asked.keys() - PARAMETERS)]
    ongoing = asked.get("ongoing", "false").lower()
    if ongoing not in ("true", "1", "false", "0"):
        notices.append(f"In the link, ongoing must be true, not {format.clip(ongoing)!r}; showing all.")
    sort, axis = asked.get("sort"), asked.get("axis")
    problem_query = ProblemQuery(
        asked.get("run") or None,
        (asked.get("text") or "")[:MAX_SEARCH] or None,
        ongoing in ("true", "1"),
        None if sort == next(iter(ORDERS)) else sort or None,
    )
    return ProblemsState(problem_query, None if axis == AXES_OFFERED[0] else axis or None), notices


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


def build(workspace: Workspace) -> tuple[Handler, ...]:
    """Return the page's handler."""

    async def problems_page(request: Request) -> Response | None:
        asked = request.query_params.multi_items()
        unknown = {name for name, _ in asked} - PARAMETERS
        if unknown & {item.name for item in fields(ListState)}:  # a link to the list of windows, once here
            return RedirectResponse(rooted(f"/windows?{request.url.query}"))
        overview = await asyncio.to_thread(ProblemsOverview.of, workspace)
        await workspace.incident_service.shown()
        state, messages = parse_problems(asked)
        page = ProblemsPage(workspace, state, overview, is_dark(request))
        page.build(request, messages)
        rows = asyncio.create_task(page.read_timeline())  # while the browser loads the page
        if await connected():
            await page.start(await rows)
        return None

    return (problems_page,)


class ProblemsPage:
    """One open page of problems."""

    def __init__(
        self, workspace: Workspace, state: ProblemsState, overview: ProblemsOverview, dark: bool
    ) -> None:
        self._workspace = workspace
        self._views = UndoableView(
            state,
            parse=lambda query: parse_problems(query)[0],
            href=lambda view: view.address(),
            show=self._show_view,
        )
        self._overview = overview
        self._dark = dark

    @property
    def _state(self) -> ProblemsState:
        return self._views.view

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
                    self._build_toolbar()
                    self._list = ProblemList()
                    self._decided = ui.element("details").classes("decided")
                    with self._decided:
                        self._decided_title = label_text("", "summary").mark("decided")
                        self._decided_list = ProblemList()
                self._timeline = WindowsTimeline()
                ui.timer(CLOCK_S, self._follow_clock, immediate=False)
        self._show()

    async def start(self, rows: TimelineRows) -> None:
        """Draw the timeline of these rows, then follow the store and the decisions about problems."""
        follow(self._workspace.changed, self._follow)
        follow(self._workspace.incident_service.changed, self._show_marks)
        await self._draw_timeline(self._dark, rows)
        await self._follow()

    # --- parts ----------------------------------------------------------------------------------------

    def _build_toolbar(self) -> None:
        self._toolbar = ProblemsToolbar(self._state.query, self._state.axis, self._change, self._choose_axis)
        with self._toolbar.undo_place:
            self._views.button()
        self._show_links()

    def _show_links(self) -> None:
        self._toolbar.link_to(self._state.address("/problems.json"), self._state.address("/problems.csv"))

    def _show(self) -> None:
        """Show the present head and list."""
        overview = self._overview
        found = self._shown = self._listed()
        current = [one for one in found if one.needs_attention]
        decided = [one for one in found if not one.needs_attention]
        self._show_head(current)
        self._list.show(current)
        self._decided_list.show(decided)
        self._decided_title.text = f"{format.counted(len(decided), 'problem')} muted or marked as fixed"
        self._decided.set_visibility(bool(decided))
        self._card.set_visibility(bool(overview.problems))
        self._empty.clear()
        is_empty = not overview.windows and not overview.reading
        self._empty.set_visibility(is_empty)
        if is_empty:
            with self._empty:
                no_packets(self._workspace, "Problems")

    def _show_marks(self, _: IncidentState) -> None:
        self._show()

    def _follow_clock(self) -> None:
        """Show the list again if time changed a status."""
        if self._listed() != self._shown:
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
        counts = count_problems((one.problem, one.status) for one in found)
        lost = sum(one.problem.cost.rank_hours for one in found if one.problem.cost)
        with box():
            headline = problems_headline(*counts)
            label_text(headline, "h1").mark("headline")
            parts = [
                *([f"{rank_time(lost)} lost"] if lost else []),
                f"{format.counted(self._overview.runs, 'run')}, {format.counted(windows, 'window')}",
                words.attention_by_chance(windows, Gates().alpha),
            ]
            label_text(" · ".join(parts), "p", "subtitle")

    # --- what is listed -------------------------------------------------------------------------------

    def _listed(self) -> list[ListedProblem]:
        every = listed(self._overview.problems, self._workspace.incident_service.state)
        return self._state.query.select(every)

    def _change(self, **changes: Any) -> None:
        query = replace(self._state.query, **changes)
        self._views.change(replace(self._state, query=query), ",".join(changes))

    def _choose_axis(self, axis: str | None) -> None:
        self._views.change(replace(self._state, axis=axis), "axis")

    def _show_view(self, _: ProblemsState) -> None:
        """Show the view in every part of the page."""
        self._toolbar.show(self._state.query, self._state.axis)
        self._show_links()
        self._show()
        background_tasks.create(self._draw_timeline(self._dark), context=self._head)

    # --- following the store --------------------------------------------------------------------------

    async def read_timeline(self) -> TimelineRows:
        """Return the windows of the present timeline."""
        return await asyncio.to_thread(_timeline_rows, self._workspace, self._state, self._listed())

    async def _draw_timeline(self, dark: bool, rows: TimelineRows | None = None) -> None:
        self._dark = dark
        state = self._state
        if rows is None:
            rows = await self.read_timeline()
        await self._timeline.draw(
            rows, state.axis, dark=dark, is_current=lambda: (self._state, self._dark) == (state, dark)
        )

    async def _follow(self) -> None:
        """Update the parts of the page whose data changed; the steps of problems are then read from
        packets."""
        reading = self._workspace.status().kind == "reading"
        now = (self._workspace.store.generation, reading)
        if now != (self._overview.generation, self._overview.reading):
            self._overview = await asyncio.to_thread(ProblemsOverview.of, self._workspace)
            if self._head.is_deleted:  # The page was closed meanwhile.
                return
            self._show()
            await self._draw_timeline(self._dark)
        if not self._overview.is_located and not reading:
            background_tasks.create(self._locate(), context=self._head)

    async def _locate(self) -> None:
        """Show the steps at which problems began and ended, read from packets."""
        generation = self._overview.generation
        problems = await asyncio.wrap_future(self._workspace.locate_problems())
        if self._overview.generation == generation and not self._head.is_deleted:
            self._overview = replace(self._overview, problems=problems, is_located=True)
            self._show()


def _timeline_rows(
    workspace: Workspace, state: ProblemsState, found: Sequence[ListedProblem]
) -> TimelineRows:
    """Return the latest windows, of the runs that the listed problems are of where not all are. Blocking."""
    query = state.query
    runs = tuple({one.problem.run_id for one in found}) if query.is_filtered else None
    return workspace.timeline(WindowQuery(run=query.run, runs=runs), TIMELINE_WINDOWS)
