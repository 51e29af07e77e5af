"""Forward the streams of a node's ranks to the aggregator over one connection.

A relay stores nothing: messages in transit when it ends are requested again. While the aggregator is not
connected, the relay accepts nothing from the ranks, and their send queues fill.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType

import zmq

from sfapp.stream.encryption import Keys, authenticating, bind
from sfapp.stream.frames import receive_frames
from sfapp.stream.messages import MAX_MESSAGE_BYTES
from sfapp.stream.reconnection import Connection
from sfapp.stream.socket_context import open_context

_LOG = logging.getLogger("sfapp")

_TICK_MS = 100
_RETRY_MS = 20  # between two attempts to forward a message
_BATCH_MESSAGES = 500
_HIGH_WATER = 1000
_REPORT_SECONDS = 60.0


@dataclass(slots=True)
class RelayCounts:
    """Counts of messages forwarded up and down; ``dropped`` counts malformed or too long ones."""

    up: int = 0
    down: int = 0
    dropped: int = 0


class Relay:
    """Relay of one node. It listens as soon as it is created; ``run`` forwards on one thread.

    Args:
        endpoint: address for this node's ranks; port 0 or ``*`` picks a free one.
        aggregator: address of the aggregator.
        keys: keys of the session, required for any address that other machines can reach. Ranks then need
            them too.

    Raises:
        StreamError: an endpoint is invalid, is in use, or needs keys.
    """

    def __init__(self, endpoint: str, aggregator: str, keys: Keys | None = None) -> None:
        self.counts = RelayCounts()
        self._unsent: list[bytes] | None = None
        self._next_report = 0.0
        self._resources = ExitStack()
        try:
            context = open_context()
            self._resources.callback(context.term)
            self._resources.enter_context(authenticating(context, keys))
            self._ranks = context.socket(zmq.ROUTER)
            self._resources.callback(self._ranks.close, linger=0)
            self._up = context.socket(zmq.DEALER)
            self._resources.callback(self._up.close, linger=0)
            for socket in (self._ranks, self._up):
                socket.rcvhwm = socket.sndhwm = _HIGH_WATER
            self._up.immediate = True  # queue nothing before a connection exists
            self._connection = Connection(self._up, aggregator, keys, partial(_LOG.warning, "%s"))
            self._resources.callback(self._connection.close)
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
            poller.modify(self._ranks, 0 if self._unsent else zmq.POLLIN)
            ready = dict(poller.poll(_RETRY_MS if self._unsent else _TICK_MS))
            self._connection.tend()
            if self._up in ready:
                self._forward_down()
            if self._unsent or self._ranks in ready:
                self._forward_up()

    def close(self) -> None:
        """Stop listening. Safe to call again."""
        self._resources.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forward_up(self) -> None:
        for _ in range(_BATCH_MESSAGES):
            try:
                frames = self._unsent or [frame.bytes for frame in receive_frames(self._ranks)]
            except zmq.Again:
                return
            if len(frames) != 2 or len(frames[1]) > MAX_MESSAGE_BYTES:
                self._drop(len(frames))
                continue
            self._unsent = frames
            try:
                self._up.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                return
            self._unsent = None
            self.counts.up += 1

    def _drop(self, frames: int) -> None:
        """Count a message that is no rank's, and log it once a minute: nothing is answered."""
        self.counts.dropped += 1
        now = time.monotonic()
        if now < self._next_report:
            return
        self._next_report = now + _REPORT_SECONDS
        of = (
            "another relay, which must connect to the aggregator itself"
            if frames == 3
            else "no rank of sfapp"
        )
        _LOG.warning("%d messages dropped so far; the newest is of %s", self.counts.dropped, of)

    def _forward_down(self) -> None:
        for _ in range(_BATCH_MESSAGES):
            try:
                frames = self._up.recv_multipart(zmq.NOBLOCK)
                self._ranks.send_multipart(frames, zmq.NOBLOCK)
            except zmq.ZMQError:  # no more messages, or the rank has disconnected
                return
            self.counts.down += 1
