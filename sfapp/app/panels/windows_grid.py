"""The table of windows. Rows are fetched over HTTP as they are scrolled to; ``client.js`` draws the cells."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui

from sfapp.views.text.terms import definitions_in

BLOCK = 100
"""Rows fetched by one request."""


def _column(field: str, title: str, width: int, sort: str = "", **settings: Any) -> dict[str, Any]:
    """Return a column that shows ``shown[field]`` and sorts by the store's column ``sort``."""
    return {
        "colId": sort or field,
        "headerName": title,
        "headerTooltip": definitions_in(title),
        ":valueGetter": f"(p) => p.data ? p.data.shown[{json.dumps(field)}] : ''",
        "width": width,
        "sortable": bool(sort),
        **settings,
    }


_RIGHT = {"cellClass": "cell-right", "headerClass": "head-right"}

COLUMNS = [
    _column("name", "Window", 118, "window", pinned="left", **{":cellRenderer": "sfapp.cells.window"}),
    _column("run", "Run", 150, "run_id", **{":valueGetter": "(p) => p.data ? p.data.run_id : ''"}),
    _column("aim", "Likely cause", 290, "aim_stage", **{":cellRenderer": "sfapp.cells.aim"}),
    _column("severity", "Severity", 104, "severity", **{":cellRenderer": "sfapp.cells.severity"}),
    _column("time", "Mean step", 98, "step_mean_ns", **_RIGHT),
    _column("spread", "p50 / p95", 156, "step_p95_ns", **_RIGHT),
    _column("change", "vs healthy", 96, "change", **_RIGHT),
    _column("imbalance", "Imbalance", 94, "exposed_imbalance", **_RIGHT),
    _column("bar", "Stage shares", 170, **{":cellRenderer": "sfapp.cells.shares"}),
    _column("top", "Top stage", 128, "top_share"),
    _column("routing", "Routing set", 190),
    _column("labels", "Labels", 250, "label", **{":cellRenderer": "sfapp.cells.labels"}),
    _column("leader", "Slowest rank in it", 190, "leader_rank"),
    _column("steps", "Steps", 100, "first_step", **_RIGHT),
    _column("ranks", "Ranks", 76, "ranks", **_RIGHT),
    _column("nodes", "Nodes", 76, "nodes", **_RIGHT),
]


class WindowsGrid:
    """The table; its rows are those of a query of ``/windows.json``."""

    def __init__(
        self,
        query: str,
        *,
        sort: str | None = None,
        change_sort: Callable[[str | None], Any] | None = None,
        one_run: bool = False,
    ) -> None:
        """Build inside the current container.

        Args:
            query: of the rows, without an order. sort: their order, as ``ListState`` has it.
            change_sort: called with the order when a user clicked the head of a column.
            one_run: omits the column of runs.
        """
        self._sort = sort
        columns = [c for c in COLUMNS if not (one_run and c["colId"] == "run_id")]
        self._grid = (
            ui.aggrid(
                {
                    "columnDefs": _sorted_by(columns, sort),
                    "defaultColDef": {"resizable": True, "sortingOrder": ["desc", "asc", None]},
                    "rowModelType": "infinite",
                    "cacheBlockSize": BLOCK,
                    "rowHeight": 36,
                    "headerHeight": 34,
                    "suppressDragLeaveHidesColumns": True,
                    "enableBrowserTooltips": True,
                    "overlayNoRowsTemplate": "No windows match.",
                    ":datasource": f"sfapp.windows({json.dumps(query)}, {json.dumps(sort)})",
                    ":onSortChanged": "sfapp.emitSort",
                    ":getRowId": "(p) => p.data.run_id + '/' + p.data.window",
                    ":onRowClicked": "sfapp.openRow",
                    ":onCellKeyDown": "sfapp.openRowByKey",
                },
                auto_size_columns=False,
            )
            .classes("windows-grid")
            .mark("grid")
        )
        self._grid.props["aria-label"] = "Windows"
        if change_sort is not None:
            ui.on("sorted", lambda event: self._sorted(event.args, change_sort))

    def list(self, query: str, sort: str | None = None) -> None:
        """List the windows of another query, in the order given."""
        arguments = ", ".join(json.dumps(each) for each in (query, sort, sort != self._sort))
        self._sort = sort
        ui.run_javascript(f"sfapp.listWindows({self._grid.id}, {arguments})")

    def refresh(self) -> None:
        """Fetch the visible rows again; the scroll position is kept."""
        ui.run_javascript(f"sfapp.refreshWindows({self._grid.id})")

    def _sorted(self, sort: object, change_sort: Callable[[str | None], Any]) -> None:
        self._sort = sort if isinstance(sort, str) and sort else None
        change_sort(self._sort)


def _sorted_by(columns: Sequence[dict[str, Any]], sort: str | None) -> list[dict[str, Any]]:
    """Return columns with the marks of an order in their heads."""
    terms = [term.partition(":")[::2] for term in (sort or "").split(",")]
    places = {column: (place, direction or "asc") for place, (column, direction) in enumerate(terms)}
    return [
        {**column, "initialSortIndex": places[column["colId"]][0], "initialSort": places[column["colId"]][1]}
        if column["colId"] in places
        else column
        for column in columns
    ]
