"""A simulated user of the app, without a browser."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nicegui.testing import User, user_simulation

from sfapp.app.routes import load_pages, register_pages
from sfapp.service.workspace import Workspace

RETRIES = 100
"""How often, ten times a second or more, a simulated user looks again before a test fails."""


FIRST_PAUSES = (0.005, 0.01, 0.02, 0.04)
"""Seconds between the first looks: most of what is waited for comes within them."""


async def until_read(workspace: Workspace) -> None:
    """Wait until a workspace has read its packets: before, what is missing may still arrive."""
    while workspace.status().kind == "reading":
        await asyncio.sleep(0.02)


class PatientUser(User):
    """A user that waits for the result of an action as long as a busy machine may take."""

    async def should_see(self, target: Any = None, *, retries: int = RETRIES, **filters: Any) -> None:
        if not await self._turns(True, target, **filters):
            await super().should_see(target, retries=retries, **filters)

    async def should_not_see(self, target: Any = None, *, retries: int = RETRIES, **filters: Any) -> None:
        if not await self._turns(False, target, **filters):
            await super().should_not_see(target, retries=retries, **filters)

    async def _turns(
        self, is_seen: bool, target: Any, *, kind: Any = None, marker: Any = None, content: Any = None
    ) -> bool:
        """Wait shortly until something is seen, or no longer; return whether that came."""
        for pause in FIRST_PAUSES:
            if self._sees(target, kind, marker, content) is is_seen:
                return True
            await asyncio.sleep(pause)
        return False


@asynccontextmanager
async def simulated(workspace: Workspace) -> AsyncIterator[User]:
    """Someone with the app open over a workspace, whose thread runs meanwhile."""
    load_pages()
    # At the end of a simulation NiceGUI unloads the packages in which pages were defined; ours must stay.
    modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "sfapp"}
    try:
        async with user_simulation() as user:
            register_pages(workspace)
            workspace.start()
            yield PatientUser(user.http_client)
            # Cancelling a queue that is just being emptied can get lost in Python 3.11: let it rest first.
            await asyncio.sleep(0.06)
            workspace.close()
    finally:
        sys.modules.update(modules)
        # FastAPI's caches keep page functions for good, and these the workspace: not the store with it.
        vars(workspace).clear()
        # Every simulation collects garbage twice: not among what earlier ones left behind for good.
        gc.freeze()
