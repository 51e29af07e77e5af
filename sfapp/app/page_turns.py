"""Build pages a few at a time, so that the event loop answers others in between.

Each page takes the event loop for about 50 ms. Of 300 that were requested at once, every part would come
before the answer to a later request, also if their clients had left meanwhile.
"""

from __future__ import annotations

import asyncio

import anyio
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sfapp.app.turns import Turns

AT_ONCE = 2
"""Maximum number of pages that are built at the same time; others wait in order."""

HELD_S = 2.0
"""Seconds after which another page is begun, because this one waits for a slow bucket and takes no time."""

WAIT_S = 30.0
"""Seconds after which a client that waits for its page is refused."""

_BUSY = "sfapp builds other pages; try again later\n"

_NOT_PAGES = "/_nicegui"
"""Beginning of the addresses of NiceGUI's files, uploads and websocket."""


class PageTurns:
    """Middleware around NiceGUI. A client that leaves while it waits gets no turn.

    Args:
        app: the application that builds pages.
        wait_s, held_s: as ``WAIT_S`` and ``HELD_S``.
    """

    def __init__(self, app: ASGIApp, *, wait_s: float = WAIT_S, held_s: float = HELD_S) -> None:
        self.app = app
        self._held_s = held_s
        self._turns = Turns(AT_ONCE, wait_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["endpoint"] = self.app  # By which NiceGUI tells an address without a page.
        if not _is_page(scope):
            await self.app(scope, receive, send)
            return
        request = _Request(receive)
        try:
            has_turn = await self._take(request)
        except TimeoutError:
            await PlainTextResponse(_BUSY, 503)(scope, request, send)
            return
        if not has_turn:
            return

        def give_back() -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = False
                self._turns.give_back()

        async def releasing_send(message: Message) -> None:
            give_back()  # The page is built; its client may read it slowly.
            await send(message)

        timer = asyncio.get_running_loop().call_later(self._held_s, give_back)
        try:
            await self.app(scope, request, releasing_send)
        finally:
            timer.cancel()
            give_back()

    async def _take(self, request: _Request) -> bool:
        """Wait for a turn; return False if the client left before.

        Raises:
            TimeoutError: there was none in time.
        """
        has_turn = False
        try:
            async with anyio.create_task_group() as group:

                async def watch() -> None:
                    await request.left()
                    group.cancel_scope.cancel()

                group.start_soon(watch)
                await self._turns.take()
                has_turn = True
                group.cancel_scope.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return has_turn


class _Request:
    """What receives the messages of a request, also those that were received while it waited."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._received: list[Message] = []

    async def __call__(self) -> Message:
        return self._received.pop(0) if self._received else await self._receive()

    async def left(self) -> None:
        """Return once the client has disconnected."""
        while not self._received or self._received[-1]["type"] != "http.disconnect":
            self._received.append(await self._receive())


def _is_page(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return False
    path: str = scope["path"]
    return not path.removeprefix(scope.get("root_path", "")).startswith(_NOT_PAGES)
