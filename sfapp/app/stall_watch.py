"""Drop connections whose clients do not read what the server sends."""

from __future__ import annotations

import asyncio

STALL_DEADLINE_S = 20.0
"""Seconds after which a connection is dropped if its client reads nothing of what was sent."""


class StallWatch:
    """Watch over the unsent bytes of one connection.

    Args:
        seconds: time in which some of them must be sent.
    """

    def __init__(self, transport: asyncio.Transport, seconds: float) -> None:
        self._transport = transport
        self._seconds = seconds
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Watch until everything is sent, if something is unsent."""
        if self._timer is None:
            self._unsent = self._transport.get_write_buffer_size()
            if self._unsent:
                self._timer = asyncio.get_running_loop().call_later(self._seconds, self._check)

    def end(self) -> None:
        """Stop watching: the connection is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        """Drop the connection if the client has read nothing since the last check."""
        self._timer = None
        if 0 < self._unsent <= self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self.begin()
