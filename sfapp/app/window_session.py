"""State of one open window page: the view, its verdict, and the changes that can be undone."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Coroutine
from dataclasses import fields, replace
from typing import Any

from sfapp.app.panels.note_target import view_of_pin
from sfapp.app.panels.plot_card import Axes
from sfapp.app.panels.view_model import TabViewModel
from sfapp.app.view_history import ViewHistory
from sfapp.errors import StoreError, WindowError
from sfapp.model import Fix
from sfapp.model.incidents import Note, Pin
from sfapp.model.view import ViewState, WindowKey, parse_query
from sfapp.service.judging import JudgedWindow
from sfapp.service.missing_rows import missing_rows_note
from sfapp.service.workspace import Workspace


def judge_fitted(
    workspace: Workspace, key: WindowKey, view: ViewState
) -> tuple[JudgedWindow, ViewState, list[str]]:
    """Judge a window under the supported part of a view. Blocking.

    Returns:
        The verdict, its view, and one message for each part of the view that was replaced.

    Raises:
        StoreError: the window is not in the store, or its packets cannot be read.
        WindowError: the window cannot be judged.
    """
    source = workspace.source(key)
    window = workspace.window(source)
    view, messages = view.fitted(window)
    if note := missing_rows_note(workspace.store_of(key.run_id), window):
        messages.insert(0, note)
    if view.reference is not None and not workspace.has(view.reference):
        messages.append(f"There is no window {view.reference} to compare with; using the run's healthy one.")
        view = replace(view, reference=None)
    try:
        return workspace.judge(source, view), view, messages
    except WindowError as error:
        if view.baseline == ViewState().baseline:
            raise
        messages.append(f"Baseline: {error}. Using the cohort's median.")
        view = replace(view, baseline=ViewState().baseline)
        return workspace.judge(source, view), view, messages


class WindowSession:
    """The view of one open window and the verdict that belongs to it.

    A change of gates or of the frontier is judged at once from the existing measures. Changes of group,
    baseline or reference, and changed packets, are measured on a thread. A measured result is stored only if
    it belongs to the current request: later changes are applied to it or measured again.

    Attributes:
        model: content of the page: the verdict, its view, the theme and the notes.
    """

    def __init__(
        self,
        workspace: Workspace,
        model: TabViewModel,
        *,
        redraw: Callable[[], None],
        warn: Callable[[str], None],
        run_in_background: Callable[[Coroutine[Any, Any, None]], Any],
    ) -> None:
        """
        Args:
            redraw: called after the verdict or its view changed.
            warn: called with a message for the user.
            run_in_background: starts a coroutine on the page's event loop.
        """
        self.model = model
        self._workspace = workspace
        self._redraw = redraw
        self._warn = warn
        self._run_in_background = run_in_background
        self._history: ViewHistory[ViewState] = ViewHistory()
        self._measured_view = model.view
        self._drawn = self._drawn_state()
        self._is_measuring = False
        self._must_refresh = False

    @property
    def view(self) -> ViewState:
        """The current view."""
        return self.model.view

    @property
    def key(self) -> WindowKey:
        """The run and number of the window."""
        return self.model.judged.source.key

    @property
    def depth(self) -> int:
        """How many changes can be undone."""
        return self._history.depth

    # --- changes by the user --------------------------------------------------------------------------

    def change(self, **changes: Any) -> None:
        """Change fields of the view."""
        self.apply(replace(self.view, **changes), ",".join(changes))

    def move_gate(self, name: str, value: Any) -> None:
        """Set one gate.

        Raises:
            GateError: the value is out of range; the view does not change.
        """
        self.apply(self.view.with_gate(name, value), name)

    def pick_ranks(self, listed: str) -> None:
        """Highlight the ranks in a comma-separated list of numbers."""
        compact = "".join(listed.split()).strip(",")
        asked, messages = parse_query([("ranks", compact)] if compact else [])
        view, more = replace(self.view, ranks=asked.ranks).fitted(self.model.window)
        for message in (*messages, *more):
            self._warn(message)
        self.apply(view, "ranks")

    def choose_group(self, group: str) -> None:
        """Judge one group of ranks; report if the window does not have it."""
        view, messages = replace(self.view, group=group).fitted(self.model.window)
        for message in messages:
            self._warn(message)
        if not messages:
            self.apply(view, "group")

    def choose_fix(self, fix: Fix | None) -> None:
        """Set the part that the what-if makes typical; the likely cause if None or not in the window."""
        view, messages = replace(self.view, fix=fix).fitted(self.model.window)
        for message in messages:
            self._warn(message)
        self.apply(view, "fix")

    def zoom(self, plot: str, axes: Axes) -> None:
        """Zoom a plot; an axis without a range shows all of it."""
        self.apply(self.view.zoomed(plot, axes), f"zoom {plot}")

    def next_step(self, by: int) -> None:
        """Show the step ``by`` places on; from the window's mean, its first or its last step."""
        steps = self.model.window.step_N.tolist()
        if self.view.step is None:
            place = 0 if by > 0 else len(steps) - 1
        else:
            # The window may have lost this step meanwhile.
            place = bisect_right(steps, self.view.step) - 1 if by > 0 else bisect_left(steps, self.view.step)
            place = min(max(place + by, 0), len(steps) - 1)
        self.change(step=steps[place])

    def show_pin(self, pin: Pin) -> None:
        """Show a note's pin: its plot, zoom, step and rank."""
        window = self.model.window
        ranks = window.ranks
        node = ranks.node_rank[ranks.rank.index(pin.rank)] if pin.rank in ranks.rank else ranks.nodes[0]
        view, messages = view_of_pin(pin, self.view, node).fitted(window)
        for message in messages:
            self._warn(message)
        self.apply(view, "note")

    def reset(self) -> None:
        """Set every control to its default; tab and step do not change."""
        self.apply(ViewState(tab=self.view.tab, step=self.view.step), "reset")

    def undo(self) -> None:
        """Undo the last change."""
        before = self._history.undo()
        if before is None:
            self._warn("Nothing to undo")
        else:
            self._sync(before)

    def show_query(self, query: str, depth: int) -> None:
        """Show the view of an address to which the browser went back or forward.

        Args:
            depth: number of changes that could be undone when it was shown.
        """
        view, _ = parse_query(query)
        view, _ = view.fitted(self.model.window)
        self._history.move_to(depth, self.view)
        if view != self.view:
            self._sync(view)

    def apply(self, view: ViewState, name: str) -> None:
        """Change to a view; successive changes with the same name are undone together."""
        if view == self.view:
            return
        self._history.record(self.view, name)
        self._sync(view)

    # --- changes from elsewhere -----------------------------------------------------------------------

    def set_dark(self, dark: bool) -> None:
        """Switch the theme."""
        self.model = replace(self.model, dark=dark)
        self._redraw()

    def set_notes(self, notes: tuple[Note, ...]) -> None:
        """Set the notes on the window."""
        self.model = replace(self.model, notes=notes)

    async def refresh(self) -> None:
        """Judge the window again with its present packets and run."""
        self._must_refresh = True
        if not self._is_measuring:
            await self._measure()

    # --- judging --------------------------------------------------------------------------------------

    def _sync(self, view: ViewState) -> None:
        """Judge under a view: at once if only gates changed, otherwise on a thread."""
        has_same_verdict = view.judging == self.view.judging
        self.model = replace(self.model, view=view)
        if not _needs_measuring(self._measured_view, view):
            if not has_same_verdict:
                self.model = replace(self.model, judged=self._workspace.rejudge(self.model.judged, view))
            self._draw()
        elif not self._is_measuring:
            self._run_in_background(self._measure())

    async def _measure(self) -> None:
        """Measure until the result belongs to the current request."""
        if self._is_measuring:
            return
        self._is_measuring = True
        try:
            while not await self._measure_once():
                pass
        finally:
            self._is_measuring = False

    async def _measure_once(self) -> bool:
        """Measure for the current view; return False if another one was requested meanwhile."""
        asked, refresh = self.view, self._must_refresh
        self._must_refresh = False
        found: tuple[JudgedWindow, ViewState, list[str]] | StoreError | WindowError
        try:
            if refresh:
                found = await asyncio.to_thread(judge_fitted, self._workspace, self.key, asked)
            else:
                source = self.model.judged.source
                found = await asyncio.to_thread(self._workspace.judge, source, asked), asked, []
        except (StoreError, WindowError) as error:
            found = error
        if self._must_refresh or _needs_measuring(asked, self.view):
            self._must_refresh |= refresh
            return False
        if isinstance(found, Exception):
            self._warn(f"{found}; showing the previous result")
            self._restore_measured()
        else:
            judged, fitted, messages = found
            for message in messages:
                self._warn(message)
            self._store(judged, asked, fitted)
            if refresh and self._drawn_state() == self._drawn:
                return True  # The measures were replaced; the page does not change.
        self._draw()
        return True

    def _store(self, judged: JudgedWindow, asked: ViewState, fitted: ViewState) -> None:
        """Store a measured result under the current view.

        Args:
            asked: the view at the start of measuring.
            fitted: the part of it that the window supports.
        """
        replaced = {
            field.name: getattr(fitted, field.name)
            for field in fields(ViewState)
            if getattr(fitted, field.name) != getattr(asked, field.name)
        }
        view = replace(self.view, **replaced)
        if view != fitted:  # Gates or the frontier were changed meanwhile.
            judged = self._workspace.rejudge(judged, view)
        self.model = replace(self.model, judged=judged, view=view)
        self._measured_view = view

    def _restore_measured(self) -> None:
        """Return to the group, baseline and reference of the last measurement; gates do not change."""
        last = self._measured_view
        view = replace(self.view, group=last.group, baseline=last.baseline, reference=last.reference)
        judged = self._workspace.rejudge(self.model.judged, view)
        self.model = replace(self.model, judged=judged, view=view)

    def _draw(self) -> None:
        self._drawn = self._drawn_state()
        self._redraw()

    def _drawn_state(self) -> tuple[object, ...]:
        judged = self.model.judged
        return judged.diagnosis, judged.source, judged.reference, self.model.view


def _needs_measuring(before: ViewState, after: ViewState) -> bool:
    """Return whether two views differ in measures or reference, and not only in gates."""
    return (before.group, before.baseline, before.reference) != (after.group, after.baseline, after.reference)
