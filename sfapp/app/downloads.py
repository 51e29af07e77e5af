"""Create downloads while they are sent, a few at a time, and stop when their client disconnects.

Clients that read slowly or have left keep no other client from a download: one that left while it waited gets
no turn, a slow one loses its turn to those that wait, and one that waits for long is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from sfapp.app.answers import json_answer
from sfapp.app.turns import Turns

AT_ONCE = 2
"""Maximum number of simultaneous downloads; others wait. Each takes a core and up to 500 MB."""

WAIT_S = 30.0
"""Seconds after which a client that waits for its turn is refused."""

SLOW_S = 10.0
"""Seconds for which a client may let its download wait while others wait for a turn, in addition to those
granted by ``MIN_RATE``."""

MIN_RATE = 256 << 10
"""Bytes sent for each further second; the kernel takes some MB that the client has not read."""

_CHECK_S = 0.25
"""Seconds between two checks whether a client reads slowly."""


def download_turns(*, wait_s: float = WAIT_S) -> Turns:
    """Return turns for a kind of downloads."""
    return Turns(AT_ONCE, wait_s)


class MadeDownload(Response):
    """Response with a file whose parts are created on a thread while the client reads them.

    Once the client has disconnected, no further part is created.

    Args:
        parts: prepares the download on a thread and returns its parts; its error becomes the response.
        turns: shared by all downloads of a kind.
        slow_s: as ``SLOW_S``.
    """

    def __init__(
        self,
        parts: Callable[[], Iterator[bytes]],
        turns: Turns,
        *,
        media_type: str,
        headers: Mapping[str, str],
        slow_s: float = SLOW_S,
    ) -> None:
        super().__init__(media_type=media_type, headers=headers)
        self._parts = parts
        self._turns = turns
        self._slow_s = slow_s
        self._sent_headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pace = _Pace(send)
        try:
            async with anyio.create_task_group() as group:

                async def first(work: Awaitable[None]) -> None:
                    await work
                    group.cancel_scope.cancel()

                group.start_soon(first, _left(receive))
                group.start_soon(first, self._lost_its_turn(pace))
                await first(self._answer(scope, receive, pace))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._turns.take()
        except TimeoutError:
            busy = f"{AT_ONCE} such downloads are being made, and none ended in time: try again later"
            await json_answer({"error": busy}, 503)(scope, receive, send)
            return
        try:
            parts = await run_in_threadpool(self._parts)
            answer = StreamingResponse(parts, media_type=self.media_type, headers=self._sent_headers)
            await answer.stream_response(send)
        finally:
            self._turns.give_back()

    async def _lost_its_turn(self, pace: _Pace) -> None:
        """Return once the client has read slowly and another waits."""
        while not (self._turns.waiting and pace.waited_s() > self._slow_s + pace.sent / MIN_RATE):
            await asyncio.sleep(_CHECK_S)


class _Pace:
    """What sends a response, and measures how long it waits for the client.

    Attributes:
        sent: bytes of the parts that were handed over.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waited_s = 0.0
        self._since: float | None = None
        self.sent = 0

    async def __call__(self, message: Message) -> None:
        self._since = time.monotonic()
        try:
            await self._send(message)
        finally:
            self._waited_s += time.monotonic() - self._since
            self._since = None
        self.sent += len(message.get("body", b""))

    def waited_s(self) -> float:
        """Return the seconds for which parts waited for the client, until now."""
        return self._waited_s + (0.0 if self._since is None else time.monotonic() - self._since)


async def _left(receive: Receive) -> None:
    """Return once the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
