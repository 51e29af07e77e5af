"""``/problems/<id>``: one problem with its cause, onset, cost and next action."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from urllib.parse import quote

from fastapi import Request
from nicegui import background_tasks, ui

from sfapp.app.connection import connected
from sfapp.app.definitions import defined
from sfapp.app.notices import ignored_options, notices
from sfapp.app.notifications import follow
from sfapp.app.one_at_a_time import one_at_a_time
from sfapp.app.pages.not_found import missing
from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.panels.capture_card import CaptureCard
from sfapp.app.panels.note_card import NoteCard
from sfapp.app.panels.note_cards import NoteCards
from sfapp.app.panels.plot_card import FigureCard, draw
from sfapp.app.panels.problem_actions import ProblemActions
from sfapp.app.panels.problem_list import CLOCK_S
from sfapp.app.panels.role_buttons import role_links
from sfapp.app.panels.run_timeline import RunTimeline
from sfapp.app.panels.stacks_card import StacksCard
from sfapp.app.panels.tables import data_table, titled
from sfapp.app.routes import Handler
from sfapp.app.theme import Crumb, author_of, box, frame, is_dark, label_text, link
from sfapp.errors import SfappError, WindowNotFoundError
from sfapp.incidents import MAX_TEXT, IncidentState
from sfapp.model import ALL_RANKS
from sfapp.model.incidents import Note, Pin
from sfapp.model.problems import Problem, ProblemStatus, shown_status
from sfapp.model.view import OVERVIEW, ViewState, WindowKey
from sfapp.service.judging import JudgedWindow
from sfapp.service.problem_view import ProblemView, latest_key
from sfapp.service.problems import ListedProblem, listed
from sfapp.service.what_if import fix_of
from sfapp.service.workspace import Workspace
from sfapp.views import format
from sfapp.views import text as words
from sfapp.views.address import problem_page, run_page, window_page
from sfapp.views.plot_registry import PLOTS, WindowInput
from sfapp.views.table_columns import TableColumn
from sfapp.views.text.problem_evidence import episode_rows, problem_sources, sources_summary
from sfapp.views.text.problems import (
    problem_action,
    problem_explanation,
    problem_facts,
    problem_text,
)

LISTED_WINDOWS = 12
"""Maximum number of links to windows of a problem, the latest ones. The timeline has all."""

LISTED_NOTES = 50
"""Maximum number of shown notes on the windows of a problem, the latest ones."""

EPISODE_COLUMNS = (
    TableColumn("windows", "windows"),
    TableColumn("ranks", "ranks", "that all of its windows name"),
    TableColumn("began_step", "began at", "first step with it, and its 95 % interval", "began"),
    TableColumn("ended", "ended at", "last step with it, and its 95 % interval"),
    TableColumn("effect", "largest effect", "of one window, as a part of its mean step", "effect_text"),
)

TONES: dict[ProblemStatus, str] = {
    "ongoing": "alarm",
    "returned": "alarm",
    "ended": "warn",
    "fixed": "quiet",
    "muted": "quiet",
}


def build(workspace: Workspace) -> tuple[Handler, ...]:
    """Return the page's handler."""

    async def problem_page(request: Request, problem_id: str) -> None:
        run_id = request.query_params.get("run")
        group = request.query_params.get("group") or ALL_RANKS

        def find() -> ProblemView:
            return ProblemView.of(workspace, problem_id, run_id, group)

        try:
            view = await asyncio.to_thread(find)
        except WindowNotFoundError as error:
            missing(workspace, request, str(error), find)
            return
        await workspace.incident_service.shown()
        page = ProblemPage(workspace, view, is_dark(request))
        page.build(request)
        if await connected():
            await page.start()

    return (problem_page,)


