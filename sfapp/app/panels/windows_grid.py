"""The table of windows: rows come over HTTP as they are scrolled to; cells are drawn by ``client.js``."""

from __future__ import annotations

import json
from typing import Any

from nicegui import ui

BLOCK = 100
"""Rows fetched at a time."""


def _column(field: str, title: str, width: int, sort: str = "", **settings: Any) -> dict[str, Any]:
    """One column: shows ``shown[field]``, sorts by the store's column ``sort``."""
    return {
        "colId": sort or field,
        "headerName": title,
        ":valueGetter": f"(p) => p.data ? p.data.shown[{json.dumps(field)}] : ''",
        "width": width,
        "sortable": bool(sort),
        **settings,
    }


_RIGHT = {"cellClass": "cell-right", "headerClass": "head-right"}

COLUMNS = [
    _column("name", "window", 118, "window", pinned="left", **{":cellRenderer": "sfapp.cells.window"}),
    _column("run", "run", 150, "run_id", **{":valueGetter": "(p) => p.data ? p.data.run_id : ''"}),
    _column("aim", "where it first shows", 240, "aim_stage", **{":cellRenderer": "sfapp.cells.aim"}),
    _column("severity", "severity", 104, "severity", **{":cellRenderer": "sfapp.cells.severity"}),
    _column("time", "mean step", 98, "step_mean_ns", **_RIGHT),
    _column("spread", "p50 / p95", 156, "step_p95_ns", **_RIGHT),
    _column("change", "vs healthy", 96, "change", **_RIGHT),
    _column("imbalance", "imbalance", 94, "exposed_imbalance", **_RIGHT),
    _column("bar", "shares", 170, **{":cellRenderer": "sfapp.cells.shares"}),
    _column("top", "top stage", 128, "top_share"),
    _column("routing", "routing set", 190),
    _column("labels", "labels", 250, "label", **{":cellRenderer": "sfapp.cells.labels"}),
    _column("leader", "leader of the top stage", 190, "leader_rank"),
    _column("steps", "steps", 100, "first_step", **_RIGHT),
    _column("ranks", "ranks", 76, "ranks", **_RIGHT),
    _column("nodes", "nodes", 76, "nodes", **_RIGHT),
]


class WindowsGrid:
    """The table; what it lists is the query of ``/index.json``."""

    def __init__(self, query: str, *, one_run: bool = False) -> None:
        """Build inside the current container; ``one_run`` leaves the run's name out."""
        self._grid = (
            ui.aggrid(
                {
                    "columnDefs": [c for c in COLUMNS if not (one_run and c["colId"] == "run_id")],
                    "defaultColDef": {"resizable": True, "sortingOrder": ["desc", "asc", None]},
                    "rowModelType": "infinite",
                    "cacheBlockSize": BLOCK,
                    "rowHeight": 36,
                    "headerHeight": 34,
                    "suppressDragLeaveHidesColumns": True,
                    "overlayNoRowsTemplate": "No window matches.",
                    ":datasource": f"sfapp.windows({json.dumps(query)})",
                    ":getRowId": "(p) => p.data.run_id + '/' + p.data.window",
                    ":onRowClicked": "sfapp.openRow",
                    ":onCellKeyDown": "sfapp.openRowByKey",
                },
                auto_size_columns=False,
            )
            .classes("windows-grid")
            .mark("grid")
        )
        self._grid.props["aria-label"] = "windows"

    def list(self, query: str) -> None:
        """List other windows."""
        ui.run_javascript(f"sfapp.listWindows({self._grid.id}, {json.dumps(query)})")

    def refresh(self) -> None:
        """Ask for the rows in view again; the scroll position stays."""
        ui.run_javascript(f"sfapp.refreshWindows({self._grid.id})")
