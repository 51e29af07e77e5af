"""``/w/<run>/<window>``: one window with its verdict, its controls and its tabs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from fastapi import Request
from nicegui import background_tasks, events, ui

from sfapp.app.address import run_of
from sfapp.app.connection import connected
from sfapp.app.notices import notices
from sfapp.app.notifications import follow
from sfapp.app.pages.kept_verdict import kept_verdict
from sfapp.app.pages.not_found import missing
from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.panels.change_hints import ChangeHints
from sfapp.app.panels.controls import ControlActions, Controls
from sfapp.app.panels.drawer import controls_drawer, controls_switch
from sfapp.app.panels.neighbours import NeighbourLinks
from sfapp.app.panels.notes_panel import NotesPanel, shown_notes
from sfapp.app.panels.plot_card import Reactions
from sfapp.app.panels.plot_help import PlotHelp
from sfapp.app.panels.report_dialog import report_button
from sfapp.app.panels.role_buttons import RoleButtons
from sfapp.app.panels.run_timeline import RunTimeline
from sfapp.app.panels.stragglers_tab import StragglersPanel
from sfapp.app.panels.tab_bar import TabBar
from sfapp.app.panels.tabs import Item, Panel, compute_items, items_of
from sfapp.app.panels.verdict_card import EvidenceCard, VerdictCard
from sfapp.app.panels.view_model import TabViewModel
from sfapp.app.panels.what_if_panel import WhatIfPanel
from sfapp.app.panels.worked_example import lesson_card
from sfapp.app.routes import Handler
from sfapp.app.theme import Crumb, author_of, box, frame, is_dark, show_address, welcome
from sfapp.app.window_session import WindowSession, judge_fitted
from sfapp.errors import GateError, StoreError, WindowNotFoundError
from sfapp.incidents import IncidentState
from sfapp.model.view import OVERVIEW, STRAGGLERS, WindowKey, parse_query
from sfapp.report.workspace_report import window_report
from sfapp.service.workspace import Workspace
from sfapp.store import WindowQuery
from sfapp.views import format, text
from sfapp.views.address import run_page, window_page
from sfapp.views.glossary import FIRST_GATES
from sfapp.views.selection import aimed_node

WELCOME = (
    "New here? The card names the likely cause and how certain it is. The what-if on the left predicts the "
    "step time after a fix. Move the thresholds below it and watch the verdict change. Each plot explains "
    "how to read it. Press ? for the keys and worked examples."
)

REFERENCES = 200
"""Maximum number of windows offered for comparison: the fastest of the run."""


def build(workspace: Workspace) -> tuple[Handler, ...]:
    """Return the page's handler."""

    async def window_page(request: Request, run_id: str, number: int) -> None:
        key = WindowKey(run_of(request, after=1), number)
        view, messages = parse_query(request.query_params.multi_items())
        generation = workspace.store.generation
        try:
            judged, view, more = await asyncio.to_thread(judge_fitted, workspace, key, view)
        except WindowNotFoundError as error:
            missing(workspace, request, str(error), lambda: judge_fitted(workspace, key, view))
            return
        except StoreError as error:
            await kept_verdict(workspace, request, key, str(error))
            return
        rows = await asyncio.to_thread(workspace.timeline, WindowQuery(key.run_id))
        notes = shown_notes(await workspace.incident_service.shown(), key)
        model = TabViewModel(judged, view, is_dark(request), notes)
        await asyncio.to_thread(_compute_head, model)
        page = WindowPage(workspace, generation, model, rows)
        await page.build(request, [*messages, *more])
        if await connected():
            await page.start()

    return (window_page,)


def _compute_head(model: TabViewModel) -> None:
    """Compute what stands above and beside the tabs, for the model to keep."""
    assert model.verdict is not None
    assert model.straggling_nodes is not None
    if not model.is_large:  # Of a large window they follow when it rests.
        model.changes(FIRST_GATES)


