"""One per session: takes every rank's stream, writes packets, and knows the state of all ranks.

One thread, one socket. A rank's rows are acknowledged once they are in a packet on disk, so killing this
process loses nothing: the ranks send again what it had not written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import zmq

from sfapp.errors import StreamError, StreamVersionError
from sfapp.model.samples import AnySample
from sfapp.stream.capture_broker import Forwarding
from sfapp.stream.legacy import LegacyStreams
from sfapp.stream.live_state import Live, Now, StepSink
from sfapp.stream.messages import (
    MAX_MESSAGE_BYTES,
    VERSION,
    Ack,
    Bye,
    CapturePiece,
    CaptureSaid,
    Echo,
    FromAggregator,
    Heartbeat,
    Hello,
    LegacyTables,
    Message,
    Refused,
    Resend,
    Samples,
    decode_from_rank,
    encode,
    sender_of,
)
from sfapp.stream.peers import Element, Peer, take
from sfapp.stream.run_restarts import Attempts
from sfapp.stream.security import Keys, admitting, bind
from sfapp.stream.window_assembly import Assembly, AssemblyCounts

CLOSE_AFTER_SECONDS = 30.0
LATE_AFTER_SECONDS = 2.0
ABANDON_AFTER_SECONDS = 60.0
"""A rank of which nothing was heard for so long is taken for dead; if it comes back, it sends again."""

FORGET_AFTER_SECONDS = 3 * 3600.0
"""And nothing is kept of it after so long: an aggregator may serve one run after the other for months."""

_FAREWELL_SECONDS = 0.5
"""How long a window waits for its last ranks once one of its ranks has left."""

_TICK_MS = 50
_ASK_SECONDS = 0.25
_COUNT_SECONDS = 0.5  # between two looks at who has gone silent
_AT_ONCE = 500  # messages between two looks at what is due
_MOST_WAITING = 100
"""Messages of one connection that wait here: libzmq keeps 8 KiB for a small one that comes alone, so more of
a thousand ranks would be gigabytes. The others wait with their ranks, whose spools are bounded."""
_MOST_ANSWERS = 10_000  # to one connection: a relay's is that of all its node's ranks
_MOST_ASKED = 10_000
_MOST_FRAMES = 4
_LINGER_MS = 500
_REMEMBERED = 256

SampleSink = Callable[[Hello, Sequence[AnySample]], None]
"""Called on the aggregator's thread with what a rank measured beside its steps."""

HeartbeatSink = Callable[[Hello, Heartbeat], None]
"""Called on the aggregator's thread with every heartbeat."""


