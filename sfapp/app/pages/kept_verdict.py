"""The page of a window of which only the verdict is here, because its packets are elsewhere or removed."""

from __future__ import annotations

import asyncio

from fastapi import Request

from sfapp.app.pages.not_found import missing
from sfapp.app.panels.verdict_card import EvidenceCard, VerdictCard
from sfapp.app.theme import Crumb, box, frame, label_text, link
from sfapp.errors import WindowNotFoundError
from sfapp.model import Diagnosis
from sfapp.model.view import WindowKey
from sfapp.service.workspace import Workspace
from sfapp.views import format
from sfapp.views.address import run_page
from sfapp.views.text import verdict


async def kept_verdict(workspace: Workspace, request: Request, key: WindowKey, reason: str) -> None:
    """Build the page of a window whose rows cannot be read: its stored verdict, and the reason."""
    try:
        diagnosis = await asyncio.to_thread(workspace.store_of(key.run_id).diagnosis, key.run_id, key.window)
    except WindowNotFoundError:  # It has been removed meanwhile.
        missing(workspace, request, reason)
        return
    _show(workspace, request, diagnosis, reason)


def _show(workspace: Workspace, request: Request, diagnosis: Diagnosis, reason: str) -> None:
    run_id, number = diagnosis.run_id, diagnosis.window
    crumbs = (
        Crumb("Problems", "/"),
        Crumb(f"Run {format.clip(run_id)}", run_page(run_id)),
        Crumb(f"Window {number}", detail=f"{format.counted(diagnosis.steps, 'step')}, verdict only"),
    )
    words = verdict(diagnosis)
    with frame(workspace, request, f"window {number}", crumbs), box("stack"):
        with box("card", "section").mark("rows-missing"):
            label_text("Only the verdict is here", "h2")
            label_text(f"{reason[:1].upper()}{reason[1:]}.", "p")
            label_text(
                "The verdict is the one that was made from all rows, with the default thresholds.",
                "p",
                "muted",
            )
            link("All windows of the run", run_page(run_id))
        VerdictCard().show(words, as_line=False)
        EvidenceCard().show(words)
