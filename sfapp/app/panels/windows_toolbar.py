"""The filters of the page of windows: they show a view, and report what the user changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from nicegui import ui

from sfapp.app.panels.windows_timeline import AXES, axis_chooser
from sfapp.app.theme import box, label_text, link, set_address, with_keys
from sfapp.app.window_list import ListState
from sfapp.model import LABELS
from sfapp.views import format
from sfapp.views.address import run_page

ALL = ""
"""Value of a chooser without a filter."""

Change = Callable[..., Any]
"""Takes the fields of ``ListState`` that differ."""


class WindowsToolbar:
    """Search, choosers, and links to the listed windows as data."""

    def __init__(
        self, state: ListState, runs: Mapping[str, str], stages: Sequence[str], change: Change
    ) -> None:
        """Build inside the current container.

        Args:
            runs: run ids and their texts. stages: that occur in any window.
        """
        self._state = state
        self._change = change
        self._is_syncing = False
        named = {stage: format.short_stage(stage) for stage in stages}
        labels = {label.name: label.words for label in LABELS.values()}
        with box("toolbar") as self._box:
            self._search = (
                ui.input(
                    placeholder="Search ranks, hosts, stages, labels, numbers",
                    value=state.text or "",
                    on_change=lambda event: self._changed(text=event.value or None),
                )
                .props("dense outlined clearable debounce=250 aria-label='Search windows'")
                .classes("search wide")
                .mark("search")
            )
            with_keys(self._search, "/")
            self._options = {
                "run": {ALL: "all runs", **runs},
                "stage": {ALL: "any stage", **named},
                "label": {ALL: "any label", **labels},
            }
            self._choosers = {
                name: self._chooser(name, options, getattr(state, name))
                for name, options in self._options.items()
            }
            self._attention = ui.switch(
                "Needs attention only",
                value=state.leaves_out_healthy,
                on_change=lambda event: self._changed(needs_attention=event.value or None, min_severity=None),
            )
            self._attention.props("dense").mark("loud")
            self._axis = axis_chooser(state.axis, tuple(AXES), lambda axis: self._changed(axis=axis))
            self._brush = with_keys(label_text("", "button", "badge brushed"), label="Show all windows")
            self._brush.on("click", lambda: change(first=None, last=None)).mark("brushed")
            box("grow")
            self.undo_place = box()
            self._run_link = link("Run history", "/windows", "badge").mark("run-history")
            self._json = link(".json", "/windows.json", "badge")
            self._csv = link(".csv", "/windows.csv", "badge").mark("csv")
        self.show(state)

    def show(self, state: ListState) -> None:
        """Show a view in every control."""
        self._state = state
        with self._quietly():
            self._search.value = state.text or ""
            for name, chooser in self._choosers.items():
                value = getattr(state, name)
                chooser.set_options(_with(self._options[name], value), value=value or ALL)
            self._attention.value = state.leaves_out_healthy
            self._axis.value = state.axis or next(iter(AXES))
        self._brush.text = f"{state.brushed} ✕"
        self._brush.set_visibility(bool(state.brushed))
        query = f"?{state.query}" if state.query else ""
        set_address(self._json, f"/windows.json{query}")
        set_address(self._csv, f"/windows.csv{query}")
        self._run_link.set_visibility(state.run is not None)
        if state.run is not None:
            set_address(self._run_link, run_page(state.run))

    def offer_runs(self, runs: Mapping[str, str]) -> None:
        """Offer other runs."""
        with self._quietly():
            chosen = self._state.run
            self._choosers["run"].set_options(_with({ALL: "all runs", **runs}, chosen), value=chosen or ALL)

    def _chooser(self, name: str, options: Mapping[str, str], value: str | None) -> ui.select:
        shown = _with(options, value)
        return (
            ui.select(
                shown,
                value=value or ALL,
                on_change=lambda event: self._changed(**{name: event.value or None}),
                with_input=name == "run" and len(shown) > 14,
            )
            .props(f"dense outlined options-dense aria-label='{name}'")
            .mark(name)
        )

    def _changed(self, **fields: Any) -> None:
        if not self._is_syncing:
            self._change(**fields)

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Ignore change events while controls are updated: NiceGUI reports programmatic changes too."""
        self._is_syncing = True
        try:
            yield
        finally:
            self._is_syncing = False


def _with(options: Mapping[str, str], value: str | None) -> dict[str, str]:
    """Return the options including the chosen one, whether or not it is in the store."""
    return {**({} if value is None else {value: format.clip(value)}), **options}
