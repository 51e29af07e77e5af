"""What is shown where there is no page: which window, run or address is missing, and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import Request
from nicegui import ui

from sfapp.app.theme import Crumb, box, empty, frame, link
from sfapp.errors import StoreError, WindowNotFoundError
from sfapp.service.workspace import Workspace

LOOK_AGAIN_S = 1.0
"""Seconds between looks for what was missing."""


def root(workspace: Workspace) -> Callable[[Request], None]:
    """The page of every address that is no page."""

    def nowhere(request: Request) -> None:
        missing(workspace, request, "There is no page at this address.")

    return nowhere


def missing(
    workspace: Workspace, request: Request, message: str, find: Callable[[], object] | None = None
) -> None:
    """A whole page that says what is missing, with status 404 once all packets are read.

    Args:
        find: raises WindowNotFoundError while it is missing. It may still come, from a job that runs or from
            packets that are being read: the page that was asked for then opens by itself.
    """
    kind = workspace.status().kind
    may_come = find is not None and kind in ("reading", "live")
    is_early = may_come and kind == "reading"
    if not is_early:
        ui.status_code(404)
    title = "not here yet" if is_early else "not found"
    with (
        frame(workspace, request, title, (Crumb("Windows", "/"), Crumb(title))),
        box("card", "section"),
    ):
        if is_early:
            empty("Not here yet", "Packets are still being read; this page opens once its own have been.")
        else:
            hope = ". If it is still to come, this page opens by itself." if may_come else ""
            empty("Not here", f"{message[:1].upper()}{message[1:]}{hope}")
        with box("empty-links"):
            link("All windows", "/")
            link("What was refused", "/quarantine")
    if find is not None and may_come:
        _open_when(lambda: workspace.status().kind != kind, find)


def _open_when(is_other: Callable[[], bool], find: Callable[[], object]) -> None:
    """Ask for the page again once something else is to be said, or it is not missing any more."""

    async def look() -> None:
        again.deactivate()  # so that what nobody foresaw is told once, not every second
        if not is_other():
            try:
                await asyncio.to_thread(find)
            except WindowNotFoundError:
                again.activate()
                return
            except StoreError:  # it came, and the page itself says what is wrong with it
                pass
        ui.navigate.reload()

    again = ui.timer(LOOK_AGAIN_S, look)
