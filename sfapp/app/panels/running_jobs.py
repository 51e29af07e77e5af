"""Links to the live pages of running jobs."""

from __future__ import annotations

import asyncio

from nicegui import ui

from sfapp.app.theme import box, link
from sfapp.service.workspace import Workspace
from sfapp.views import format
from sfapp.views.address import live_page

RUNNING_PAUSE = 2.0
"""Seconds between checks for running jobs."""

RUNNING_SHOWN = 4
"""Maximum number of running jobs with their own badge."""


class RunningJobs:
    """A badge for each running job; none if no job is streamed."""

    def __init__(self, workspace: Workspace) -> None:
        """Build inside the current container; badges appear once the page is connected."""
        self._workspace = workspace
        self._shown: list[tuple[str, int]] = []
        self._container = box("running")
        ui.timer(RUNNING_PAUSE, self._show)

    async def _show(self) -> None:
        runs = await asyncio.to_thread(self._workspace.streaming.newest)
        shown = [(run["run_id"], run["ranks"]) for run in runs]
        if shown == self._shown or self._container.is_deleted:
            return
        self._shown = shown
        self._container.clear()
        with self._container:
            for run_id, ranks in shown[:RUNNING_SHOWN]:
                label = f"Watch {format.clip(run_id)} live ({format.counted(ranks, 'rank')})"
                link(label, live_page(run_id), "badge running-now").mark("running")
            if len(shown) > RUNNING_SHOWN:
                link(f"{format.count(len(shown) - RUNNING_SHOWN)} more", "/live", "badge")
