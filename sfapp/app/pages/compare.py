"""``/compare``: two windows or runs, or three as A/B/A; the URL holds the whole state."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from fastapi import Request
from nicegui import background_tasks, ui

from sfapp.accounting import LETTERS, Comparison
from sfapp.app.connection import connected
from sfapp.app.notices import notices
from sfapp.app.notifications import follow
from sfapp.app.panels.add_to_incident import IncidentPicker
from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.panels.comparison import ComparisonPanel
from sfapp.app.panels.plot_help import PlotHelp
from sfapp.app.panels.run_timeline import open_clicked
from sfapp.app.panels.side_picker import SidePicker, Windows
from sfapp.app.routes import Handler
from sfapp.app.theme import (
    Crumb,
    author_of,
    box,
    empty,
    frame,
    is_dark,
    label_text,
    link,
    set_address,
    with_keys,
)
from sfapp.app.view_history import UndoableView
from sfapp.errors import ComparisonError, StoreError, WindowError
from sfapp.model.sides import SIDES, CompareState, SideKey, parse_compare
from sfapp.model.view import ViewState, WindowKey
from sfapp.service.compare import compare_sides
from sfapp.service.workspace import Workspace
from sfapp.store import WindowQuery
from sfapp.views import format, text
from sfapp.views.address import run_page, window_page

REFUSALS = (StoreError, ComparisonError, WindowError)
"""Errors of a comparison that the page shows, below the choosers for other sides."""


def build(workspace: Workspace) -> tuple[Handler, ...]:
    """Return the page's handler."""

    async def compare_page(request: Request) -> None:
        state, messages = parse_compare(request.query_params.multi_items())
        generation = workspace.store.generation
        found = await asyncio.to_thread(load_comparison, workspace, state)
        page = ComparePage(workspace, generation, state, found, is_dark(request))
        page.build(request, messages)
        if await connected():
            await page.start()

    return (compare_page,)


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """The choosers' options and the comparison of a state.

    Attributes:
        runs: run ids and their texts in the choosers.
        windows: the windows of each side's run and their texts.
        found: the comparison; None if a side is missing or the comparison was refused.
        refusal: why it was refused.
    """

    runs: Mapping[str, str]
    windows: Mapping[str, Windows]
    found: Comparison | None = None
    refusal: str = ""


def load_comparison(workspace: Workspace, state: CompareState) -> ComparisonResult:
    """Load the sides that a state names and compare them. Blocking."""
    runs = {run.run_id: format.clip(run.run_id) for run in workspace.store.runs()}
    windows = {name: _windows(workspace, getattr(state, name)) for name in SIDES}
    if not state.is_whole:
        return ComparisonResult(runs, windows)
    try:
        return ComparisonResult(runs, windows, compare_sides(workspace, state))
    except REFUSALS as error:
        return ComparisonResult(runs, windows, refusal=str(error))


def _windows(workspace: Workspace, side: SideKey | None) -> Windows:
    if side is None:
        return {}
    return {
        row["window"]: f"{row['window']} · {format.duration(row['step_time_ns'])}"
        for row in workspace.timeline(WindowQuery(side.run_id))
    }


