"""``/fleet.json``: the page of all runs as data."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from sfapp.app.answers import MAX_ROWS, json_answer
from sfapp.model.search_words import MAX_SEARCH
from sfapp.model.trends import BY_DAY, MOST_FIELD
from sfapp.service.fleet import FleetQuery, fleet_document
from sfapp.service.workspace import Workspace

FIELDS = (
    "`suspects` (names of hosts that have the late rank in more runs than expected by chance), `hosts` ("
    "all that have the late rank in some run) and `total_hosts`, `lost` (rank-hours by stage), `runs` and "
    "`total_runs`, `trends` (groups of runs by a field: whether they are slower than others); "
    "docs/json.md lists their fields."
)


def add(routes: APIRouter, workspace: Workspace) -> None:
    """Add the route."""

    @routes.get(
        "/fleet.json", summary="All runs: hosts against chance, lost time, states", description=FIELDS
    )
    def fleet_json(
        text: Annotated[
            str, Query(max_length=MAX_SEARCH, description="only hosts and runs with all these words")
        ] = "",
        by: Annotated[
            str, Query(max_length=MOST_FIELD, description="field that groups the runs of `trends`")
        ] = BY_DAY,
        limit: Annotated[int, Query(ge=0, le=MAX_ROWS, description="of hosts and of runs")] = MAX_ROWS,
    ) -> Response:
        found = FleetQuery(text).select(workspace.fleet())
        return json_answer(fleet_document(found, limit, workspace.trends(by)))
