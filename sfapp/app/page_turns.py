"""Build pages a few at a time, so that the event loop answers others in between.

Each page takes the event loop for about 50 ms. Of 300 that were requested at once, every part would come
before the answer to a later request, also if their clients had left meanwhile.
"""

from __future__ import annotations

import asyncio

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

AT_ONCE = 4
"""Maximum number of pages that are built at the same time; others wait in order."""

WAIT_S = 30.0
"""Seconds after which a client that waits for its page is refused."""

_BUSY = "sfapp builds other pages; try again later\n"

_NOT_PAGES = "/_nicegui"
"""Beginning of the addresses of NiceGUI's files, uploads and websocket."""


class PageTurns:
    """Middleware around NiceGUI. A client that leaves while it waits gets no turn.

    Args:
        app: the application that builds pages.
        wait_s: as ``WAIT_S``.
    """

    def __init__(self, app: ASGIApp, *, wait_s: float = WAIT_S) -> None:
        self.app = app
        self._free = asyncio.Semaphore(AT_ONCE)
        self._wait_s = wait_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_page(scope):
            await self.app(scope, receive, send)
            return
        received: list[Message] = []
        if not await self._take(receive, received):
            if not any(message["type"] == "http.disconnect" for message in received):
                await PlainTextResponse(_BUSY, 503)(scope, receive, send)
            return
        is_held = True

        def give_back() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._free.release()

        async def next_message() -> Message:
            return received.pop(0) if received else await receive()

        async def releasing_send(message: Message) -> None:
            give_back()  # The page is built; its client may read it slowly.
            await send(message)

        try:
            await self.app(scope, next_message, releasing_send)
        finally:
            give_back()

    async def _take(self, receive: Receive, received: list[Message]) -> bool:
        """Wait for a turn; return False if there was none in time, or if the client has left.

        Args:
            received: receives the messages of the client that arrive meanwhile.
        """
        if not self._free.locked():
            await self._free.acquire()
            return True
        turn = asyncio.ensure_future(self._free.acquire())
        leaving = asyncio.ensure_future(_left(receive, received))
        try:
            await asyncio.wait({turn, leaving}, timeout=self._wait_s, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                leaving.result()  # Raises what was wrong with the request.
            has_turn = turn.done() and not leaving.done()
        except BaseException:
            has_turn = False
            raise
        finally:
            leaving.cancel()
            if not has_turn and not turn.cancel():
                self._free.release()
        return has_turn


def _is_page(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return False
    path: str = scope["path"]
    return not path.removeprefix(scope.get("root_path", "")).startswith(_NOT_PAGES)


async def _left(receive: Receive, received: list[Message]) -> None:
    """Return once the client has disconnected."""
    while not received or received[-1]["type"] != "http.disconnect":
        received.append(await receive())