class Aggregator:
    """Listens from when it is made; ``run`` does the work, on one thread, until it is told to stop.

    >>> with Aggregator(Path("packets"), "tcp://127.0.0.1:29765") as aggregator:
    ...     aggregator.run(stop)

    Args:
        root: the packet directory.
        endpoint: where to listen; port 0 or ``*`` is chosen.
        keys: of the session; needed for any address but this machine's own.
        close_after: seconds that a window waits for its last ranks once one has closed it.
        abandon_after: seconds after which a silent rank's unfinished window is written as a part.
        most_bytes: rows kept in memory; beyond that, windows are written before they are complete, and where
            they cannot be written no more rows are taken.
        on_samples, on_heartbeat: told of what is not part of the steps; on_steps of these.

    Raises:
        StreamError: the endpoint is taken, or needs keys.
    """

    def __init__(
        self,
        root: Path,
        endpoint: str,
        keys: Keys | None = None,
        *,
        close_after: float = CLOSE_AFTER_SECONDS,
        abandon_after: float = ABANDON_AFTER_SECONDS,
        most_bytes: int = 2**30,
        on_samples: SampleSink | None = None,
        on_heartbeat: HeartbeatSink | None = None,
        on_steps: StepSink | None = None,
    ) -> None:
        self._root = root
        self._abandon_after = abandon_after
        self._most_bytes = most_bytes
        self._on_samples = on_samples
        self._on_heartbeat = on_heartbeat
        self._assembly = Assembly(root, close_after, LATE_AFTER_SECONDS, time.monotonic)
        self._live = Live(time.monotonic, on_steps)
        self._captures = Forwarding(
            root, lambda peer, answer: self._send(peer.route, answer), self._assembly.failures
        )
        self._legacy = LegacyStreams()
        self._peers: dict[str, Peer] = {}
        self._attempts: dict[str, Attempts] = {}
        self._asked: dict[str, float] = {}
        self._next_count = 0.0
        self._caught_up_at = time.monotonic()  # when nothing waited to be taken
        self._resources = ExitStack()
        try:
            context: zmq.Context[Any] = zmq.Context()
            self._resources.callback(context.term)
            self._resources.enter_context(admitting(context, keys))
            self._socket = context.socket(zmq.ROUTER)
            self._resources.callback(self._socket.close, linger=_LINGER_MS)
            self._socket.rcvhwm, self._socket.sndhwm = _MOST_WAITING, _MOST_ANSWERS
            self.endpoint = bind(self._socket, endpoint, keys)
        except BaseException:
            self._resources.close()
            raise

    def now(self) -> Now:
        """The state of all ranks, from any thread."""
        return self._live.now()

    @property
    def counts(self) -> AssemblyCounts:
        """What was written so far."""
        return self._assembly.counts

    @property
    def failures(self) -> tuple[str, ...]:
        """The newest things that went wrong, at most 256."""
        return tuple(self._assembly.failures)

    def run(self, stop: threading.Event) -> None:
        """Take messages and write packets until ``stop`` is set; then write what there is, and end."""
        while not stop.is_set():
            self._socket.poll(_TICK_MS)
            self._drain()
            self._look_after()
        self._drain()
        self._assembly.write_due(self._most_bytes, everything=True)
        self._acknowledge()
        for peer in self._peers.values():
            if peer.current is not None:
                self._assembly.abandon(peer.current)

    def close(self) -> None:
        """Stop listening; again is no harm. After ``run`` has ended, or instead of it."""
        self._resources.close()

    def __enter__(self) -> Aggregator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- messages -------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Take what has come, as long as there is room for it."""
        for _ in range(_AT_ONCE):
            try:
                *route, last = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self._caught_up_at = time.monotonic()
                return
            if 0 < len(route) < _MOST_FRAMES:
                self._take(tuple(frame.bytes for frame in route), last)
            else:
                self._live.fault(_address(last, ()), "malformed", f"{len(route) + 1} frames")

    def _take(self, route: tuple[bytes, ...], frame: zmq.Frame) -> None:
        self._live.messages += 1
        try:
            message = decode_from_rank(frame.buffer)
            if isinstance(message, LegacyTables):
                self._take_legacy(route, message, _address(frame, route))
            else:
                self._take_message(route, message)
        except StreamVersionError as error:
            self._live.fault(_address(frame, route), "newer_version", str(error))
            who = sender_of(frame.buffer)
            if who is not None:
                self._refuse(route, *who, str(error))
        except StreamError as error:
            kind = "oversized" if len(frame.buffer) > MAX_MESSAGE_BYTES else "malformed"
            self._live.fault(_address(frame, route), kind, str(error))

    def _take_message(self, route: tuple[bytes, ...], message: Message) -> None:
        now = time.monotonic()
        if isinstance(message, Hello):
            self._greet(route, message, now)
            return
        peer = self._peers.get(message.incarnation)
        if peer is None or peer.hello.rank != message.rank:
            self._ask_who(route, message, now)
            return
        peer.route, peer.heard_at = route, now
        self._live.heard(peer.hello)
        if isinstance(message, Element):
            self._take_element(peer, message, now)
        elif isinstance(message, Heartbeat):
            self._answer(peer, message, now)
        elif isinstance(message, Samples):
            if self._on_samples is not None:
                self._on_samples(peer.hello, message.samples)
        elif isinstance(message, CaptureSaid | CapturePiece):
            self._captures.take(peer, message)
        elif isinstance(message, Bye):
            self._live.leave(peer.hello)
            self._assembly.hurry(peer.undelivered, _FAREWELL_SECONDS)

    def _take_element(self, peer: Peer, element: Element, now: float) -> None:
        is_full = self._assembly.is_stuck and self._assembly.size > self._most_bytes
        try:
            if is_full or not take(peer, element, self._assembly, self._live):
                self._ask_again(peer, now)
        except StreamError as error:  # sending it again would change nothing: its rank writes parts instead
            self._refuse(peer.route, element.rank, element.incarnation, str(error))
            raise

    def _greet(self, route: tuple[bytes, ...], hello: Hello, now: float) -> None:
        if hello.rank >= hello.world_size:
            raise StreamError(f"rank {hello.rank} is outside a world of {hello.world_size}")
        if hello.run_id not in self._attempts:
            self._attempts[hello.run_id] = Attempts(self._root, hello.run_id)
        newest = self._assembly.newest.get(hello.run_id)
        offset = self._attempts[hello.run_id].offset(hello, newest)
        peer = self._peers.get(hello.incarnation)
        if peer is None:
            peer = Peer(hello, offset, route, expected=hello.first, heard_at=now, acknowledged=hello.first)
            self._peers[hello.incarnation] = peer
        peer.hello, peer.offset, peer.route, peer.heard_at = hello, offset, route, now
        self._live.greet(hello)

    def _ask_who(self, route: tuple[bytes, ...], message: Message, now: float) -> None:
        """Somebody who was here before this process: it says hello and what it has."""
        if now - self._asked.get(message.incarnation, float("-inf")) < _ASK_SECONDS:
            return
        if len(self._asked) > _MOST_ASKED:
            self._asked.clear()
        self._asked[message.incarnation] = now
        self._send(
            route,
            Resend(v=VERSION, rank=message.rank, incarnation=message.incarnation, sequence=0, hello=True),
        )

    def _ask_again(self, peer: Peer, now: float) -> None:
        if now - peer.asked_at < _ASK_SECONDS:
            return
        peer.asked_at = now
        hello = peer.hello
        self._send(
            peer.route,
            Resend(v=VERSION, rank=hello.rank, incarnation=hello.incarnation, sequence=peer.expected),
        )

    def _answer(self, peer: Peer, beat: Heartbeat, now: float) -> None:
        received_ns = time.time_ns()
        hello = peer.hello
        if self._on_heartbeat is not None:
            self._on_heartbeat(hello, beat)
        if beat.sent > peer.expected:
            self._ask_again(peer, now)
        self._send(
            peer.route,
            Echo(
                v=VERSION,
                rank=hello.rank,
                incarnation=hello.incarnation,
                sent_ns=beat.sent_ns,
                received_ns=received_ns,
                replied_ns=time.time_ns(),
            ),
        )
        self._send_ack(peer)  # the one before may have been lost

    def _take_legacy(self, route: tuple[bytes, ...], tables: LegacyTables, address: str) -> None:
        """A single-node sender of version 1: as if it had said the same in our words."""
        for message in self._legacy.translated(tables, address, self._expected):
            self._take_message(route, message)

    def _expected(self, incarnation: str) -> int | None:
        peer = self._peers.get(incarnation)
        return None if peer is None else peer.expected

    def _refuse(self, route: tuple[bytes, ...], rank: int, incarnation: str, reason: str) -> None:
        self._send(route, Refused(v=VERSION, rank=rank, incarnation=incarnation, reason=reason[:1000]))

    def _send(self, route: tuple[bytes, ...], answer: FromAggregator) -> None:
        try:
            self._socket.send_multipart([*route, encode(answer)], zmq.NOBLOCK)
        except zmq.ZMQError:  # it is gone, or takes nothing: it will ask, or be asked again
            return

    # ---- what is due ----------------------------------------------------------------------------

    def _look_after(self) -> None:
        if self._assembly.write_due(self._most_bytes):
            self._acknowledge()
        now = time.monotonic()
        self._captures.look(self._peers.values(), now)
        if now < self._next_count:
            return
        self._next_count = now + _COUNT_SECONDS
        for incarnation, peer in list(self._peers.items()):
            # Not what we let wait, over a slow disk say, is a rank's silence.
            if self._caught_up_at - peer.heard_at <= self._abandon_after:
                continue
            if peer.current is None or self._assembly.abandon(peer.current):
                del self._peers[incarnation]
        for run_id in self._attempts.keys() - self._live.forget(FORGET_AFTER_SECONDS):
            del self._attempts[run_id]
        del self._assembly.failures[:-_REMEMBERED]

    def _acknowledge(self) -> None:
        for peer in self._peers.values():
            if peer.durable() > peer.acknowledged:
                self._send_ack(peer)

    def _send_ack(self, peer: Peer) -> None:
        peer.acknowledged = peer.durable()
        hello = peer.hello
        self._send(
            peer.route,
            Ack(
                v=VERSION,
                rank=hello.rank,
                incarnation=hello.incarnation,
                up_to_sequence=peer.acknowledged,
            ),
        )


def _address(frame: zmq.Frame, route: tuple[bytes, ...]) -> str:
    """Where a message came from: the machine it connected from and, behind a relay, which of its clients."""
    try:
        address = str(frame.get("Peer-Address"))
    except (zmq.ZMQError, ValueError):  # not every transport has addresses
        address = "this machine"
    return f"{address}, client {route[-1].hex()[:16]} of its relay" if len(route) > 1 else address
