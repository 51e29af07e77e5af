"""Choosing what to compare: a run and one of its windows, or all of them, for each side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import events, ui

from sfapp.app.theme import box, label_text
from sfapp.model.sides import SideKey

WHOLE = -1
"""The window chooser's value for all windows of the run."""

NOTHING = ""
"""The run chooser's value for a side that is left out."""

Windows = Mapping[int, str]
"""What the window chooser offers: a window's number and what is said of it."""


class SidePicker:
    """The run and the window of one side; ``show`` brings it in line without asking for anything."""

    def __init__(self, letter: str, pick: Callable[[SideKey | None], Any], *, optional: bool) -> None:
        """Build it empty.

        Args:
            pick: called with the side that was picked, None where it is left out.
            optional: whether it can be left out.
        """
        self._pick = pick
        self._optional = optional
        self._shown: SideKey | None = None
        name = letter.lower()
        with box("side"):
            label_text(letter, "span", f"side-letter side-{name}")
            self._run = (
                ui.select({}, on_change=self._pick_run, with_input=True)
                .props(f"dense outlined options-dense aria-label='run of {letter}'")
                .classes("run")
                .mark(f"run-{name}")
            )
            self._window = (
                ui.select({}, on_change=self._pick_window, with_input=True)
                .props(f"dense outlined options-dense aria-label='window of {letter}'")
                .classes("window")
                .mark(f"window-{name}")
            )

    def show(self, side: SideKey | None, runs: Mapping[str, str], windows: Windows) -> None:
        """Offer these runs and these windows of the side's run, with the side chosen."""
        self._shown = side
        offered = {NOTHING: "none" if self._optional else "choose a run", **runs}
        if side is not None:
            offered.setdefault(side.run_id, side.run_id)
        self._run.set_options(offered, value=NOTHING if side is None else side.run_id)
        numbers = {WHOLE: "all windows", **windows}
        if side is not None and side.window is not None:
            numbers.setdefault(side.window, f"{side.window}")
        chosen = WHOLE if side is None or side.window is None else side.window
        self._window.set_options(numbers, value=chosen)
        self._window.set_visibility(side is not None)

    def _pick_run(self, event: events.ValueChangeEventArguments[Any]) -> Any:
        run_id = event.value or NOTHING
        shown = NOTHING if self._shown is None else self._shown.run_id
        if run_id == shown:
            return None
        return self._pick(SideKey(run_id) if run_id else None)

    def _pick_window(self, event: events.ValueChangeEventArguments[Any]) -> Any:
        if self._shown is None or event.value is None:
            return None
        window = None if event.value == WHOLE else int(event.value)
        return None if window == self._shown.window else self._pick(SideKey(self._shown.run_id, window))
