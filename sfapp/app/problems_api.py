"""``/problems.json`` and ``/problems/<id>.json``: the content of the pages of problems as data."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import Path as PathParameter
from starlette.responses import Response

from sfapp.app.answers import json_answer
from sfapp.service.problems import listed
from sfapp.service.workspace import Workspace

FIELDS = (
    "`kind` (`missing`, `rank`, `ranks`, `turns`, `growth`), `stage`, `ranks`, `hostname`, `windows` (their "
    "numbers), `began` and `ended` (`step`, null if only the interval is known, `low` and `high`, 95 %; "
    "`ended` is null while the run's last window has it), `began_at`, `ended_at` (UTC), `cost` (`lost_ns`, "
    "`low_ns`, `high_ns` of `steps_ns`, `rank_hours`; null if data are missing), `status` (`ongoing`, "
    "`ended`, `returned`, `fixed`, `muted`) and `mark` (the mute or mark as fixed, with author and time). "
    "`id` does not change as windows arrive; `other_ids` refer to it too."
)
"""Fields of a problem (``sfapp.model.problems``)."""


def add(routes: APIRouter, workspace: Workspace) -> None:
    """Add the routes."""

    @routes.get(
        "/problems.json",
        summary="Windows grouped by cause: missing data first, then by rank-hours lost",
        description=FIELDS,
    )
    def problems_json(
        run: Annotated[str | None, Query(description="only of this run; all runs if absent")] = None,
    ) -> Response:
        problems = listed(workspace.problems(run), workspace.incident_log.state())
        return json_answer({"problems": [one.document() for one in problems]})

    @routes.get("/problems/{problem}.json", summary="One problem", description=FIELDS)
    def problem_json(
        problem: Annotated[str, PathParameter(description="its id, or one of its other ids")],
        run: Annotated[str | None, Query(description="its run, if that is a built-in example")] = None,
    ) -> Response:
        (found,) = listed([workspace.problem(problem, run)], workspace.incident_log.state())
        return json_answer(found.document())
