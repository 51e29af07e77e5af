"""Serve the tables of one window as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi import Path as PathParameter
from starlette.responses import Response

from sfapp.app.address import run_of
from sfapp.app.answers import BUSY, CsvResponse, saved_as
from sfapp.app.asked_window import judge_asked
from sfapp.app.downloads import MadeDownload, download_turns
from sfapp.errors import WindowNotFoundError
from sfapp.model.view import WindowKey, view_parameters
from sfapp.operators import Findings
from sfapp.service.csv_table import csv_parts, csv_text
from sfapp.service.judging import JudgedWindow
from sfapp.service.workspace import Workspace
from sfapp.views import straggler_tables, tables
from sfapp.views.rank_rows import rank_rows
from sfapp.views.table_columns import Row

_RANKS_AT_ONCE = 1_000
"""Rows of ranks in memory at a time: freeing 100,000 would stop all threads for a tenth of a second."""

_EVERY = 2**31


def _ranks(judged: JudgedWindow) -> Iterator[str]:
    table, places = rank_rows(judged.measures, judged.diagnosis), range(len(judged.measures.window.ranks))
    begins = range(0, len(places), _RANKS_AT_ONCE)
    return csv_parts(table.fields, (table.rows(places[begin : begin + _RANKS_AT_ONCE]) for begin in begins))


_WINDOW_TABLES: Mapping[str, Callable[[JudgedWindow], Iterable[str]]] = {
    "stages": lambda judged: [csv_text(tables.stage_rows(judged.diagnosis))],
    "ranks": _ranks,
    "steps": lambda judged: [csv_text(tables.step_rows(judged.measures, judged.diagnosis))],
}

_FINDINGS_TABLES: Mapping[str, Callable[[Findings], list[Row]]] = {
    "causes": straggler_tables.cause_rows,
    "outliers": lambda findings: straggler_tables.outlier_rows(findings, limit=_EVERY),
    "collectives": lambda findings: straggler_tables.collective_rows(findings, limit=_EVERY),
}

_TABLES = (*_WINDOW_TABLES, *_FINDINGS_TABLES)


def add(routes: APIRouter, workspace: Workspace) -> None:
    """Add the route of a window's tables."""
    turns = download_turns()

    @routes.get(
        "/w/{run:run}/{window:window}/{table}.csv",
        summary="One window's stages, ranks or steps; causes, outliers or collectives",
        openapi_extra={"parameters": view_parameters()},
        response_class=CsvResponse,
        responses=BUSY,
    )
    async def window_csv(
        request: Request,
        run: str,
        window: int,
        table: Annotated[str, PathParameter(description=", ".join(_TABLES))],
    ) -> Response:
        if table not in _TABLES:
            raise WindowNotFoundError(f"a window has no table {table!r}: {', '.join(_TABLES)}")

        def parts() -> Iterator[bytes]:
            judged = judge_asked(workspace, request, WindowKey(run_of(request, after=2), window))
            if table in _WINDOW_TABLES:
                made = _WINDOW_TABLES[table](judged)
            else:
                found = workspace.examine(judged).result().or_raise()
                made = [csv_text(_FINDINGS_TABLES[table](found))]
            return (text.encode() for text in made)

        headers = saved_as(f"window-{window}-{table}.csv")
        return MadeDownload(parts, turns, media_type="text/csv", headers=headers)
