"""Wait for the browser of a requested page, and remove pages whose browser never connects.

Crawlers and ``curl`` never connect. NiceGUI's ``connected()`` also returns if the page was removed because no
browser connected; ``connected`` of this module distinguishes the two.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

from nicegui import Client, ui
from nicegui.client import ClientConnectionTimeout
from starlette.responses import Response

CONNECT_S = 45.0
"""Seconds for which a page waits for its browser: 4 MB of scripts take half a minute over a slow line."""

MAX_WAITING = 12
"""Pages kept that no browser has connected to, 1 MB each; the oldest are removed first. A browser whose page
was removed loads it again."""

TIDY_S = 5.0
"""Seconds from the removal of a page until its memory is freed, together with that of pages removed since."""

TIDY_PAGES = 4
"""Removed pages whose memory is freed at once."""

waiting: dict[str, Client] = {}
"""Built pages without a browser by id, oldest first."""


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
    """Count the page under construction, once it is built, as one without a browser until one connects.

    Not earlier: to remove a page that is being built would be an error.
    """
    client = ui.context.client
    make_response, delete = client.build_response, client.delete

    def delete_once() -> None:
        if client.id in Client.instances:  # NiceGUI removes a page once for each document that showed it.
            delete()

    def build_response(*arguments: Any) -> Response:
        waiting[client.id] = client
        _remove_oldest()
        return make_response(*arguments)

    def drop() -> None:
        waiting.pop(client.id, None)

    vars(client).update(build_response=build_response, delete=delete_once)
    client.on_connect(drop)
    client.on_delete(drop)
    client.on_delete(_removed.add)


def _remove_oldest() -> None:
    for oldest in list(waiting.values())[:-MAX_WAITING]:
        del waiting[oldest.id]
        oldest.delete()


def when_connected(begin: Callable[[], object]) -> None:
    """Call once, with the present element as context, when the browser of the page connects.

    A timer that is made earlier waits for the browser, and NiceGUI then sends the page as far as it has been
    built.
    """
    slot, has_begun = ui.context.slot, False

    def connect() -> None:  # It may connect again, after an interruption.
        nonlocal has_begun
        if not has_begun:
            has_begun = True
            with slot:
                begin()

    ui.context.client.on_connect(connect)


async def connected() -> bool:
    """Wait for the browser of the page under construction; the response is sent meanwhile.

    Returns:
        Whether it connected. Otherwise the page was removed and must not be drawn or updated any more.
    """
    client = ui.context.client
    try:
        await client.connected(CONNECT_S)
    except ClientConnectionTimeout:
        if client.id in Client.instances:
            client.delete()
    return not client.is_deleted


_removed = RemovedPages()
