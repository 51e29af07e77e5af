"""Turns at work that only a few clients may cause at the same time."""

from __future__ import annotations

import asyncio


class Turns:
    """Turns, of which some are held at once; others wait in order.

    Attributes:
        waiting: number of clients that wait for one.

    Args:
        at_once: number of turns.
        wait_s: seconds after which a client that waits is refused.
    """

    def __init__(self, at_once: int, wait_s: float) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._wait_s = wait_s
        self.waiting = 0

    async def take(self) -> None:
        """Wait for a turn.

        Raises:
            TimeoutError: there was none in time.
        """
        self.waiting += 1
        try:
            async with asyncio.timeout(self._wait_s):
                await self._free.acquire()
        finally:
            self.waiting -= 1

    def give_back(self) -> None:
        """Let the next client have its turn."""
        self._free.release()
