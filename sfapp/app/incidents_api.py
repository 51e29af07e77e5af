"""``/incidents.json`` and ``/incident/<id>.json``, and what other data show of the log of notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import anyio.from_thread
from fastapi import APIRouter
from fastapi import Path as PathParameter
from starlette.responses import Response

from sfapp.app.answers import BUSY
from sfapp.app.downloads import MadeDownload, download_turns
from sfapp.errors import IncidentError
from sfapp.incidents import IncidentState, document_parts
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
    turns = download_turns()

    def exported(incident: str | None = None) -> Response:
        # Of any number of edits: an answer that is made as a whole is kept until its client has read it.
        def parts() -> Iterator[bytes]:
            return document_parts(shown_incidents(workspace), incident)

        return MadeDownload(parts, turns, media_type="application/json", headers={})

    @routes.get("/incidents.json", summary="Every incident and note, with its state and every edit; "
                     "can be imported", responses=BUSY)  # fmt: skip
    async def incidents_json() -> Response:
        return exported()

    @routes.get("/incident/{incident}.json", summary="One incident with its notes, with its "
        "state and every edit; can be imported", responses=BUSY)  # fmt: skip
    async def incident_json(
        incident: Annotated[str, PathParameter(description="its id, or a unique prefix")],
    ) -> Response:
        return exported(incident)
