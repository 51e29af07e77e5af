"""``/compare``: two windows or runs side by side, or three as A/B/A; everything in its address."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from fastapi import Request
from nicegui import background_tasks, ui

from sfapp.accounting import LETTERS, Comparison
from sfapp.app.events import event_of
from sfapp.app.panels.add_to_incident import IncidentPicker
from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.panels.comparison import ComparisonPanel
from sfapp.app.panels.plot_help import ReadingAids
from sfapp.app.panels.run_timeline import open_clicked
from sfapp.app.panels.side_picker import SidePicker, Windows
from sfapp.app.theme import (
    Crumb,
    author_of,
    box,
    empty,
    frame,
    is_dark,
    label_text,
    link,
    notices,
    show_address,
    with_keys,
)
from sfapp.errors import ComparisonError, StoreError, WindowError
from sfapp.model.sides import SIDES, CompareState, SideKey, parse_compare
from sfapp.model.view import ViewState, WindowKey
from sfapp.service.compare import compare_sides
from sfapp.service.workspace import Workspace
from sfapp.views import format, text
from sfapp.views.address import run_page, window_page

ANSWERED = (StoreError, ComparisonError, WindowError)
"""What a comparison may be refused with: said on the page, with the choosers there to ask for another."""


def build(workspace: Workspace) -> None:
    """Register the page."""

    @ui.page("/compare", response_timeout=60)
    async def compare_page(request: Request) -> None:
        state, told = parse_compare(request.query_params.multi_items())
        generation = workspace.store.generation
        found = await asyncio.to_thread(answer, workspace, state)
        page = ComparePage(workspace, generation, state, found, is_dark(request))
        page.build(request, told)
        await ui.context.client.connected()
        await page.start()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the store says to a state.

    Attributes:
        runs: run ids and how they are offered. windows: the same of each side's run.
        found: the comparison; None where there is nothing to compare, or ``refusal`` says why not.
    """

    runs: Mapping[str, str]
    windows: Mapping[str, Windows]
    found: Comparison | None = None
    refusal: str = ""


def answer(workspace: Workspace, state: CompareState) -> Answer:
    """Ask the store for what the state names. Blocking."""
    runs = {run.run_id: format.clip(run.run_id) for run in workspace.store.runs()}
    windows = {name: _windows(workspace, getattr(state, name)) for name in SIDES}
    if not state.is_whole:
        return Answer(runs, windows)
    try:
        return Answer(runs, windows, compare_sides(workspace, state))
    except ANSWERED as error:
        return Answer(runs, windows, refusal=str(error))


def _windows(workspace: Workspace, side: SideKey | None) -> Windows:
    if side is None:
        return {}
    return {
        row["window"]: f"{row['window']} · {format.duration(row['step_time_ns'])}"
        for row in workspace.timeline(side.run_id)
    }


