"""Limit the size, the number and the duration of requests in uvicorn's HTTP protocol.

uvicorn itself reads request headers of any size, waits forever for the rest of a request, reads requests far
ahead of their responses, and keeps the response for a client that does not read it. Bodies are bounded by
``sfapp.app.security``, which knows the addresses that accept files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from sfapp.app.stall_watch import STALL_DEADLINE_S, StallWatch

MAX_HEAD = 64 << 10
"""Maximum size of a request's line and headers in bytes. Browsers send a few kB; the longest query of a view
is 8 kB."""

HEAD_DEADLINE_S = 20.0
"""Seconds in which the headers must arrive, from the start of the connection or the first byte of a later
request."""

BODY_DEADLINE_S = 20.0
"""Seconds in which the body must arrive, in addition to those granted by ``MIN_BODY_RATE``."""

MIN_BODY_RATE = 64 << 10
"""Bytes of body for each further second: the largest file (16 MB) may take four minutes."""

LINGER_S = 1.0
"""Seconds for which a refused client's data are discarded: closing at once would destroy the response."""

MAX_PIPELINED = 100
"""Requests of a connection that may wait for the responses to earlier ones; browsers send the next one after
the response. uvicorn reads 256 kB more with each response, which may hold 10,000 requests, 1 kB each."""

_PER_HEADER = 4
"""Bytes of a header without its name and value: colon, space and line end."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """HTTP protocol that refuses large headers with 431 and slow requests with 408, and closes the
    connection.

    A connection without a request, or with another response in progress, is closed without a response.

    Attributes:
        head_s, body_s, stall_s: the deadlines in seconds.
    """

    head_s = HEAD_DEADLINE_S
    body_s = BODY_DEADLINE_S
    stall_s = STALL_DEADLINE_S
    _stall: StallWatch

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes = 0  # of the current message, trailers included
        self._unparsed = 0  # received since the parser reported anything
        self._body_bytes = 0
        self._body_began = 0.0
        self._is_in_head = False
        self._is_in_body = False
        self._is_refused = False
        self._answered: RequestResponseCycle | None = None

    # --- the connection -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._stall = StallWatch(transport, self.stall_s)
        self._set_deadline(self.head_s, self._on_late_head)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        self._stall.end()
        super().connection_lost(exc)
        self._notify_disconnected()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._deadline is None and not self._is_in_body:
            self._set_deadline(self.head_s, self._on_late_head)
        self._unparsed += len(data)
        super().data_received(data)
        if self._head_bytes + self._unparsed > MAX_HEAD:
            self._refuse(431, f"the request's headers are larger than {MAX_HEAD} bytes")

    def handle_websocket_upgrade(self) -> None:
        if self._is_too_large:
            return
        self._is_in_body = False
        if self.cycle is not None and not self.cycle.response_complete:
            # Its response would be written into the websocket, however little the client reads.
            self._refuse(400, "a response is not complete")
            return
        self._clear_deadline()
        self._head_bytes = self._unparsed = 0
        super().handle_websocket_upgrade()

    # --- what the parser reports ----------------------------------------------------------------------

    @property
    def _is_too_large(self) -> bool:
        return self._is_refused or self._head_bytes > MAX_HEAD

    def on_message_begin(self) -> None:
        self._head_bytes = self._body_bytes = 0
        self._is_in_head = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        if not self._is_too_large:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + _PER_HEADER)
        if not self._is_too_large:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        if self._is_too_large:
            return
        if len(self.pipeline) >= MAX_PIPELINED:
            self._refuse(429, f"more than {MAX_PIPELINED} requests wait")  # a response would be out of order
            return
        self._is_in_head, self._is_in_body = False, True
        self._body_began = self.loop.time()
        self._set_deadline(self.body_s, self._on_late_body)
        super().on_headers_complete()
        if not self.pipeline:
            self._answered = self.cycle

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        self._body_bytes += len(body)
        if not self._is_too_large:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed = 0
        self._is_in_body = False
        self._clear_deadline()
        if not self._is_too_large:
            super().on_message_complete()

    def _count_head(self, size: int) -> None:
        self._unparsed = 0
        self._head_bytes += size

    # --- deadlines of reading -------------------------------------------------------------------------

    def _set_deadline(self, seconds: float, on_late: Callable[[], None]) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, on_late)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_late_head(self) -> None:
        self._refuse(408, f"the request's headers took more than {self.head_s:g} s")

    def _on_late_body(self) -> None:
        """Refuse a body that arrives too slowly, unless it waits for its reader here."""
        left = self._body_began + self.body_s + self._body_bytes / MIN_BODY_RATE - self.loop.time()
        if self.flow.read_paused:
            left = max(left, self.body_s)
        if left > 0:
            self._set_deadline(left, self._on_late_body)
        else:
            self._refuse(408, f"the request's body came more slowly than {MIN_BODY_RATE} bytes a second")

    # --- refusing -------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP."""
        self._refuse(400, msg)

    def _refuse(self, status: int, message: str) -> None:
        """Send the response if the client would read it as the response to this request, and close the
        connection."""
        if self._is_refused:
            return
        self._is_refused = True
        self._clear_deadline()
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            return
        can_answer = self._can_answer(status)
        self._notify_disconnected()
        if not can_answer:
            self.transport.close()
            return
        content = f"{HTTPStatus(status).phrase}: {message}\n".encode()
        head = (
            b"content-type: text/plain; charset=utf-8\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n" % len(content)
        )
        self.transport.write(STATUS_LINE[status] + head + content)
        self.loop.call_later(LINGER_S, self.transport.close)
        self._stall.begin()

    def _notify_disconnected(self) -> None:
        """Notify the request that is being answered that its client has left: uvicorn notifies only the last
        one, which may wait for this one."""
        for cycle in (self._answered, self.cycle):
            if cycle is not None:
                cycle.disconnected = True
                cycle.message_event.set()

    def _can_answer(self, status: int) -> bool:
        """Return whether the client reads the next bytes as the response to the current request."""
        if self.pipeline:
            return False
        if self._is_in_body:
            return self.cycle is None or not self.cycle.response_started
        has_begun = self._is_in_head or status != 408
        return has_begun and (self.cycle is None or self.cycle.response_complete)

    # --- clients that do not read ---------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.begin()

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._answered = self.pipeline[-1][0]
        super().on_response_complete()
        self._stall.begin()
