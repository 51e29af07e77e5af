"""Search, order and filters of the list of problems, and links to it as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nicegui import ui

from sfapp.app.panels.windows_timeline import AXES, axis_chooser
from sfapp.app.theme import box, label_text, link, set_address, with_keys
from sfapp.service.problem_query import ORDERS, ProblemQuery
from sfapp.views import format

_FIRST_ORDER, _FIRST_AXIS = next(iter(ORDERS)), next(iter(AXES))


class ProblemsToolbar:
    """The controls above the list: they show a view, and report what the user changes."""

    def __init__(
        self,
        query: ProblemQuery,
        axis: str | None,
        change: Callable[..., Any],
        choose_axis: Callable[[str | None], Any],
    ) -> None:
        """Build inside the current container.

        Args:
            change: takes the fields of ``ProblemQuery`` that differ.
            choose_axis: takes the axis of the timeline.
        """
        self._change = change
        self._is_syncing = False
        with box("toolbar"):
            self._search = (
                ui.input(
                    placeholder="Search ranks, hosts, stages, runs",
                    value=query.text or "",
                    on_change=lambda event: self._changed(text=event.value or None),
                )
                .props("dense outlined clearable debounce=250 aria-label='Search problems'")
                .classes("search")
                .mark("search")
            )
            with_keys(self._search, "/")
            self._sort = ui.select(
                dict(ORDERS),
                value=query.sort or _FIRST_ORDER,
                on_change=lambda event: self._changed(
                    sort=None if event.value == _FIRST_ORDER else event.value
                ),
            )
            self._sort.props("dense outlined options-dense aria-label='Order of problems'").mark("sort")
            self._ongoing = ui.switch(
                "Not ended only",
                value=query.ongoing,
                on_change=lambda event: self._changed(ongoing=event.value),
            )
            self._ongoing.props("dense").mark("ongoing")
            self._run = label_text("", "button", "badge brushed").mark("run-filter")
            self._run.on("click", lambda: change(run=None))
            box("grow")
            self.undo_place = box()
            self._axis = axis_chooser(
                axis, ("window", "time"), lambda chosen: None if self._is_syncing else choose_axis(chosen)
            )
            self._json = link(".json", "/problems.json", "badge").mark("json")
            self._csv = link(".csv", "/problems.csv", "badge").mark("csv")
        self.show(query, axis)

    def show(self, query: ProblemQuery, axis: str | None) -> None:
        """Show a view in every control."""
        with self._quietly():
            self._search.value = query.text or ""
            self._sort.value = query.sort or _FIRST_ORDER
            self._ongoing.value = query.ongoing
            self._axis.value = axis or _FIRST_AXIS
        self._run.text = f"Run {format.clip(query.run or '')} ✕"
        self._run.set_visibility(query.run is not None)

    def link_to(self, json: str, csv: str) -> None:
        """Set the addresses of the listed problems as data."""
        set_address(self._json, json)
        set_address(self._csv, csv)

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
