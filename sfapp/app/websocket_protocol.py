"""Limit what a websocket's client can make the server keep.

uvicorn itself answers every ping at once, also of a client that reads none of the answers. It keeps a closed
connection for as long as its client does not read, and for ever one with headers that are not ASCII. The size
of messages is bounded by its own options.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import RejectConnection

from sfapp.app.stall_watch import STALL_DEADLINE_S, StallWatch


class BoundedWebSocketProtocol(WSProtocol):
    """Websocket protocol that drops a connection whose client does not read.

    Attributes:
        stall_s: the deadline in seconds.
    """

    stall_s = STALL_DEADLINE_S
    _stall: StallWatch

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._stall = StallWatch(transport, self.stall_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stall.end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except UnicodeError:  # wsproto decodes the headers of the handshake, the host's name as IDNA
            self.transport.write(self.conn.send(RejectConnection()))
            self.transport.close()
        if self.transport.is_closing():  # It stays until what was sent before is read.
            self._stall.begin()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self._stall.begin()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.begin()

    def keepalive_timeout(self) -> None:
        """Close the connection, also if its client does not read that."""
        super().keepalive_timeout()
        self._stall.begin()

    def handle_ping(self, event: Any) -> None:
        """Answer a ping, unless the client has not read earlier answers: it may be left unanswered then
        (RFC 6455, 5.5.3)."""
        if self.writable.is_set():
            super().handle_ping(event)