class ComparePage:
    """One open comparison page."""

    def __init__(
        self, workspace: Workspace, generation: int, state: CompareState, result: ComparisonResult, dark: bool
    ) -> None:
        self._workspace = workspace
        self._generation = generation
        self._views = UndoableView(
            state,
            parse=lambda query: parse_compare(query)[0],
            href=lambda view: view.href(),
            show=self._show_view,
        )
        self._result = result
        self._dark = dark

    @property
    def _state(self) -> CompareState:
        return self._views.view

    # --- building --------------------------------------------------------------------------------------

    def build(self, request: Request, messages: list[str]) -> None:
        """Build the page without its plots."""
        crumbs = (Crumb("Problems", "/"), Crumb("Compare"))
        with frame(self._workspace, request, "compare", crumbs) as page:
            page.dark.on_value_change(lambda event: self._redraw(bool(event.value)))
            incident_service = self._workspace.incident_service
            self._incident_picker = IncidentPicker(
                incident_service, AnnotationToolbar(incident_service, author_of(request))
            )
            with box("stack"):
                notices(messages)
                with box("card sides-card", "section"):
                    self._build_choosers()
                self._empty = box("stack")
                self._view = ComparisonPanel(PlotHelp.of(request), self._open)
        self._show_choosers()

    def _build_choosers(self) -> None:
        self._choosers = {
            name: SidePicker(letter, self._picker(name), optional=name == "c")
            for name, letter in zip(SIDES, LETTERS, strict=True)
        }
        with box("toolbar side-actions"):
            swap = with_keys(label_text("A ⇄ B", "button", "key"), label="Swap A and B").mark("swap")
            swap.on("click", lambda: self._views.change(self._state.swapped(), ""))
            box("grow")
            self._add = with_keys(
                label_text("+ Add to incident", "button", "plain"), "a", "Add this comparison to an incident"
            )
            self._add.mark("add-comparison").on("click", self._add_to_incident)
            self._views.button()
            self._json = link(".json", "", "badge").mark("json")
        with box("toolbar judged-as") as self._judged_box:
            self._judged_as = label_text("", "span", "muted")
            defaults = label_text("Use the defaults", "button", "plain").mark("defaults")
            defaults.on("click", self._use_defaults)

    async def start(self) -> None:
        """Show the comparison once the browser is connected, then follow the store."""
        self._show()
        follow(self._workspace.changed, self._follow)
        await self._follow()  # The store may have changed while the browser was loading.

    # --- showing ---------------------------------------------------------------------------------------

    def _show_choosers(self) -> None:
        state = self._state
        for name, chooser in self._choosers.items():
            chooser.show(getattr(state, name), self._result.runs, self._result.windows[name])
        judged = state.view.judging.query
        self._judged_as.text = f"Judged with {unquote(', '.join(judged.split('&')))}"
        self._judged_box.set_visibility(bool(judged))
        set_address(self._json, state.href("/compare.json"))
        self._json.set_visibility(state.is_whole)
        self._add.set_visibility(state.is_whole)

    def _show(self) -> None:
        self._empty.clear()
        if self._result.found is not None:
            self._view.show(
                self._result.found, [self._page_of(side) for side in self._state.sides], self._dark
            )
            return
        self._view.clear()
        with self._empty, box("card", "section"):
            label_text("Compare", "h1", "visually-hidden")
            if self._result.refusal:
                empty("These cannot be compared", self._result.refusal)
            else:
                empty(
                    "Choose what to compare",
                    "A: before the change. B: after it. C (optional): after the fix. "
                    "Each side is one window of a run, or all of its windows.",
                )

    def _page_of(self, side: SideKey) -> str:
        """Return the URL of one side's own page, under this view."""
        if side.window is None:
            return run_page(side.run_id)
        return self._state.view.href(window_page(WindowKey(side.run_id, side.window)))

    def _redraw(self, dark: bool) -> None:
        self._dark = dark
        if self._result.found is not None:
            self._view.draw(self._result.found, dark)

    # --- actions ------------------------------------------------------------------------

    def _picker(self, name: str) -> Any:
        return lambda side: self._views.change(replace(self._state, **{name: side}), name)

    def _use_defaults(self) -> None:
        self._views.change(replace(self._state, view=ViewState()), "view")

    def _show_view(self, _: CompareState) -> None:
        background_tasks.create(self._sync(), context=self._empty)

    async def _sync(self) -> None:
        """Load and show the latest requested state."""
        asked = self._state
        found = await asyncio.to_thread(load_comparison, self._workspace, asked)
        if asked == self._state:
            self._result = found
            self._show_choosers()
            self._show()

    def _add_to_incident(self) -> None:
        """Ask for the incident to add this comparison to."""
        query, found = self._state.query, self._result.found
        title = text.comparison(found).headline if found is not None else ""
        self._incident_picker.ask(
            "this comparison", lambda author, incident: [author.add_comparison(incident, query)], title
        )

    def _open(self, point: Mapping[str, Any]) -> None:
        open_clicked(point, lambda key: ui.navigate.to(self._state.view.href(window_page(key))))

    # --- following the store ---------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Offer new windows in the choosers, and compare runs that changed again."""
        generation = self._workspace.store.generation
        if generation == self._generation:
            return
        self._generation = generation
        asked, previous = self._state, self._result
        found = await asyncio.to_thread(load_comparison, self._workspace, asked)
        if asked != self._state:
            return
        self._result = found
        self._show_choosers()
        if (found.found, found.refusal) != (previous.found, previous.refusal):
            self._show()
