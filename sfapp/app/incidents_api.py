"""``/incidents.json`` and ``/incident/<id>.json``, and what other data show of the log of notes."""

from __future__ import annotations

from typing import Annotated

import anyio.from_thread
from fastapi import APIRouter
from fastapi import Path as PathParameter
from starlette.responses import Response

from sfapp.app.answers import json_answer
from sfapp.errors import IncidentError
from sfapp.incidents import IncidentState, document_of
from sfapp.service.workspace import Workspace


def shown_incidents(workspace: Workspace) -> IncidentState:
    """Return what pages show of the log, on a thread that the server has for a request.

    Raises:
        IncidentError: the log cannot be read, or is being read for the first time.
    """
    state = anyio.from_thread.run(workspace.incident_service.shown)
    if workspace.incident_service.problem:
        raise IncidentError(workspace.incident_service.problem)
    return state


def add(routes: APIRouter, workspace: Workspace) -> None:
    """Add the routes."""

    @routes.get("/incidents.json", summary="Every incident and note, with its state and every edit; "
                     "can be imported")  # fmt: skip
    def incidents_json() -> Response:
        return json_answer(document_of(shown_incidents(workspace)))

    @routes.get("/incident/{incident}.json", summary="One incident with its notes, with its "
        "state and every edit; can be imported")  # fmt: skip
    def incident_json(
        incident: Annotated[str, PathParameter(description="its id, or a unique prefix")],
    ) -> Response:
        return json_answer(document_of(shown_incidents(workspace), incident))
