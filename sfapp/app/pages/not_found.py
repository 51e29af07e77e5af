"""The pages shown for a missing window, run or address, and for a page that cannot be built."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import Request
from nicegui import ui
from starlette.responses import Response

from sfapp.app.answers import json_answer
from sfapp.app.theme import Crumb, box, empty, frame, link
from sfapp.errors import SfappError, StoreError, WindowNotFoundError
from sfapp.service.workspace import Workspace

RETRY_S = 1.0
"""Seconds between checks for the missing item."""


_DATA = (".json", ".csv", ".zip")
"""Endings of addresses for programs, which are answered as the OpenAPI document declares."""


def root(workspace: Workspace) -> Callable[[Request], Response | None]:
    """Return the page for addresses without a page."""

    def not_found(request: Request) -> Response | None:
        message = "There is no page at this address."
        if request.url.path.endswith(_DATA):
            return json_answer({"error": message}, 404)
        missing(workspace, request, message)
        return None

    return not_found


def failed(workspace: Workspace, error: Exception) -> None:
    """Build the page that is shown, with status 500, where another cannot be built. The log has the
    traceback."""
    message = "This is an error of sfapp: its log says more."
    if isinstance(error, SfappError):
        text = str(error)
        message = f"{text[:1].upper()}{text[1:]}."
    request, title = ui.context.client.request, "Page failed"
    with (
        frame(workspace, request, title, (Crumb("Problems", "/"), Crumb(title)), heading=title),
        box("card", "section"),
    ):
        empty("This page cannot be shown", message)


def missing(
    workspace: Workspace, request: Request, message: str, find: Callable[[], object] | None = None
) -> None:
    """Build a page that names what is missing, with status 404 once all packets are read.

    Args:
        find: raises WindowNotFoundError while the item is missing. It may still arrive, from a running job or
            from packets being read: the requested page then opens automatically.
    """
    kind = workspace.status().kind
    may_arrive = find is not None and kind in ("reading", "live")
    is_early = may_arrive and kind == "reading"
    if not is_early:
        ui.status_code(404)
    title = "Not read yet" if is_early else "Not found"
    with (
        frame(workspace, request, title, (Crumb("Problems", "/"), Crumb(title)), heading=title),
        box("card", "section"),
    ):
        if is_early:
            empty(
                "Not read yet",
                "Packets are still being read. The page opens when its packets have been read.",
            )
        else:
            retry = ". The page opens when it arrives." if may_arrive else ""
            empty("Not found", f"{message[:1].upper()}{message[1:]}{retry}")
        with box("empty-links"):
            link("All problems", "/")
            link("Refused files", "/quarantine")
    if find is not None and may_arrive:
        _reload_when(lambda: workspace.status().kind != kind, find)


def _reload_when(status_changed: Callable[[], bool], find: Callable[[], object]) -> None:
    """Reload the page once the item was found, or the status that the page shows changed."""

    async def check() -> None:
        timer.deactivate()  # An unexpected error is then reported once, not every second.
        if not status_changed():
            try:
                await asyncio.to_thread(find)
            except WindowNotFoundError:
                timer.activate()
                return
            except StoreError:  # It was found, and its page reports the error.
                pass
        ui.navigate.reload()

    timer = ui.timer(RETRY_S, check)
