"""``/problems.json``, ``/problems.csv`` and ``/problems/<id>.json``: the pages of problems as data."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi import Path as PathParameter
from starlette.responses import Response

from sfapp.app.answers import CsvResponse, csv_answer, json_answer
from sfapp.app.incidents_api import shown_incidents
from sfapp.errors import StoreError
from sfapp.model.search_words import MAX_SEARCH
from sfapp.service.problem_query import ORDERS, ProblemQuery, problem_row
from sfapp.service.problems import ListedProblem, listed
from sfapp.service.workspace import Workspace
from sfapp.views import format

FIELDS = (
    "`kind` (`standstill`, `missing`, `rank`, `ranks`, `turns`, `growth`), `stage`, `ranks`, `hostname`, "
    "`windows` (their numbers), `began` and `ended` (`step`, null if only the interval is known, `low` and "
    "`high`, 95 %; "
    "`ended` is null while the run's last window has it), `began_at`, `ended_at` (UTC), `cost` (`lost_ns`, "
    "`low_ns`, `high_ns` of `steps_ns`, `rank_hours`; null if data are missing), `status` (`ongoing`, "
    "`ended`, `returned`, `fixed`, `muted`), `shared` (what late ranks share) and `mark` (the mute or "
    "mark as fixed, with author and time). "
    "`id` does not change as windows arrive; `other_ids` refer to it too. A standstill has no windows, and "
    "`roll_call` (docs/hangs.md)."
)
"""Fields of a problem (``sfapp.model.problems``)."""


def _asked(
    run: Annotated[str | None, Query(description="only of this run; all runs if absent")] = None,
    text: Annotated[
        str | None, Query(max_length=MAX_SEARCH, description="whose row shows all these words")
    ] = None,
    ongoing: Annotated[bool, Query(description="only those that the latest window has")] = False,
    sort: Annotated[str, Query(description="by what", json_schema_extra={"enum": list(ORDERS)})] = "cost",
) -> ProblemQuery:
    """Return the query of the parameters, which the address of the page has too."""
    if sort not in ORDERS:
        raise StoreError(f"cannot sort problems by {format.clip(sort)!r}: {', '.join(ORDERS)}")
    return ProblemQuery(run, text, ongoing, sort)


Asked = Annotated[ProblemQuery, Depends(_asked)]


def _found(workspace: Workspace, asked: ProblemQuery) -> list[ListedProblem]:
    return asked.select(listed(workspace.problems(asked.run), shown_incidents(workspace)))


def add(routes: APIRouter, workspace: Workspace) -> None:
    """Add the routes."""

    @routes.get(
        "/problems.json",
        summary="Standstills, and windows grouped by cause: missing data first, then by rank-hours lost",
        description=FIELDS,
    )
    def problems_json(
        asked: Asked,
    ) -> Response:
        return json_answer({"problems": [one.document() for one in _found(workspace, asked)]})

    @routes.get("/problems.csv", summary="The same problems as a table", response_class=CsvResponse)
    def problems_csv(asked: Asked) -> Response:
        return csv_answer([problem_row(one) for one in _found(workspace, asked)], "problems")

    @routes.get("/problems/{problem}.json", summary="One problem", description=FIELDS)
    def problem_json(
        problem: Annotated[str, PathParameter(description="its id, or one of its other ids")],
        run: Annotated[str | None, Query(description="its run, if that is a built-in example")] = None,
    ) -> Response:
        (found,) = listed([workspace.problem(problem, run)], shown_incidents(workspace))
        return json_answer(found.document())
