"""Whether a browser is there for a page that was asked for: crawlers and ``curl`` never connect.

NiceGUI keeps a page for its browser until that connects, and its ``connected()`` also returns where the page
was removed because none did. What a page does from then on, only ``connected`` of this module decides.
"""

from __future__ import annotations

import asyncio
import gc

from nicegui import Client, ui
from nicegui.client import ClientConnectionTimeout

CONNECT_S = 45.0
"""Seconds for which a page is kept for its browser: scripts of 4 MB over a slow line take half a minute."""

MAX_WAITING = 32
"""Pages kept that no browser has connected to, 1 MB each; the oldest are removed first. A browser whose page
was removed loads it again."""

TIDY_S = 5.0
"""Seconds from the removal of a page until its memory is freed, together with that of pages removed since."""

TIDY_PAGES = 16
"""Removed pages whose memory is freed at once."""

waiting: dict[str, Client] = {}
"""Pages without a browser, by their ids, the oldest first."""


class RemovedPages:
    """Frees the memory of removed pages, whose elements refer to each other.

    Python looks for such by itself only once a quarter as many objects were made as there are.
    """

    def __init__(self) -> None:
        self._count = 0
        self._due: asyncio.TimerHandle | None = None

    def add(self) -> None:
        """Count a page that is being removed."""
        self._count += 1
        loop = asyncio.get_running_loop()
        if self._due is None or self._count == TIDY_PAGES:
            self._cancel()
            self._due = loop.call_later(0 if self._count >= TIDY_PAGES else TIDY_S, self._free)

    def _free(self) -> None:
        self._cancel()
        self._count = 0
        gc.collect()

    def _cancel(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


def expect_browser() -> None:
    """Count the page that is being built among those without a browser until one connects."""
    client = ui.context.client

    def drop() -> None:
        waiting.pop(client.id, None)

    waiting[client.id] = client
    client.on_connect(drop)
    client.on_delete(drop)
    client.on_delete(_removed.add)
    while len(waiting) > MAX_WAITING:
        oldest = next(iter(waiting.values()))
        waiting.pop(oldest.id)
        if oldest.id in Client.instances:
            oldest.delete()


async def connected() -> bool:
    """Wait for the browser of the page that is being built; the response is sent meanwhile.

    Returns:
        Whether it connected. Otherwise the page was removed, and nothing more is to be drawn or followed.
    """
    client = ui.context.client
    try:
        await client.connected(CONNECT_S)
    except ClientConnectionTimeout:
        if client.id in Client.instances:
            client.delete()
    return not client.is_deleted


_removed = RemovedPages()
