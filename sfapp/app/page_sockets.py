"""Bound what the connection of a page keeps for its browser, and drop what no page sends over it.

Engine.IO, below Socket.IO, keeps every message until the browser has read it: also of one that answers pings
and reads nothing else, by long polling, or a few bytes at a time. It closes a connection only once all of
them are read, and leaves a traceback for a packet that it cannot decode.
"""

from __future__ import annotations

import asyncio
from typing import Any

from engineio import async_server, packet
from engineio.async_socket import AsyncSocket
from nicegui import core
from starlette.requests import ClientDisconnect

from sfapp.app.page_messages import note_dropped

MAX_UNREAD = 32 << 20
"""Characters of messages that wait for a browser, above which its connection is closed; the largest pages are
a few MB. The page connects again, and is loaded again if a message is missing."""

_PER_PACKET = 500
"""Bytes of a waiting packet without its text."""

_SENT_BY_PAGES = (packet.CLOSE, packet.PONG, packet.MESSAGE, packet.UPGRADE, packet.NOOP)

_DIGITS = tuple("0123456789")


class UnreadPackets(asyncio.Queue[packet.Packet | None]):
    """Packets that wait for a browser.

    Attributes:
        size: about what they take, in bytes.
    """

    size = 0

    def _put(self, item: packet.Packet | None) -> None:
        self.size += _size(item)
        super()._put(item)

    def _get(self) -> packet.Packet | None:
        item = super()._get()
        self.size -= _size(item)
        return item

    def discard(self) -> None:
        """Remove all packets."""
        while not self.empty():
            self.get_nowait()
            self.task_done()


class PageSocket(AsyncSocket):  # type: ignore[misc]  # Engine.IO has no types.
    """Connection of a page, over a websocket or by long polling."""

    queue: UnreadPackets

    async def send(self, pkt: packet.Packet) -> None:
        """Send a packet, or close the connection if its browser has not read the earlier ones."""
        if self.queue.size <= MAX_UNREAD or self.closing:
            await super().send(pkt)
            return
        await self.close(abort=True, reason=self.server.reason.TRANSPORT_ERROR)
        self.queue.discard()
        self.queue.put_nowait(None)  # which ends what sends them

    async def close(self, wait: bool = True, abort: bool = False, reason: str | None = None) -> None:
        """Close the connection without waiting until its browser has read everything."""
        await super().close(wait=False, abort=abort, reason=reason)

    async def receive(self, pkt: packet.Packet) -> None:
        """Take a packet, unless no page sends it."""
        is_text = isinstance(pkt.data, str | bytes)  # and no JSON, as which Engine.IO reads some
        if pkt.packet_type not in _SENT_BY_PAGES or (pkt.packet_type == packet.MESSAGE and not is_text):
            note_dropped("its type is none that pages send")
            return
        await super().receive(pkt)

    async def handle_post_request(self, environ: dict[str, Any]) -> None:
        """Take the packets of a request, unless they cannot be decoded."""
        try:
            await super().handle_post_request(environ)
        except (ValueError, LookupError) as error:
            note_dropped(str(error))

    async def _websocket_handler(self, websocket: Any) -> None:
        await super()._websocket_handler(_Checked(websocket))


class _Checked:
    """A websocket that a message which cannot be decoded ends as if its client had left."""

    def __init__(self, websocket: Any) -> None:
        self._websocket = websocket
        self.send = websocket.send
        self.close = websocket.close

    async def wait(self) -> str | bytes:
        """Wait for the next message.

        Raises:
            OSError: there is none.
        """
        message: str | bytes = await self._websocket.wait()
        if isinstance(message, str) and not message.startswith(_DIGITS):
            note_dropped("it has no type")
            raise OSError
        return message


def _size(item: packet.Packet | None) -> int:
    data = None if item is None else item.data
    return _PER_PACKET + (len(data) if isinstance(data, str | bytes) else 0)


def bound_sockets() -> None:
    """Have NiceGUI's server make connections of pages as ``PageSocket``."""
    engine = core.sio.eio
    engine.create_queue = UnreadPackets
    engine.http_compression = False  # It would hold the event loop up, for all pages.
    read_request = engine._async["translate_request"]

    async def read(*arguments: Any) -> dict[str, Any]:
        environ: dict[str, Any] = await read_request(*arguments)
        if not environ:
            raise ClientDisconnect
        return environ

    engine._async = {**engine._async, "translate_request": read}
    setattr(async_server.async_socket, AsyncSocket.__name__, PageSocket)
