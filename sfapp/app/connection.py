"""Wait for the browser of a requested page, and remove pages whose browser never connects.

Crawlers and ``curl`` never connect. NiceGUI's ``connected()`` also returns if the page was removed because no
browser connected; ``connected`` of this module distinguishes the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from nicegui import Client, ui
from nicegui.client import ClientConnectionTimeout
from nicegui.element import Element
from nicegui.elements.mixins.value_element import ValueElement
from starlette.responses import Response

CONNECT_S = 45.0
"""Seconds for which a page waits for its browser: 4 MB of scripts take half a minute over a slow line."""

MAX_WAITING = 12
"""Pages kept that no browser has connected to, 1 MB each; the oldest are removed first. A browser whose page
was removed loads it again."""

MAX_LEFT = 100
"""Pages kept that their browsers have left, for the 30 s in which these may come back after an interruption.
Those that were left first are removed first."""

waiting: dict[str, Client] = {}
"""Built pages without a browser by id, oldest first."""

left: dict[str, Client] = {}
"""Pages that their browsers have left, by id, in the order in which they were left."""


class _Page(Client):
    """NiceGUI's page, counted while no browser has connected, and freed at once when it is removed."""

    def build_response(self, *arguments: Any) -> Response:
        waiting[self.id] = self
        _remove_oldest(waiting, MAX_WAITING)
        return super().build_response(*arguments)

    def delete(self) -> None:
        if self.id in Client.instances:  # NiceGUI removes a page once for each document that showed it.
            super().delete()

    def remove_elements(self, elements: Iterable[Element]) -> None:
        removed = list(elements)
        super().remove_elements(removed)
        for element in removed:
            _release(element)


def expect_browser() -> None:
    """Count the page under construction, once it is built, as one without a browser until one connects.

    Not earlier: to remove a page that is being built would be an error.
    """
    client = ui.context.client
    client.__class__ = _Page  # NiceGUI makes it, of a class that cannot be chosen.
    client.on_connect(_stop_counting)
    client.on_disconnect(_count_left)
    client.on_delete(_stop_counting)


def _stop_counting(client: Client) -> None:
    waiting.pop(client.id, None)
    left.pop(client.id, None)


def _count_left(client: Client) -> None:
    if not client.has_socket_connection:
        left[client.id] = client
        _remove_oldest(left, MAX_LEFT)


def _release(element: Element) -> None:
    """Have a removed element call nothing any more when it changes.

    Through these functions elements refer to themselves and to what built them. Without them their memory is
    freed at once, instead of by a collection of garbage (garbage.py).
    """
    for changing in (element._classes, element._style, element._props):
        changing._change_handlers.clear()
    if isinstance(element, ValueElement):
        element._change_handlers.clear()


def _remove_oldest(pages: dict[str, Client], kept: int) -> None:
    for oldest in list(pages.values())[:-kept]:
        del pages[oldest.id]
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
