"""A plot as text: its sentence and its table, built when they are first opened."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import events

from sfapp.app.panels.tables import data_table
from sfapp.app.theme import box, label_text
from sfapp.views.figures import Figure
from sfapp.views.figures.plot_table import plot_table
from sfapp.views.table_columns import TableColumn


class PlotTableView:
    """The disclosure below a plot. It stays empty, and costs nothing, until it is opened."""

    def __init__(self, figure: Callable[[], Figure]) -> None:
        """Build it closed, inside the current container.

        Args:
            figure: returns the figure as it is now.
        """
        self._figure = figure
        self._is_open = False
        with box("as-table", "details").mark("as-table") as self._details:
            label_text("Show as table", "summary")
            self._content = box()
        self._details.on("toggle", self._toggled, js_handler="(event) => emit(event.target.open)")

    def refresh(self) -> None:
        """Follow the figure, if the table is open."""
        if self._is_open:
            self._build()

    def _toggled(self, event: events.GenericEventArguments) -> None:
        self._is_open = event.args is True
        if self._is_open:
            self._build()

    def _build(self) -> None:
        found = plot_table(self._figure())
        self._content.clear()
        with self._content:
            label_text(found.sentence, "p")
            if found.rows:
                columns = [TableColumn(f"c{place}", title) for place, title in enumerate(found.columns)]
                rows = [
                    {"row": place, **{f"c{column}": text for column, text in enumerate(row)}}
                    for place, row in enumerate(found.rows)
                ]
                data_table(columns, rows, "row")
            if found.left_out:
                label_text(found.left_out, "p", "muted")
