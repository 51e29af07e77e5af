"""The choosers of one side of a comparison: a run, and one of its windows or all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import events, ui

from sfapp.app.theme import box, label_text
from sfapp.model.sides import SideKey

ALL_WINDOWS = -1
"""Value of the window chooser for all windows of the run."""

NO_RUN = ""
"""Value of the run chooser for a side that is left out."""

Windows = Mapping[int, str]
"""Options of the window chooser: texts by window number."""


class SidePicker:
    """Choosers of the run and the window of one side."""

    def __init__(self, letter: str, pick: Callable[[SideKey | None], Any], *, optional: bool) -> None:
        """Build the choosers empty, inside the current container.

        Args:
            pick: called with the chosen side, None if it is left out.
            optional: whether the side can be left out.
        """
        self._pick = pick
        self._optional = optional
        self._side: SideKey | None = None
        name = letter.lower()
        with box("side"):
            label_text(letter, "span", f"side-letter side-{name}")
            self._run = (
                ui.select({}, on_change=self._pick_run, with_input=True)
                .props(f"dense outlined options-dense aria-label='Run of {letter}'")
                .classes("run")
                .mark(f"run-{name}")
            )
            self._window = (
                ui.select({}, on_change=self._pick_window, with_input=True)
                .props(f"dense outlined options-dense aria-label='Window of {letter}'")
                .classes("window")
                .mark(f"window-{name}")
            )

    def show(self, side: SideKey | None, runs: Mapping[str, str], windows: Windows) -> None:
        """Offer the runs, and the windows of the side's run, with the side chosen."""
        self._side = side
        offered = {NO_RUN: "none" if self._optional else "choose a run", **runs}
        if side is not None:
            offered.setdefault(side.run_id, side.run_id)
        self._run.set_options(offered, value=NO_RUN if side is None else side.run_id)
        numbers = {ALL_WINDOWS: "all windows", **windows}
        if side is not None and side.window is not None:
            numbers.setdefault(side.window, f"{side.window}")
        chosen = ALL_WINDOWS if side is None or side.window is None else side.window
        self._window.set_options(numbers, value=chosen)
        self._window.set_visibility(side is not None)

    def _pick_run(self, event: events.ValueChangeEventArguments[Any]) -> Any:
        run_id = event.value or NO_RUN
        shown = NO_RUN if self._side is None else self._side.run_id
        if run_id == shown:
            return None
        return self._choose(SideKey(run_id) if run_id else None)

    def _pick_window(self, event: events.ValueChangeEventArguments[Any]) -> Any:
        if self._side is None or event.value is None:
            return None
        window = None if event.value == ALL_WINDOWS else int(event.value)
        return None if window == self._side.window else self._choose(SideKey(self._side.run_id, window))

    def _choose(self, side: SideKey | None) -> Any:
        """Report the choice, which counts at once: the next one may come before the comparison is shown."""
        self._side = side
        return self._pick(side)