class ComparePage:
    """One open comparison."""

    def __init__(
        self, workspace: Workspace, generation: int, state: CompareState, answer: Answer, dark: bool
    ) -> None:
        self._workspace = workspace
        self._generation = generation
        self._state = state
        self._answer = answer
        self._dark = dark

    # --- building --------------------------------------------------------------------------------------

    def build(self, request: Request, told: list[str]) -> None:
        """The page without its plots."""
        crumbs = (Crumb("Windows", "/"), Crumb("Compare"))
        with frame(self._workspace, request, "compare", crumbs) as page:
            page.dark.on_value_change(lambda event: self._redraw(bool(event.value)))
            incident_service = self._workspace.incident_service
            self._incident_picker = IncidentPicker(
                incident_service, AnnotationToolbar(incident_service, author_of(request))
            )
            with box("stack"):
                notices(told)
                with box("card sides-card", "section"):
                    self._build_choosers()
                self._empty = box("stack")
                self._view = ComparisonPanel(ReadingAids.of(request), self._open)
        self._show_choosers()

    def _build_choosers(self) -> None:
        self._choosers = {
            name: SidePicker(letter, self._picker(name), optional=name == "c")
            for name, letter in zip(SIDES, LETTERS, strict=True)
        }
        with box("toolbar side-actions"):
            swap = with_keys(label_text("A ⇄ B", "button", "key"), label="swap A and B").mark("swap")
            swap.on("click", lambda: self._apply(self._state.swapped()))
            box("grow")
            self._add = with_keys(
                label_text("+ incident", "button", "plain"), "a", "add this comparison to an incident"
            )
            self._add.mark("add-comparison").on("click", self._collect)
            self._json = link(".json", "", "badge").mark("json")
        with box("toolbar judged-as") as self._judged_box:
            self._judged_as = label_text("", "span", "muted")
            defaults = label_text("under the defaults", "button", "plain").mark("defaults")
            defaults.on("click", lambda: self._apply(replace(self._state, view=ViewState())))

    async def start(self) -> None:
        """Show the comparison once the browser is there, then follow the store."""
        self._show()
        event_of(self._workspace.changed).subscribe(self._follow)
        await self._follow()  # what came while the browser was loading

    # --- showing ---------------------------------------------------------------------------------------

    def _show_choosers(self) -> None:
        state = self._state
        for name, chooser in self._choosers.items():
            chooser.show(getattr(state, name), self._answer.runs, self._answer.windows[name])
        judged = state.view.judging.query
        self._judged_as.text = f"judged under {unquote(', '.join(judged.split('&')))}"
        self._judged_box.set_visibility(bool(judged))
        self._json.props["href"] = state.href("/compare.json")
        self._json.set_visibility(state.is_whole)
        self._add.set_visibility(state.is_whole)

    def _show(self) -> None:
        self._empty.clear()
        if self._answer.found is not None:
            self._view.show(
                self._answer.found, [self._page_of(side) for side in self._state.sides], self._dark
            )
            return
        self._view.clear()
        with self._empty, box("card", "section"):
            if self._answer.refusal:
                empty("These cannot be compared", self._answer.refusal)
            else:
                empty(
                    "Choose what to compare",
                    "A is what was before, B what came after; C, if given, should be like A again. "
                    "Each is one window of a run, or all of its windows.",
                )

    def _page_of(self, side: SideKey) -> str:
        """The page of one side alone, judged as here."""
        if side.window is None:
            return run_page(side.run_id)
        return self._state.view.href(window_page(WindowKey(side.run_id, side.window)))

    def _redraw(self, dark: bool) -> None:
        self._dark = dark
        if self._answer.found is not None:
            self._view.draw(self._answer.found, dark)

    # --- what the operator does ------------------------------------------------------------------------

    def _picker(self, name: str) -> Any:
        return lambda side: self._apply(replace(self._state, **{name: side}))

    def _apply(self, state: CompareState) -> None:
        if state == self._state:
            return
        self._state = state
        show_address(state.href())
        background_tasks.create(self._settle(), context=self._empty)

    async def _settle(self) -> None:
        """Read and show the state asked for last."""
        asked = self._state
        found = await asyncio.to_thread(answer, self._workspace, asked)
        if asked == self._state:
            self._answer = found
            self._show_choosers()
            self._show()

    def _collect(self) -> None:
        """Ask into which incident this comparison goes."""
        query, found = self._state.query, self._answer.found
        title = text.comparison(found).headline if found is not None else ""
        self._incident_picker.ask(
            "this comparison", lambda author, incident: [author.add_comparison(incident, query)], title
        )

    def _open(self, point: Mapping[str, Any]) -> None:
        open_clicked(point, lambda key: ui.navigate.to(self._state.view.href(window_page(key))))

    # --- following the store ---------------------------------------------------------------------------

    async def _follow(self) -> None:
        """New packets: the choosers offer them, and a run that grew is compared anew."""
        generation = self._workspace.store.generation
        if generation == self._generation:
            return
        self._generation = generation
        asked, before = self._state, self._answer
        found = await asyncio.to_thread(answer, self._workspace, asked)
        if asked != self._state:
            return
        self._answer = found
        self._show_choosers()
        if (found.found, found.refusal) != (before.found, before.refusal):
            self._show()
