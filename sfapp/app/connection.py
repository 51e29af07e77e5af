"""Whether a browser is there for a page that was asked for: crawlers and ``curl`` never connect.

NiceGUI keeps a page for its browser until that connects, and its ``connected()`` also returns where the page
was removed because none did. What a page does from then on, only ``connected`` of this module decides.
"""

from __future__ import annotations

from nicegui import Client, ui
from nicegui.client import ClientConnectionTimeout

CONNECT_S = 45.0
"""Seconds for which a page is kept for its browser: scripts of 4 MB over a slow line take half a minute."""

MAX_WAITING = 200
"""Pages kept that no browser has connected to; the oldest are removed first. Each takes about 1 MB."""

waiting: dict[str, Client] = {}
"""Pages without a browser, by their ids, the oldest first."""


def expect_browser() -> None:
    """Count the page that is being built among those without a browser until one connects."""
    client = ui.context.client

    def drop() -> None:
        waiting.pop(client.id, None)

    waiting[client.id] = client
    client.on_connect(drop)
    client.on_delete(drop)
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