class ProblemPage:
    """One open page of a problem."""

    def __init__(self, workspace: Workspace, view: ProblemView, dark: bool) -> None:
        self._workspace = workspace
        self._view = view
        self._dark = dark
        self._plot: FigureCard | None = None
        self._predicted: JudgedWindow | None = None
        self._shown: tuple[object, ...] = ()

    def build(self, request: Request) -> None:
        """Build the page without its plots, which are drawn once the browser is connected."""
        problem = self._view.problem
        text = problem_text(problem)
        crumbs = (
            Crumb("Problems", "/"),
            Crumb(format.clip(problem.run_id), run_page(problem.run_id)),
            Crumb(text.title),
        )
        self._toolbar = AnnotationToolbar(self._workspace.incident_service, author_of(request))
        with frame(self._workspace, request, text.title, crumbs) as page:
            page.dark.on_value_change(lambda event: self._draw(bool(event.value)))
            with box("stack"):
                notices([*ignored_options(request, "run", "group"), *self._view.notices])
                self._card = box("card verdict", "section").mark("problem-card")
                self._card.props["aria-label"] = "Problem"
                with self._card:
                    self._summary = box("summary")
                    self._facts = box("facts")
                    self._actions = ProblemActions(self._workspace.incident_service, self._toolbar)
                if self._view.judged is not None:
                    role_links(self._view.judged.window.ranks, self._group, self._page_of_group)
                    captures = CaptureCard(self._workspace, self._view.judged, lambda: self._toolbar.name)
                    captures.propose(self._view.judged, None)
                StacksCard(
                    self._workspace,
                    problem.run_id,
                    lambda: self._toolbar.name,
                    self._actions.add_stacks,
                )
                self._plot_box = box("problem-plot")
                self._what_if = box()
                self._evidence = box("stack")
                self._windows = box()
                newest = self._view.rows[-1]["window"] if self._view.rows else 0
                latest = latest_key(problem) or WindowKey(problem.run_id, newest)
                self._timeline = RunTimeline(latest, lambda key: ui.navigate.to(window_page(key)))
                self._build_notes()
                ui.timer(CLOCK_S, self._show, immediate=False)
        self._show()

    @property
    def _group(self) -> str:
        """The group of ranks that its latest window is judged by."""
        return ALL_RANKS if self._view.judged is None else self._view.judged.diagnosis.group

    def _page_of_group(self, group: str) -> str:
        page = problem_page(self._view.problem)
        if group == ALL_RANKS:
            return page
        return f"{page}{'&' if '?' in page else '?'}group={quote(group, safe=':')}"

    async def start(self) -> None:
        """Draw the plots, then follow the store and the decisions about the problem."""
        self._draw(self._dark)
        follow(self._workspace.changed, self._follow)
        follow(self._workspace.incident_service.changed, self._show_marks)
        await self._follow()

    # --- parts ----------------------------------------------------------------------------------------

    def _listed(self) -> ListedProblem:
        (one,) = listed([self._view.problem], self._workspace.incident_service.state)
        return one

    def _show(self) -> None:
        """Show the present state of the problem and the notes on its windows."""
        one = self._listed()
        last_window = self._view.rows[-1]["window"] if self._view.rows else one.problem.latest_window or 0
        self._actions.show(one, last_window)
        notes = self._notes_on(one.problem)
        if (one, notes, self._view.generation) == self._shown:
            return
        self._shown = (one, notes, self._view.generation)
        shade = shown_status(one.problem, one.status, datetime.now(UTC))
        self._card.classes(replace=f"card verdict tone-{TONES[shade]}")
        parts = (
            (self._summary, self._fill_summary),
            (self._facts, self._fill_facts),
            (self._evidence, self._fill_evidence),
            (self._windows, self._fill_windows),
        )
        for part, fill in parts:
            part.clear()
            with part:
                fill(one)
        self._notes.show(notes)

    def _show_marks(self, _: IncidentState) -> None:
        self._show()

    def _fill_summary(self, one: ListedProblem) -> None:
        text = problem_text(one.problem, one.status, one.mark)
        diagnosis = self._view.diagnosis
        label_text(text.status, "div", "eyebrow").mark("problem-status")
        with box("headline", "h1"):
            label_text(text.title, "span")
            if text.steps:
                label_text(f", {text.steps}", "span", "rest")
        with box("why"):
            label_text(f"{text.since[0].upper()}{text.since[1:]}; {text.until}.", "p")
            label_text(" ".join(problem_explanation(one.problem, diagnosis)), "p")
            if text.shared:
                label_text(f"{text.shared[0].upper()}{text.shared[1:]}.", "p").mark("shared")
            label_text(problem_action(one.problem, diagnosis), "p", "action")
            if self._view.reason:
                label_text(f"Its latest window cannot be read: {self._view.reason}", "p", "muted")
            if self._view.missing_rows:
                note = f"Window {one.problem.latest_window}: {self._view.missing_rows}"
                label_text(note, "p", "muted").mark("missing-rows")

    def _fill_facts(self, one: ListedProblem) -> None:
        diagnosis = self._view.diagnosis
        for fact in problem_facts(one.problem, diagnosis):
            with box("fact"):
                defined(fact.title, "div", "eyebrow")
                label_text(fact.value, "div", "value")
                label_text(fact.note, "div", "small")

    def _fill_evidence(self, one: ListedProblem) -> None:
        """Show the independent sources of evidence and the stretches of windows."""
        problem = one.problem
        sources = problem_sources(problem, self._view.diagnosis_about, self._view.agreement)
        with titled("Evidence", sources_summary(sources)), box("grounds", "dl"):
            for source in sources:
                label_text(f"{source.mark} {source.title}", "dt").mark("source")
                label_text(source.text, "dd")
        rows = episode_rows(problem)
        if rows:
            with titled("Episodes", "stretches of windows with this problem, the latest first"):
                data_table(EPISODE_COLUMNS, rows, "first_window").mark("episodes")

    def _fill_windows(self, one: ListedProblem) -> None:
        numbers = one.problem.windows
        with box("toolbar problem-windows"):
            label_text("Windows", "span", "muted")
            for number in numbers[-LISTED_WINDOWS:]:
                page = window_page(WindowKey(one.problem.run_id, number))
                link(str(number), page, "badge").mark("problem-window")
            if len(numbers) > LISTED_WINDOWS:
                left = format.count(len(numbers) - LISTED_WINDOWS)
                label_text(f"and {left} earlier", "span", "muted")
            box("grow")
            link("Run history", run_page(one.problem.run_id), "badge")
            link(".json", f"/problems/{one.problem.id}.json", "badge")

    # --- notes ----------------------------------------------------------------------------------------

    def _notes_on(self, problem: Problem) -> tuple[Note, ...]:
        windows = set(problem.windows)
        found = [
            note
            for note in self._workspace.incident_service.state.notes
            if note.pin is not None
            and note.pin.window.run_id == problem.run_id
            and note.pin.window.window in windows
        ]
        return tuple(found[-LISTED_NOTES:])

    def _build_notes(self) -> None:
        with titled("Notes", "on the windows of this problem"):
            self._text = (
                ui.textarea(placeholder="Observation and next step")
                .props(f"outlined autogrow dense maxlength={MAX_TEXT} aria-label='Text of the note'")
                .mark("new-note")
            )
            with box("actions"):
                label_text("Add note", "button", "button").mark("add-note").on("click", self._write_note)
            self._notes = NoteCards(self._note_card)

    def _note_card(self, note: Note) -> NoteCard:
        return NoteCard(self._workspace.incident_service, self._toolbar, note, _link_pin)

    @one_at_a_time
    async def _write_note(self) -> None:
        problem, content = self._view.problem, self._text.value or ""
        if not content.strip():
            ui.notify("A note needs text", type="warning")
            return
        rank = problem.ranks[0] if problem.kind == "rank" else None
        key = latest_key(problem)
        if key is None:
            ui.notify("A standstill has no window that a note could be pinned to", type="warning")
            return
        pin = Pin(window=key, stage=problem.stage, rank=rank)
        written = await self._toolbar.write(lambda author: [author.write_note(content, pin)], "Note added")
        if written and self._text.value == content:  # Words may have been typed meanwhile.
            self._text.value = ""

    # --- plots ----------------------------------------------------------------------------------------

    def _draw(self, dark: bool) -> None:
        self._dark = dark
        self._timeline.show(self._view.rows, dark)
        judged = self._view.judged
        if judged is None:
            return
        ranks = self._view.problem.ranks if self._view.problem.kind in ("rank", "ranks") else ()
        view = ViewState(ranks=ranks[:8])
        background_tasks.create(self._draw_plot(judged, view, dark), context=self._plot_box)
        if self._view.diagnosis_about is not None and judged is not self._predicted:
            self._predicted = judged
            background_tasks.create(self._predict(judged), context=self._what_if)

    async def _draw_plot(self, judged: JudgedWindow, view: ViewState, dark: bool) -> None:
        figure = await asyncio.to_thread(draw, _first_plot(), judged, None, view, dark=dark)
        if judged is not self._view.judged or dark != self._dark or self._plot_box.is_deleted:
            return
        if self._plot is not None:
            self._plot.redraw(figure)
            return
        with self._plot_box:
            self._plot = FigureCard(figure)

    async def _predict(self, judged: JudgedWindow) -> None:
        """Show the step of the latest window if its likely cause were as fast as on a typical rank."""
        fix = fix_of(judged.diagnosis, None)
        try:
            found = await asyncio.to_thread(self._workspace.what_if, judged, fix)
        except SfappError:
            return  # The window lacks that part, so there is nothing to predict.
        if judged is not self._view.judged or self._what_if.is_deleted:
            return
        text = words.what_if_text(found, judged.diagnosis, judged.window.ranks)
        window = judged.diagnosis.window
        self._what_if.clear()
        with self._what_if, titled("What if", f"predicted for window {window}"):
            label_text(text.sentence, "p").mark("problem-what-if")
            link("Choose another part", window_page(WindowKey(judged.diagnosis.run_id, window)))

    async def _follow(self) -> None:
        """Update the parts of the page whose data changed; a problem that no longer exists stays as it
        was."""
        if self._workspace.store.generation == self._view.generation:
            return
        problem = self._view.problem
        try:
            self._view = await asyncio.to_thread(
                ProblemView.of, self._workspace, problem.id, problem.run_id, self._group
            )
        except WindowNotFoundError as error:
            ui.notify(f"{error}; showing the last state", type="warning")
            return
        self._show()
        self._draw(self._dark)


def _first_plot() -> str:
    """Return the plot of a window with which the overview begins."""
    return next(spec.name for spec, _ in PLOTS.on_tab(OVERVIEW) if spec.source is WindowInput)


def _link_pin(note: Note) -> None:
    assert note.pin is not None
    link(words.pinned(note.pin), window_page(note.pin.window))
