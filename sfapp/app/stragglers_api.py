"""Serve the operator findings of a window as JSON, and its events as an archive for Perfetto."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from sfapp.app.address import run_of
from sfapp.app.answers import BUSY, MAX_ROWS, ZipResponse, json_answer, saved_as
from sfapp.app.asked_window import asked_view, judge_asked
from sfapp.app.downloads import MadeDownload, download_turns
from sfapp.errors import TraceError
from sfapp.model.view import ViewState, WindowKey, view_parameters
from sfapp.operators import agreement
from sfapp.service.judging import JudgedWindow
from sfapp.service.workspace import Workspace
from sfapp.views.operator_findings import document

MOST_CONVERTED = 8_000_000
"""Maximum number of stage times that are converted to events for one step: 600 MB."""


def add(routes: APIRouter, workspace: Workspace) -> None:
    """Add the routes of the operator findings."""
    turns = download_turns()

    @routes.get(
        "/w/{run:run}/{window:window}/findings.json",
        summary="The operator that delayed the ranks, and whether it confirms the verdict",
        openapi_extra={"parameters": view_parameters()},
    )
    def findings_json(
        request: Request,
        run: str,
        window: int,
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="rows of each list")] = 100,
    ) -> Response:
        judged = judge_asked(workspace, request, WindowKey(run_of(request, after=2), window), extra={"limit"})
        found = workspace.examine(judged).result()
        verdict_agreement = None
        if found.findings is not None:
            verdict_agreement = agreement(judged.diagnosis, found.findings, judged.measures.window)
        key = judged.source.key
        head = {"run_id": key.run_id, "window": key.window, "group": judged.diagnosis.group}
        return json_answer(head | document(found, verdict_agreement, limit))

    @routes.get(
        "/w/{run:run}/{window:window}/perfetto.zip",
        summary="One window's operator events, or its stages, as an archive that ui.perfetto.dev opens",
        openapi_extra={"parameters": view_parameters("step", "ranks")},
        response_class=ZipResponse,
        responses=BUSY,
    )
    async def perfetto_zip(request: Request, run: str, window: int) -> Response:
        key = WindowKey(run_of(request, after=2), window)
        headers = saved_as(f"window-{window}-perfetto.zip")

        def parts() -> Iterator[bytes]:
            return _perfetto_parts(workspace, judge_asked(workspace, request, key), asked_view(request))

        return MadeDownload(parts, turns, media_type="application/zip", headers=headers)


def _perfetto_parts(workspace: Workspace, judged: JudgedWindow, view: ViewState) -> Iterator[bytes]:
    """Return the archive of the step and ranks of a view.

    Raises:
        TraceError: it would be too large, or hold nothing.
    """
    # Here, because the server starts without the importers.
    from sfapp.importers.perfetto_export import check_size, perfetto_chunks, slice_of

    window = judged.measures.window
    ranks = len(view.ranks) or len(window.ranks)
    if not judged.source.operators:  # the stages become as many events, and those of one step are taken out
        of_step = ranks * len(window.stages)
        check_size(ranks, of_step if view.step is not None else of_step * len(window.step_N))
        if of_step * len(window.step_N) > MOST_CONVERTED:
            raise TraceError(
                f"the window has more than {MOST_CONVERTED:,} stage times of these ranks: choose fewer"
            )
    operators, note = workspace.events(judged, view.ranks)
    kept = slice_of(operators, () if view.step is None else (view.step,), view.ranks)
    check_size(len(kept.ranks), len(kept))
    return perfetto_chunks(kept, judged.window.ranks, note)
