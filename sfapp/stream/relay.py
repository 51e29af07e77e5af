"""One per node: the node's ranks connect here, and one connection leaves for the aggregator.

Forwards frames both ways and keeps nothing: what was on the way when a relay dies is asked for again. While
the aggregator is away it takes no more from the ranks, whose spools fill.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import zmq

from sfapp.stream.messages import MAX_MESSAGE_BYTES
from sfapp.stream.security import Keys, authenticating, bind, connect

_TICK_MS = 100
_AWAY_MS = 20  # between two attempts at handing a message on
_AT_ONCE = 500
_HIGH_WATER = 1000


@dataclass(slots=True)
class RelayCounts:
    """What has passed. ``dropped``: frames that are no message of a rank, or too long."""

    up: int = 0
    down: int = 0
    dropped: int = 0


class Relay:
    """Listens from when it is made; ``run`` forwards, on one thread, until it is told to stop.

    Args:
        endpoint: where this node's ranks connect; port 0 or ``*`` is chosen.
        aggregator: where the aggregator listens.
        keys: of the session; needed for any address but this machine's own. Ranks then need them too.

    Raises:
        StreamError: an endpoint is none, is taken, or needs keys.
    """

    def __init__(self, endpoint: str, aggregator: str, keys: Keys | None = None) -> None:
        self.counts = RelayCounts()
        self._held: list[bytes] | None = None
        self._resources = ExitStack()
        try:
            context: zmq.Context[Any] = zmq.Context()
            self._resources.callback(context.term)
            self._resources.enter_context(authenticating(context, keys))
            self._ranks = context.socket(zmq.ROUTER)
            self._resources.callback(self._ranks.close, linger=0)
            self._up = context.socket(zmq.DEALER)
            self._resources.callback(self._up.close, linger=0)
            for socket in (self._ranks, self._up):
                socket.rcvhwm = socket.sndhwm = _HIGH_WATER
            self._up.immediate = True  # nothing is queued for an aggregator that is not there
            connect(self._up, aggregator, keys)
            self.endpoint = bind(self._ranks, endpoint, None if keys is None else keys.of_relay())
        except BaseException:
            self._resources.close()
            raise

    def run(self, stop: threading.Event) -> None:
        """Forward until ``stop`` is set."""
        poller = zmq.Poller()
        poller.register(self._up, zmq.POLLIN)
        poller.register(self._ranks, zmq.POLLIN)
        while not stop.is_set():
            poller.modify(self._ranks, 0 if self._held else zmq.POLLIN)
            ready = dict(poller.poll(_AWAY_MS if self._held else _TICK_MS))
            if self._up in ready:
                self._pass_down()
            if self._held or self._ranks in ready:
                self._pass_up()

    def close(self) -> None:
        """Stop listening; again is no harm."""
        self._resources.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _pass_up(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                frames = self._held or self._ranks.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(frames) != 2 or len(frames[1]) > MAX_MESSAGE_BYTES:
                self.counts.dropped += 1
                continue
            self._held = frames
            try:
                self._up.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                return
            self._held = None
            self.counts.up += 1

    def _pass_down(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                frames = self._up.recv_multipart(zmq.NOBLOCK)
                self._ranks.send_multipart(frames, zmq.NOBLOCK)
            except zmq.ZMQError:  # no more, or for a rank that is gone
                return
            self.counts.down += 1
