"""Answer requests of a kind a few at a time, and none whose client has left."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

import anyio
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sfapp.app.turns import Turns

AT_ONCE = 2
"""Maximum number of requests of a kind that are worked on at the same time; others wait in order."""

HELD_S = 2.0
"""Seconds after which another one is begun, because this one waits for a slow bucket and takes no time."""

WAIT_S = 30.0
"""Seconds after which a client that waits for its turn is refused."""


class InTurn(ABC):
    """Middleware whose requests take turns. A client that leaves while it waits gets none.

    Args:
        app: the application that does the work.
        busy: answer to a client that has waited for too long.
        wait_s, held_s: as ``WAIT_S`` and ``HELD_S``.
    """

    def __init__(
        self, app: ASGIApp, busy: Response, *, wait_s: float = WAIT_S, held_s: float = HELD_S
    ) -> None:
        self.app = app
        self._busy = busy
        self._held_s = held_s
        self._turns = Turns(AT_ONCE, wait_s)

    @abstractmethod
    def takes_turn(self, scope: Scope) -> bool:
        """Return whether a request is of the kind that takes turns."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.takes_turn(scope):
            await self.app(scope, receive, send)
            return
        request = _Request(receive)
        try:
            has_turn = await self._take(request)
        except TimeoutError:
            await self._busy(scope, request, send)
            return
        if not has_turn:
            return

        def give_back() -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = False
                self._turns.give_back()

        async def releasing_send(message: Message) -> None:
            give_back()  # The answer is made; its client may read it slowly.
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
