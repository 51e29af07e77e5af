"""What is shown where there is no page: which window, run or address is missing, and the way back."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request
from nicegui import ui

from sfapp.app.theme import Crumb, box, empty, frame, link
from sfapp.app.workspace import Workspace


def root(workspace: Workspace) -> Callable[[Request], None]:
    """The page of every address that is no page."""

    def nowhere(request: Request) -> None:
        missing(workspace, request, "There is no page at this address.")

    return nowhere


def missing(workspace: Workspace, request: Request, message: str) -> None:
    """A whole page that says what is missing, with status 404."""
    ui.status_code(404)
    crumbs = (Crumb("windows", "/"), Crumb("not found"))
    with frame(workspace, request, "not found", crumbs), box("card", "section"):
        empty("Not here", message)
        with box("empty-links"):
            link("All windows", "/")
            link("What was refused", "/quarantine")