class WindowPage:
    """One open window page: builds its panels and synchronises them with the session and the store."""

    def __init__(
        self,
        workspace: Workspace,
        generation: int,
        model: TabViewModel,
        rows: list[dict[str, Any]],
    ) -> None:
        """
        Args:
            generation: of the store, before anything was read from it.
            rows: the run's windows in order.
        """
        self._workspace = workspace
        self._generation = generation
        self._session = WindowSession(
            workspace, model, redraw=self._redraw, warn=self._warn, run_in_background=self._run_in_background
        )
        self._rows = rows
        self._is_computing = False
        self._panels: dict[str, tuple[ui.element, Panel | StragglersPanel]] = {}

    @property
    def _key(self) -> WindowKey:
        return self._session.key

    @property
    def _model(self) -> TabViewModel:
        return self._session.model

    # --- building -------------------------------------------------------------------------------------

    async def build(self, request: Request, messages: list[str]) -> None:
        """Build the page without its plots, in pieces between which other requests are answered."""
        key, model = self._key, self._model
        self._plot_help = PlotHelp.of(request)
        crumbs = (
            Crumb("Problems", "/"),
            Crumb(f"Run {format.clip(key.run_id)}", run_page(key.run_id)),
            Crumb(f"Window {key.window}", detail=text.extent(model.window)),
        )
        with frame(self._workspace, request, f"window {key.window}", crumbs) as page:
            page.main.classes("with-rail")
            self._build_notes(request)
            await asyncio.sleep(0)
            with page.actions:
                self._neighbour_links = NeighbourLinks()
                report_button(
                    f"window {key.window}", lambda: window_report(self._workspace, key, self._session.view)
                )
            page.dark.on_value_change(lambda event: self._session.set_dark(bool(event.value)))
            with controls_drawer():
                self._what_if = WhatIfPanel(self._workspace, model, self._session.choose_fix)
                await asyncio.sleep(0)
                self._controls = Controls(
                    model.judged, model.view, self._references(), self._control_actions()
                )
            await asyncio.sleep(0)
            with box("content stack"):
                notices(messages)
                if (example := self._workspace.example(key.run_id)) is not None:
                    lesson_card(example, model.judged)
                self._verdict = VerdictCard()
                self._roles = RoleButtons(model.window.ranks, self._session.choose_group)
                welcome(request, WELCOME)
                self._tabs = TabBar(model.window, self._session.change, self._session.next_step)
                with self._tabs.actions:
                    self._notes_panel.buttons()
                    controls_switch()
                self._panel_box = box("panels")
                self._evidence = EvidenceCard()
                self._run_timeline = RunTimeline(key, self._open)
        self._show_verdict()
        await asyncio.sleep(0)
        self._hints = ChangeHints(
            self._panel_box,
            model=lambda: self._model,
            gates=lambda: self._controls.shown_gates,
            compute=lambda model: self._compute(model, resting=True),
            show=self._show_changes,
        )
        if not model.is_large:
            self._hints.show_now()
        self._show_notes()

    def _build_notes(self, request: Request) -> None:
        """Build the floating elements for notes and incidents."""
        incident_service, model = self._workspace.incident_service, self._model
        self._toolbar = AnnotationToolbar(incident_service, author_of(request))
        self._notes_panel = NotesPanel(
            incident_service,
            self._toolbar,
            self._key,
            model.window,
            look=lambda: self._session.view,
            go=self._session.show_pin,
            headline=lambda: text.headline_of(self._model.diagnosis, self._model.window.ranks)[0],
        )

    async def start(self) -> None:
        """Draw the plots once the browser is connected, then follow the store."""
        await self._compute_shown()
        self._show_panel()
        ui.on("address", self._follow_address)
        follow(self._workspace.changed, self._follow)
        follow(self._workspace.incident_service.changed, self._follow_notes)
        self._follow_notes(self._workspace.incident_service.state)
        await self._follow()  # The store may have changed while the browser was loading.
        self._hints.show_soon()

    def _control_actions(self) -> ControlActions:
        session = self._session
        return ControlActions(
            change=session.change,
            hint=lambda: self._hints.show_soon(),
            gate=session.move_gate,
            group=session.choose_group,
            reset=session.reset,
            undo=session.undo,
            copy=lambda: ui.run_javascript("sfapp.copyLink()"),
        )

    def _reactions(self) -> Reactions:
        session = self._session
        return Reactions(
            plot_help=self._plot_help,
            notes_panel=self._notes_panel,
            pick_step=lambda step: session.change(step=step),
            move_gate=self._drag_gate,
            pick_ranks=session.pick_ranks,
            look=session.change,
            zoom=session.zoom,
        )

    def _references(self) -> Mapping[str, str]:
        """Return the windows offered for comparison: those of the run, and a chosen one of another run."""
        others = [row for row in self._rows if row["window"] != self._key.window and row["step_time_ns"]]
        fastest = sorted(others, key=lambda row: row["step_time_ns"])[:REFERENCES]
        offered = {
            str(WindowKey(row["run_id"], row["window"])): (
                f"{row['window']} · {format.duration(row['step_time_ns'])}"
            )
            for row in sorted(fastest, key=lambda row: row["window"])
        }
        chosen = self._session.view.reference
        if chosen is not None:
            offered.setdefault(str(chosen), str(chosen))
        return offered

    # --- actions --------------------------------------------------------------------------------------

    def _drag_gate(self, name: str, value: Any) -> None:
        """Set a gate that was dragged in a plot; report a value out of range."""
        try:
            self._session.move_gate(name, value)
        except GateError as error:
            self._warn(str(error))
            self._show_verdict()

    def _open(self, key: WindowKey) -> None:
        ui.navigate.to(self._session.view.for_next_window().href(window_page(key)))

    def _warn(self, message: str) -> None:
        with self._panel_box:
            ui.notify(message, type="warning")

    def _run_in_background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        background_tasks.create(coroutine, context=self._panel_box)

    # --- showing the session --------------------------------------------------------------------------

    def _redraw(self) -> None:
        """Show the session's verdict and view, once what is shown of a large window was computed."""
        if self._model.is_large:
            self._run_in_background(self._compute_and_draw())
        else:
            self._draw()

    async def _compute_and_draw(self) -> None:
        if not self._is_computing:  # what computes looks for changes at its end
            await self._compute_shown()
            self._draw()

    async def _compute_shown(self) -> None:
        """Compute on a thread what the open tab shows of a large window, until nothing changed meanwhile."""
        self._is_computing = True
        try:
            model = None
            while model is not self._model and self._model.is_large and not self._panel_box.is_deleted:
                model = self._model
                await self._compute(model, resting=model.view.tab not in self._panels)
        finally:
            self._is_computing = False

    async def _compute(self, model: TabViewModel, resting: bool) -> None:
        await asyncio.to_thread(_compute_head, model)
        await asyncio.to_thread(compute_items, self._items(), model, resting)

    def _draw(self) -> None:
        """Show the session's verdict and view in every panel."""
        if self._panel_box.is_deleted:  # The page was closed while it was computed.
            return
        # The element that was clicked may be rebuilt here, so it cannot be the context of what follows.
        with self._panel_box:
            self._show_verdict()
            self._show_panel()
            self._notes_panel.follow()
            self._hints.show_soon()
            show_address(self._session.view.href(window_page(self._key)), self._session.depth)

    def _show_verdict(self) -> None:
        model = self._model
        verdict = model.verdict
        is_overview = model.view.tab == OVERVIEW
        self._verdict.show(verdict, as_line=not is_overview)
        self._roles.show(model.view.group)
        self._evidence.show(verdict)
        self._evidence.set_visible(is_overview)
        self._controls.show(model.judged, model.view, verdict.recorder)
        self._what_if.show(model)
        self._neighbour_links.show(model, [row["window"] for row in self._rows])
        suspect_node = aimed_node(model.diagnosis, model.window.ranks)
        self._tabs.show(model.view, model.straggling_nodes, suspect_node)

    def _show_changes(self) -> None:
        """Show the nearest changes of verdict, and what is drawn at rest only."""
        model = self._model
        changes = model.changes(self._controls.shown_gates)
        self._controls.hint(changes)
        self._evidence.show_changes({name: changes[name] for name in FIRST_GATES})
        if model.view.tab in self._panels:
            self._panels[model.view.tab][1].update(model, resting=True)

    def _show_panel(self) -> None:
        """Show the open tab's panel, built when it is first opened, and hide the others."""
        name = self._session.view.tab
        self._show_run()
        for other, (container, _) in self._panels.items():
            container.set_visibility(other == name)
        if name in self._panels:
            self._panels[name][1].update(self._model)
            return
        with self._panel_box, box() as container:
            panel = self._build_panel(name)
        self._panels[name] = (container, panel)

    def _show_run(self) -> None:
        """Show the timeline of the run below the overview; drawn while hidden, it would have no width."""
        is_overview = self._session.view.tab == OVERVIEW
        self._run_timeline.set_visible(is_overview)
        if is_overview:
            self._run_timeline.show(self._rows, self._model.dark)

    def _items(self) -> Sequence[Item]:
        """Return what the open tab holds; the tab of operators computes its own content."""
        view, many = self._session.view, self._tabs.many_nodes
        return () if view.tab == STRAGGLERS else items_of(view.tab, view.node, many, self._model)

    def _build_panel(self, tab: str) -> Panel | StragglersPanel:
        reactions = self._reactions()
        if tab == STRAGGLERS:
            return StragglersPanel(self._workspace, self._model, reactions, author=lambda: self._toolbar.name)
        return Panel(self._items(), self._model, reactions)

    def _follow_address(self, event: events.GenericEventArguments) -> None:
        """Show the view to which the browser went back or forward."""
        match event.args:
            case [str(query), int(depth)]:
                self._session.show_query(query, depth)

    # --- following notes and the store ----------------------------------------------------------------

    def _follow_notes(self, state: IncidentState) -> None:
        """Show the present notes on the window, on their tab and in the plots."""
        notes = shown_notes(state, self._key)
        if notes == self._model.notes:
            return
        self._session.set_notes(notes)
        self._show_notes()
        if self._model.is_large:
            self._run_in_background(self._compute_and_draw())
        else:
            self._show_panel()

    def _show_notes(self) -> None:
        self._notes_panel.show(self._model.notes)
        self._tabs.count_notes(len(self._model.notes))

    async def _follow(self) -> None:
        """Show the windows that arrived, and judge this one again if its packets or its run changed."""
        before, self._generation = self._generation, self._workspace.store.generation
        if before == self._generation:
            return
        known = {row["window"] for row in self._rows}
        self._rows = await asyncio.to_thread(self._workspace.timeline, WindowQuery(self._key.run_id))
        windows = [row["window"] for row in self._rows]
        self._neighbour_links.show(self._model, windows)
        arrived = [window for window in windows if window not in known]
        if arrived:
            with self._panel_box:
                ui.notify(f"Window{'s' if len(arrived) > 1 else ''} {format.ranges(arrived)} arrived")
        self._show_run()
        await self._session.refresh()
