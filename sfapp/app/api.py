"""Serve every page as data: the same address with ``.json`` (tables ``.csv``), the same query; metrics and
health.

Handlers are plain functions where they ask the store: the server runs those on threads beside the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Annotated

import anyio.from_thread
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from starlette.responses import PlainTextResponse, Response

from sfapp.accounting import suspect_fix
from sfapp.app import (
    api_docs,
    finder,
    fleet_api,
    incidents_api,
    problems_api,
    stragglers_api,
    window_tables_api,
)
from sfapp.app.address import run_of
from sfapp.app.answers import BUSY, MAX_ROWS, REFUSALS, CsvResponse, csv_answer, json_answer, saved_as
from sfapp.app.asked_window import asked_view, judge_asked, window_document
from sfapp.app.data_turns import DataTurns
from sfapp.app.downloads import MadeDownload, download_turns
from sfapp.app.incidents_api import shown_incidents
from sfapp.app.known_options import refuse_unknown_options
from sfapp.app.methods import MethodsMiddleware
from sfapp.app.prometheus import Metrics
from sfapp.app.window_list import SORT, parse_sort
from sfapp.errors import (
    ComparisonError,
    IncidentNotFoundError,
    SfappError,
    StoreError,
    StoreFailedError,
    WindowNotFoundError,
)
from sfapp.model.fix import Fix
from sfapp.model.parameters import schema_of
from sfapp.model.parse import RUN_WINDOW
from sfapp.model.sides import SIDE, parse_compare
from sfapp.model.view import WindowKey, view_parameters
from sfapp.service.compare import compare_sides
from sfapp.service.csv_table import csv_parts
from sfapp.service.live import DOCUMENT_VERSION, live_run_snapshot
from sfapp.service.live_address import LATEST, LEAST_STEPS, MOST_STEPS, SPANS, LiveState, parse_live
from sfapp.service.problems import episodes_in, listed
from sfapp.service.stacks import newest_stacks_below
from sfapp.service.workspace import Workspace
from sfapp.store import LISTED, SORTABLE, WindowQuery
from sfapp.views.glossary import glossary
from sfapp.views.window_list_rows import window_row

Run = Annotated[str | None, Query(description="only of this run")]
Label = Annotated[str | None, Query(description="only with this label, by its machine name")]
Stage = Annotated[str | None, Query(description="only with this stage as suspect or in the routing set")]
Text = Annotated[str | None, Query(description="whose row shows all these words")]
NeedsAttention = Annotated[
    bool | None,
    Query(description="only those that need attention or lack data; if false, only the others"),
]
Severity = Annotated[float | None, Query(ge=0, description="at least this severe")]
End = Annotated[
    str | None,
    Query(
        description="RUN/WINDOW, included, in the order of the timeline",
        json_schema_extra={"pattern": schema_of(RUN_WINDOW)["pattern"]},
    ),
]
Sort = Annotated[
    str,
    Query(
        description="COLUMN:asc or COLUMN:desc, by weight; if absent, windows that lack data first, then by "
        f"severity: {', '.join(SORTABLE)}",
        json_schema_extra={"pattern": schema_of(SORT)["pattern"]},
    ),
]

_LIVE = LiveState()
Span = Annotated[int, Query(description="seconds", json_schema_extra={"enum": list(SPANS)})]
Until = Annotated[
    int | None,
    Query(
        ge=0,
        description="seconds since 1970; the newest if absent",
        json_schema_extra={"maximum": LATEST},
    ),
]
RollingSteps = Annotated[
    int,
    Query(
        description="steps of the rolling verdict",
        json_schema_extra={"minimum": LEAST_STEPS, "maximum": MOST_STEPS},
    ),
]


def _end(text: str | None) -> tuple[str, int] | None:
    """Parse one end of a range of windows.

    Raises:
        StoreError: it is no RUN/WINDOW.
    """
    if text is None:
        return None
    try:
        key = WindowKey.parse(text)
    except ValueError as error:
        raise StoreError(f"first and last {error}, not {text!r}") from None
    return key.run_id, key.window


def _asked(
    run: Run = None,
    label: Label = None,
    stage: Stage = None,
    text: Text = None,
    min_severity: Severity = None,
    needs_attention: NeedsAttention = None,
    first: End = None,
    last: End = None,
    sort: Sort = "",
) -> WindowQuery:
    """Return the store query of the parameters, which ``ListState`` describes."""
    return WindowQuery(
        run, label, stage, text, min_severity, needs_attention, _end(first), _end(last), parse_sort(sort)
    )


Asked = Annotated[WindowQuery, Depends(_asked)]


def build(application: FastAPI, workspace: Workspace) -> Metrics:
    """Add every route that serves data, and return the metrics that one of them has."""
    application.add_exception_handler(SfappError, _explain)
    metrics = Metrics(workspace)
    monitored = APIRouter(responses=REFUSALS)
    _add_health(monitored, workspace, metrics)
    routes = APIRouter(responses=REFUSALS, dependencies=[Depends(refuse_unknown_options)])
    _add_windows(routes, workspace)
    problems_api.add(routes, workspace)
    fleet_api.add(routes, workspace)
    _add_window(routes, workspace)
    window_tables_api.add(routes, workspace)
    stragglers_api.add(routes, workspace)
    _add_runs(routes, workspace)
    _add_live(routes, workspace)
    _add_stacks(routes, workspace)
    _add_compare(routes, workspace)
    _add_glossary(routes)
    incidents_api.add(routes, workspace)
    finder.build(routes, workspace)
    application.include_router(monitored)
    application.include_router(routes)
    api_docs.add(application)
    own = [*application.router.routes, *monitored.routes, *routes.routes]
    application.add_middleware(DataTurns, routes=own)
    application.add_middleware(MethodsMiddleware, routes=own)
    application.add_middleware(metrics.counting)
    return metrics


def _add_health(routes: APIRouter, workspace: Workspace, metrics: Metrics) -> None:
    @routes.get(
        "/healthz",
        summary="Whether the server responds and keeps the store up to date",
        responses={503: {"description": "It does not"}},
    )
    async def healthz() -> Response:
        # On the event loop: this reads one attribute only, whereas a free thread may take long.
        status = workspace.status()
        failed = status.kind == "failed"
        document = {"status": "failed" if failed else "ok", "store": status.kind, "message": status.message}
        return json_answer(document, 503 if failed else 200)

    @routes.get("/metrics", summary="Metrics as Prometheus text", response_class=PlainTextResponse)
    def prometheus() -> Response:
        anyio.from_thread.run(workspace.incident_service.shown)
        return Response(metrics.text(), media_type=metrics.media_type)


def _add_windows(routes: APIRouter, workspace: Workspace) -> None:
    store = workspace.store
    turns = download_turns()

    @routes.get("/index.json", include_in_schema=False)  # where it was before
    @routes.get("/windows.json", summary="Windows, filtered and sorted; runs and counts")
    def windows_json(
        asked: Asked,
        offset: Annotated[int, Query(ge=0, description="number of windows to skip")] = 0,
        limit: Annotated[int, Query(ge=0, le=MAX_ROWS, description="of windows and of runs")] = 100,
        as_text: Annotated[bool, Query(description="add `shown`: values as displayed on the page")] = False,
    ) -> Response:
        page, runs = workspace.windows(replace(asked, offset=offset, limit=limit)), workspace.runs()
        rows = [{**row, "shown": window_row(row)} for row in page.rows] if as_text else page.rows
        return json_answer(
            {
                "windows": rows,
                "total": page.total,
                "offset": offset,
                "runs": [asdict(run) for run in runs[:limit]],
                "total_runs": len(runs),
                "quarantined": len(store.quarantine()),
                "conflicts": len(store.conflicts()),
                "newest_packet_at": store.newest_packet_at(),
                "generation": store.generation,
            }
        )

    @routes.get("/index.csv", include_in_schema=False)
    @routes.get(
        "/windows.csv", summary="All these windows as a table", response_class=CsvResponse, responses=BUSY
    )
    async def windows_csv(asked: Asked) -> Response:
        def parts() -> Iterator[bytes]:
            return (text.encode() for text in csv_parts(LISTED, workspace.window_parts(asked)))

        return MadeDownload(parts, turns, media_type="text/csv", headers=saved_as("windows.csv"))

    @routes.get("/quarantine.json", summary="Refused files, and windows in conflict")
    def quarantine_json() -> Response:
        return json_answer(
            {
                "quarantined": [asdict(file) for file in store.quarantine()],
                "conflicts": [asdict(conflict) for conflict in store.conflicts()],
            }
        )

    @routes.get("/quarantine.csv", summary="Refused files as a table", response_class=CsvResponse)
    def quarantine_csv() -> Response:
        return csv_answer([asdict(file) for file in store.quarantine()], "quarantine")


def _add_window(routes: APIRouter, workspace: Workspace) -> None:
    documented = {"parameters": view_parameters("fix")}

    # A run id may hold slashes: ``:path`` lets them through, and ``run_of`` reads them undecoded.
    @routes.get(
        "/w/{run:run}/{window:window}.json", summary="One window's diagnosis", openapi_extra=documented
    )
    def window_json(request: Request, run: str, window: int) -> Response:
        key = WindowKey(run_of(request, after=1), window)
        return json_answer(window_document(workspace, request, key))

    @routes.get(
        "/w/{run:run}/{window:window}/what-if.json",
        summary="The step time with a stage, a rank or a node as fast as a typical rank, from a replay",
        openapi_extra=documented,
    )
    def what_if_json(
        request: Request,
        run: str,
        window: int,
        rank: Annotated[int | None, Query(ge=0, description="the rank of `fix`, if that has none")] = None,
    ) -> Response:
        key = WindowKey(run_of(request, after=2), window)
        judged = judge_asked(workspace, request, key, extra={"rank"})
        fix = asked_view(request, extra={"rank"}).fix
        if rank is not None and (fix is None or fix.is_of_every_rank):
            fix = Fix(None if fix is None else fix.stage, rank)
        fix = fix or suspect_fix(judged.diagnosis)
        return json_answer({"what_if": None if fix is None else asdict(workspace.what_if(judged, fix))})


def _add_runs(routes: APIRouter, workspace: Workspace) -> None:
    @routes.get("/runs/{run:run}.json", summary=api_docs.RUN, description=api_docs.EPISODES)
    def run_json(request: Request, run: str) -> Response:
        name = run_of(request, ".json")
        found: dict[str, object] = {"run": asdict(workspace.run(name))}
        found["windows"] = workspace.timeline(WindowQuery(name))
        problems, marks = workspace.problems(name), shown_incidents(workspace)
        found |= {"reference": workspace.reference(name), "episodes": episodes_in(problems)}
        found["problems"] = [one.document() for one in listed(problems, marks)]
        return json_answer(found)

    @routes.get("/runs/{run:run}.csv", summary="One run's windows as a table", response_class=CsvResponse)
    def run_csv(request: Request, run: str) -> Response:
        name = run_of(request, ".csv")
        workspace.run(name)
        return csv_answer(workspace.timeline(WindowQuery(name)), "run")


def _add_live(routes: APIRouter, workspace: Workspace) -> None:
    @routes.get("/live.json", summary="Runs that were streamed, the most recently active first")
    def live_runs_json() -> Response:
        running = {run["run_id"] for run in workspace.streaming.newest()}
        runs = workspace.store.live_runs()
        shown = [{**run, "is_running": run["run_id"] in running} for run in runs]
        return json_answer({"version": DOCUMENT_VERSION, "runs": shown})

    @routes.get("/live/{run:run}.json", summary="One streamed run: steps, skew, ranks, nodes, machines")
    def live_json(
        request: Request,
        run: str,
        span: Span = _LIVE.span,
        until: Until = None,
        steps: RollingSteps = _LIVE.steps,
    ) -> Response:
        state, notices = parse_live(request.query_params.multi_items())
        if notices:
            raise StoreError(" ".join(notices))
        return json_answer(
            live_run_snapshot(workspace, run_of(request, ".json"), state, whole=True).document()
        )


def _add_stacks(routes: APIRouter, workspace: Workspace) -> None:
    @routes.get(
        "/stacks/{run:run}.json",
        summary="The newest stacks of a run's ranks, equal ones merged, those of the fewest ranks first",
    )
    def stacks_json(
        request: Request,
        run: str,
        all_threads: Annotated[bool, Query(description="all threads, not only the one that trains")] = False,
    ) -> Response:
        found = newest_stacks_below(workspace.folders, run_of(request, ".json"))
        return json_answer({"version": DOCUMENT_VERSION, **found.document(all_threads)})


def _add_compare(routes: APIRouter, workspace: Workspace) -> None:
    meanings = {
        "a": "RUN/WINDOW or RUN: before",
        "b": "RUN/WINDOW or RUN: after",
        "c": "RUN/WINDOW or RUN after the fix; optional",
    }
    sides = [SIDE.document(name, meaning, required=name != "c") for name, meaning in meanings.items()]
    documented = {"parameters": [*sides, *view_parameters()]}

    @routes.get(
        "/compare.json", summary="Two windows or runs side by side, or three", openapi_extra=documented
    )
    def compare_json(request: Request) -> Response:
        state, notices = parse_compare(request.query_params.multi_items())
        if notices:
            raise ComparisonError(" ".join(notices))
        if not state.is_whole:
            raise ComparisonError("name two sides: a=RUN/WINDOW and b=RUN/WINDOW, or RUN for all its windows")
        return json_answer(compare_sides(workspace, state).document())


def _add_glossary(routes: APIRouter) -> None:
    @routes.get("/glossary.json", summary="Every label, gate, reason, kind of culprit and of evidence")
    def glossary_json() -> Response:
        return json_answer(glossary())


async def _explain(_: Request, error: Exception) -> Response:
    """Respond to an error of sfapp with its message: 404 if something does not exist, 503 if the store has
    failed, else 400."""
    status = 400
    if isinstance(error, WindowNotFoundError | IncidentNotFoundError):
        status = 404
    elif isinstance(error, StoreFailedError):
        status = 503
    return json_answer({"error": str(error)}, status)
