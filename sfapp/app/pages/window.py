"""``/w/<run>/<window>``: one window, its verdict, its controls, its tabs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastapi import Request
from nicegui import background_tasks, ui

from sfapp.accounting import nearest_changes
from sfapp.app.address import run_of, run_page, window_page
from sfapp.app.pages.not_found import missing
from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.panels.controls import FIRST_GATES, ControlActions, Controls
from sfapp.app.panels.neighbours import NeighbourLinks, Neighbours
from sfapp.app.panels.note_target import looked_at
from sfapp.app.panels.notes_panel import NotesPanel
from sfapp.app.panels.plot_card import Axes, Reactions
from sfapp.app.panels.plot_help import ReadingAids
from sfapp.app.panels.report_dialog import report_button
from sfapp.app.panels.run_timeline import RunTimeline
from sfapp.app.panels.stragglers_tab import StragglersPanel
from sfapp.app.panels.tab_bar import TabBar
from sfapp.app.panels.tabs import Panel, items_of
from sfapp.app.panels.verdict_card import VerdictCard
from sfapp.app.panels.view_model import TabViewModel
from sfapp.app.panels.worked_example import lesson_card
from sfapp.app.reporting import window_report
from sfapp.app.theme import Crumb, author_of, box, first_time, frame, is_dark, notices, show_address
from sfapp.app.workspace import Judged, Workspace
from sfapp.errors import GateError, StoreError, WindowError, WindowNotFoundError
from sfapp.incidents import Book
from sfapp.model.incidents import Pin
from sfapp.model.view import STRAGGLERS, ViewState, WindowKey, parse_query
from sfapp.views import figures, format, text

FIRST_TIME = (
    "New here? The card says where to aim a profiler, and how sure that is. Move the gates on the left "
    "and watch it change. Plots say how to read them; ? lists the keys, and has examples to learn from."
)

REFERENCES = 200
"""Windows offered for comparison: the fastest of the run."""

HINT_PAUSE = 0.04
"""Seconds of rest before the hints beside the gates are worked out."""

UNDO_PAUSE = 1.0
"""Moves of one control less than this many seconds apart are undone together: a drag is one change."""


def build(workspace: Workspace) -> None:
    """Register the page."""

    @ui.page("/w/{run_id:path}/{number:int}", response_timeout=60)
    async def window_page(request: Request, run_id: str, number: int) -> None:
        key = WindowKey(run_of(request, after=1), number)
        view, told = parse_query(request.query_params.multi_items())
        generation = workspace.store.generation
        try:
            judged, view, more = await asyncio.to_thread(_open, workspace, key, view)
        except WindowNotFoundError as error:
            missing(workspace, request, str(error), lambda: _open(workspace, key, view))
            return
        except StoreError as error:
            missing(workspace, request, str(error))
            return
        rows = await asyncio.to_thread(workspace.timeline, key.run_id)
        beside = await asyncio.to_thread(workspace.neighbours, key)
        await workspace.ledger.current()
        page = WindowPage(workspace, generation, judged, view, rows, beside, is_dark(request))
        page.build(request, [*told, *more])
        await ui.context.client.connected()
        await page.start()


def _open(workspace: Workspace, key: WindowKey, view: ViewState) -> tuple[Judged, ViewState, list[str]]:
    """The window under the asked view, or under as much of it as it has. Blocking."""
    source = workspace.source(key)
    view, told = view.fitted(workspace.window(source))
    if view.reference is not None and not workspace.has(view.reference):
        told.append(f"There is no window {view.reference} to compare with; using the run's healthy one.")
        view = replace(view, reference=None)
    try:
        return workspace.judge(source, view), view, told
    except WindowError as error:
        told.append(f"Baseline: {error}. Using the cohort's median.")
        view = replace(view, baseline="cohort_median")
        return workspace.judge(source, view), view, told


class WindowPage:
    """One open window page: its view, and everything on it that follows the view."""

    def __init__(
        self,
        workspace: Workspace,
        generation: int,
        judged: Judged,
        view: ViewState,
        rows: list[dict[str, Any]],
        beside: Neighbours,
        dark: bool,
    ) -> None:
        """A page of what was read from the store at a generation.

        Args:
            rows: the run's windows in order.
            beside: the numbers of the windows before and after this one.
        """
        self._workspace = workspace
        self._generation = generation
        self._beside = beside
        self._scene = TabViewModel(judged, view, dark, workspace.ledger.book.notes_on(judged.source.key))
        self._rows = rows
        self._undo: list[ViewState] = []
        self._last_change: tuple[str, float] = ("", 0.0)
        self._walking = False
        self._hints_due: asyncio.TimerHandle | None = None
        self._panels: dict[str, tuple[ui.element, Panel | StragglersPanel]] = {}

    @property
    def view(self) -> ViewState:
        """What is looked at now."""
        return self._scene.view

    @property
    def key(self) -> WindowKey:
        return self._scene.judged.source.key

    # --- building -------------------------------------------------------------------------------------

    def build(self, request: Request, told: list[str]) -> None:
        """The page without its plots: verdict and controls are there at once."""
        window = self._scene.window
        self._aids = ReadingAids.of(request)
        crumbs = (
            Crumb("windows", "/"),
            Crumb(f"run {format.clip(self.key.run_id)}", run_page(self.key.run_id)),
            Crumb(
                f"window {self.key.window}",
                detail=text.extent(window),
            ),
        )
        with frame(self._workspace, request, f"window {self.key.window}", crumbs) as page:
            page.main.classes("with-rail")
            self._toolbar = AnnotationToolbar(self._workspace.ledger, author_of(request))
            self._notes_panel = NotesPanel(
                self._workspace.ledger,
                self._toolbar,
                self.key,
                window,
                look=lambda: self.view,
                go=self._look_at,
                headline=lambda: text.headline_of(self._scene.diagnosis, window.ranks)[0],
            )
            with page.beside:
                self._neighbours = NeighbourLinks()
                report_button(
                    f"window {self.key.window}", lambda: window_report(self._workspace, self.key, self.view)
                )
            self._neighbours.show(self._scene, self._beside)
            page.dark.on_value_change(lambda event: self._redraw(dark=bool(event.value)))
            with box("rail", "aside") as rail:
                rail.props["aria-label"] = "controls"
                self._controls = Controls(self._scene.judged, self.view, self._references(), self._asks())
            with box("content stack"):
                notices(told)
                first_time(request, FIRST_TIME)
                example = self._workspace.example(self.key.run_id)
                if example is not None:
                    lesson_card(example, self._scene.judged)
                self._verdict = VerdictCard()
                self._strip = RunTimeline(self.key, self._open)
                self._tabs = TabBar(window, self.change, self.walk)
                with self._tabs.beside:
                    self._notes_panel.buttons()
                self._panel_box = box("panels")
        self._show_verdict()
        self._show_hints()
        self._show_notes()

    async def start(self) -> None:
        """Draw the plots once the browser is there, then follow the store."""
        self._strip.show(self._rows, self._scene.dark)
        self._show_panel()
        self._workspace.changed.subscribe(self._follow)
        self._workspace.ledger.changed.subscribe(self._follow_notes)
        self._follow_notes(self._workspace.ledger.book)
        await self._follow()  # what came while the browser was loading

    def _asks(self) -> ControlActions:
        return ControlActions(
            change=self.change,
            hint=self._show_hints_soon,
            gate=self.move_gate,
            reset=self.reset,
            undo=self.undo,
            copy=self.copy_link,
        )

    def _reactions(self) -> Reactions:
        return Reactions(
            aids=self._aids,
            notes_panel=self._notes_panel,
            pick_step=lambda step: self.change(step=step),
            move_gate=self.move_gate,
            pick_ranks=self.pick_ranks,
            look=self.change,
            zoom=self.zoom,
        )

    def _references(self) -> Mapping[str, str]:
        """Windows of the run that can be compared with, and the picked one of another run."""
        others = [row for row in self._rows if row["window"] != self.key.window and row["step_time_ns"]]
        fastest = sorted(others, key=lambda row: row["step_time_ns"])[:REFERENCES]
        found = {
            str(
                WindowKey(row["run_id"], row["window"])
            ): f"{row['window']} · {format.duration(row['step_time_ns'])}"
            for row in sorted(fastest, key=lambda row: row["window"])
        }
        if self.view.reference is not None:
            found.setdefault(str(self.view.reference), str(self.view.reference))
        return found

    # --- what the operator does -----------------------------------------------------------------------

    def change(self, **fields: Any) -> None:
        """Look at something else; ``fields`` are those of ``ViewState``."""
        self._apply(replace(self.view, **fields), ",".join(fields))

    def move_gate(self, name: str, value: Any) -> None:
        """Move one gate; out of range, say so and stay."""
        try:
            view = self.view.with_gate(name, value)
        except GateError as error:
            ui.notify(f"{error}", type="warning")
            self._show_verdict()
            return
        self._apply(view, name)

    def pick_ranks(self, listed: str) -> None:
        """Pick ranks out by their numbers."""
        compact = "".join(listed.split()).strip(",")
        asked, told = parse_query([("ranks", compact)] if compact else [])
        view, more = replace(self.view, ranks=asked.ranks).fitted(self._scene.window)
        for message in (*told, *more):
            ui.notify(message, type="warning")
        self._apply(view, "ranks")

    def zoom(self, plot: str, axes: Axes) -> None:
        """Look at a part of a plot, or at all of it again."""
        self._apply(self.view.zoomed(plot, axes), f"zoom {plot}")

    def walk(self, by: int) -> None:
        """The next or previous step; from the mean, the first or the last."""
        steps = self._scene.window.step_N.tolist()
        if self.view.step is None:
            place = 0 if by > 0 else len(steps) - 1
        else:
            place = min(max(steps.index(self.view.step) + by, 0), len(steps) - 1)
        self.change(step=steps[place])

    def reset(self) -> None:
        """All controls back to their defaults; tab and step stay."""
        self._apply(ViewState(tab=self.view.tab, step=self.view.step), "reset")

    def undo(self) -> None:
        """Take the last change back."""
        if not self._undo:
            ui.notify("nothing to undo")
            return
        view = self._undo.pop()
        self._last_change = ("", 0.0)
        self._settle(view)

    def copy_link(self) -> None:
        """The address of this view, into the clipboard."""
        ui.run_javascript("sfapp.copyLink()")

    def _look_at(self, pin: Pin) -> None:
        """Look at what a note is pinned to: its plot, as much of it as was zoomed, its step, its rank."""
        window = self._scene.window
        ranks = window.ranks
        node = ranks.node_rank[ranks.rank.index(pin.rank)] if pin.rank in ranks.rank else ranks.nodes[0]
        view, told = looked_at(pin, self.view, node).fitted(window)
        for message in told:
            ui.notify(message, type="warning")
        self._apply(view, "note")

    def _open(self, key: WindowKey) -> None:
        ui.navigate.to(self.view.for_next_window().href(window_page(key)))

    # --- following the view ---------------------------------------------------------------------------

    def _apply(self, view: ViewState, what: str) -> None:
        if view == self.view:
            return
        now = time.monotonic()
        name, at = self._last_change
        if name != what or now - at > UNDO_PAUSE:
            self._undo.append(self.view)
        self._last_change = (what, now)
        self._settle(view)

    def _settle(self, view: ViewState) -> None:
        """Bring the page to a view: at once where only gates moved, else as soon as the matrix was walked."""
        before = self.view
        self._scene = replace(self._scene, view=view)
        if self._walking or _needs_matrix(before, view):
            if not self._walking:
                self._walking = True
                background_tasks.create(self._walk_matrix(before), context=self._panel_box)
            return
        judged = self._workspace.judge_cached(self._scene.judged, view)
        self._scene = replace(self._scene, judged=judged)
        self._redraw()

    async def _walk_matrix(self, before: ViewState) -> None:
        """Measure for the view asked for, or what replaced it meanwhile; failing, back to ``before``."""
        try:
            while True:
                asked = self.view
                judged = await asyncio.to_thread(self._workspace.judge, self._scene.judged.source, asked)
                if asked == self.view:
                    break
            self._scene = replace(self._scene, judged=judged)
        except (WindowError, StoreError) as error:
            ui.notify(f"{error}", type="warning")
            self._scene = replace(self._scene, view=before)
        finally:
            self._walking = False
        self._redraw()

    def _redraw(self, dark: bool | None = None) -> None:
        if dark is not None:
            self._scene = replace(self._scene, dark=dark)
            self._strip.show(self._rows, self._scene.dark)
        # What was clicked may be built anew by this, and is then no place to go on from.
        with self._panel_box:
            self._show_verdict()
            self._show_panel()
            self._notes_panel.follow()
            self._show_hints_soon()
            show_address(self.view.href(window_page(self.key)))

    def _show_verdict(self) -> None:
        scene = self._scene
        verdict = text.verdict(scene.diagnosis, scene.window.ranks)
        self._verdict.show(verdict)
        self._controls.show(scene.judged, self.view, verdict.recorder)
        self._neighbours.show(self._scene, self._beside)
        marked = figures.straggling_nodes(scene.measures, scene.diagnosis)
        self._tabs.show(self.view, marked, _aimed_node(scene))

    def _show_hints_soon(self) -> None:
        """The nearest changes take several judgements: they follow the verdict, once a drag rests."""
        if self._hints_due is not None:
            self._hints_due.cancel()
        self._hints_due = asyncio.get_running_loop().call_later(HINT_PAUSE, self._show_hints)

    def _show_hints(self) -> None:
        if self._panel_box.is_deleted:  # the page was left meanwhile
            return
        scene = self._scene
        found = nearest_changes(scene.measures, scene.diagnosis, self._controls.shown_gates)
        changes = text.changes(found, scene.diagnosis)
        self._controls.hint(changes)
        self._verdict.show_changes({name: changes[name] for name in FIRST_GATES})
        if scene.view.tab in self._panels:
            self._panels[scene.view.tab][1].update(scene, resting=True)

    def _show_panel(self) -> None:
        """The open tab's panel: built on first show, else brought up to date; the others hidden."""
        name = self.view.tab
        for other, (container, _) in self._panels.items():
            container.set_visibility(other == name)
        if name in self._panels:
            self._panels[name][1].update(self._scene)
            return
        with self._panel_box, box() as container:
            panel = self._built(name)
        self._panels[name] = (container, panel)

    def _built(self, tab: str) -> Panel | StragglersPanel:
        if tab == STRAGGLERS:
            return StragglersPanel(
                self._workspace, self._scene, self._reactions(), author=lambda: self._toolbar.name
            )
        return Panel(items_of(tab, self.view.node, self._tabs.many_nodes), self._scene, self._reactions())

    # --- following what people write ------------------------------------------------------------------

    def _follow_notes(self, book: Book) -> None:
        """Notes came or went: on their tab, and where they are pinned."""
        notes = book.notes_on(self.key)
        if notes == self._scene.notes:
            return
        self._scene = replace(self._scene, notes=notes)
        self._show_notes()
        self._show_panel()

    def _show_notes(self) -> None:
        self._notes_panel.show(self._scene.notes)
        self._tabs.count_notes(len(self._scene.notes))

    # --- following the store --------------------------------------------------------------------------

    async def _follow(self) -> None:
        """New packets: the strip grows, the verdict follows its window and its reference."""
        generation = self._workspace.store.generation
        if generation == self._generation:
            return
        self._generation = generation
        known = {row["window"] for row in self._rows}
        self._rows = await asyncio.to_thread(self._workspace.timeline, self.key.run_id)
        self._beside = await asyncio.to_thread(self._workspace.neighbours, self.key)
        self._neighbours.show(self._scene, self._beside)
        arrived = [row["window"] for row in self._rows if row["window"] not in known]
        if arrived:
            what = format.ranges(arrived)
            ui.notify(f"window{'s' if len(arrived) > 1 else ''} {what} arrived")
        self._strip.show(self._rows, self._scene.dark)
        try:
            source = await asyncio.to_thread(self._workspace.source, self.key)
        except StoreError as error:
            ui.notify(f"{error}; showing it as it was", type="warning")
            return
        judged = await asyncio.to_thread(self._workspace.judge, source, self.view)
        shown = self._scene.judged
        # Kept even where nothing shown differs: what the run's others measured counts once a gate is moved.
        self._scene = replace(self._scene, judged=judged)
        if (judged.diagnosis, judged.source) != (shown.diagnosis, shown.source):
            self._redraw()


def _needs_matrix(before: ViewState, after: ViewState) -> bool:
    """Whether two views differ in more than gates: in what is measured, or compared with."""
    return (before.group, before.baseline, before.reference) != (after.group, after.baseline, after.reference)


def _aimed_node(scene: TabViewModel) -> int | None:
    """The node of the rank that the verdict aims at."""
    aim, ranks = scene.diagnosis.aim, scene.window.ranks
    if aim is None or aim.rank is None or aim.rank not in ranks.rank:
        return None
    return ranks.node_rank[ranks.rank.index(aim.rank)]
