"""A rank's end of the stream: one daemon thread that owns the socket and sends what the spool holds.

Part of the recorder, so it fails open: whatever happens here is noted, and training goes on.
"""

from __future__ import annotations

import os
import socket as sockets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import zmq

from sfapp.errors import StreamError, describe_error
from sfapp.model.samples import AnySample
from sfapp.packets.job import JobRank
from sfapp.packets.sink import STREAM_VARIABLE
from sfapp.stream.capture_mailbox import StreamCaptureMailbox
from sfapp.stream.messages import (
    VERSION,
    Ack,
    Bye,
    CaptureAck,
    CaptureCommand,
    Echo,
    FromAggregator,
    Heartbeat,
    Message,
    Resend,
    Samples,
    StreamHello,
    decode_from_aggregator,
    encode,
)
from sfapp.stream.security import Keys, connect, is_local
from sfapp.stream.send_queue import SendQueue

_BEAT_SECONDS = 1.0
_LAST_BEAT_SECONDS = 0.25  # while the recorder closes
_SILENT_SECONDS, _NEVER_HEARD_SECONDS = 10.0, 3.0
"""How long a recorder that closes waits for an aggregator that says nothing, or never did."""
_REOPEN_SECONDS = 1.0
"""A recorder that closes connects anew after so long, and then after twice as long each time: libzmq's own
pauses may be long by then, and an aggregator that is slow to answer a thousand ranks must not greet each of
them every second."""
_HIGH_WATER = 64  # messages that libzmq may hold
_LINGER_MS = 200  # for the goodbye
_RESTART_SECONDS = 1.0

SampleSource = Callable[[], Sequence[AnySample]]
EchoCallback = Callable[[Echo, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Where a recorder streams to, and what it may hold.

    Attributes:
        endpoint: of the node's relay or the aggregator, ``tcp://127.0.0.1:29766``.
        keys: of the session, to the aggregator; ``keys.of_relay()`` to a relay. Needed for any address but
            this machine's own.
        batch_seconds: how long a step waits to be sent together with others.
        spool_memory_bytes: unacknowledged windows in memory; beyond that, they are written as parts.
        spool_disk_bytes: of those parts; beyond that, the oldest are discarded, and counted.
        sources: asked about once a second, on the sender's thread, for what there is to say beside the steps.
        on_echo: told of every answer to a heartbeat and when it came (ns since 1970), on the same thread.
    """

    endpoint: str
    keys: Keys | None = None
    batch_seconds: float = 0.2
    spool_memory_bytes: int = 64 * 2**20
    spool_disk_bytes: int = 2**30
    sources: tuple[SampleSource, ...] = ()
    on_echo: EchoCallback | None = None

    @classmethod
    def of(cls, stream: StreamOptions | str | None) -> StreamOptions | None:
        """What was asked for, or else what the environment says; None to record without a stream.

        Keys come from the environment. Where there are some, an address of this machine is the relay's.

        Raises:
            StreamError: the endpoint or the keys cannot be used.
        """
        if isinstance(stream, StreamOptions):
            return stream
        endpoint = os.environ.get(STREAM_VARIABLE, "") if stream is None else stream
        if not endpoint:
            return None
        keys = Keys.from_environment()
        if keys is not None and is_local(endpoint):
            keys = keys.of_relay()
        return cls(endpoint=endpoint, keys=keys)


@dataclass(slots=True)
class StreamSenderCounts:
    """What a sender has done so far."""

    sent_messages: int = 0
    sent_again: int = 0
    failed: int = 0
    heard_at: float | None = None


class StreamSender:
    """Sends a spool's elements, in order, until they are acknowledged.

    Nothing here is waited for but in ``close``. The socket is made and used on one thread, which ends with
    ``close``; a forked child has none.

    Args:
        greeting: makes the hello of a team that elements belong to.
        failures: what goes wrong is put there.
        desk: what is asked and said of captures; None where nobody takes any.
    """

    def __init__(
        self,
        options: StreamOptions,
        spool: SendQueue,
        incarnation: str,
        greeting: Callable[[JobRank, int], StreamHello],
        failures: deque[str],
        desk: StreamCaptureMailbox | None = None,
    ) -> None:
        self.counts = StreamSenderCounts()
        self._failures = failures
        self._options = options
        self._desk = desk or StreamCaptureMailbox(incarnation, lambda: 0)
        self._spool = spool
        self._incarnation = incarnation
        self._greeting = greeting
        self._sources = options.sources
        self._next = 0
        self._furthest = 0
        self._greeted: StreamHello | None = None
        self._next_beat = 0.0
        self._deadline: float | None = None  # once closing
        self._patience = _REOPEN_SECONDS
        self._closing_since = 0.0
        self._refused = ""
        self._wake, self._woken = sockets.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="sfapp-sender", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def close(self, seconds: float) -> bool:
        """Send what is left, wait for it to be acknowledged, and end the thread.

        Args:
            seconds: how long at most; an aggregator that says nothing is waited for less.

        Returns:
            Whether everything was acknowledged.
        """
        self._closing_since = time.monotonic()
        self._deadline = self._closing_since + seconds
        self._rouse()
        self._thread.join(seconds + 1.0)
        if not self._thread.is_alive():
            self._wake.close()
            self._woken.close()
        return self._spool.first == self._spool.end

    def _rouse(self) -> None:
        try:
            self._wake.send(b"\0")
        except OSError:  # it is awake, or gone
            return

    # ---- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                if self._talk():
                    return
                continue
            except Exception as error:  # fail-open: begin again, on another socket
                self.counts.failed += 1
                self._failures.append(f"stream: {describe_error(error)}")
            if self._deadline is not None:
                return
            time.sleep(_RESTART_SECONDS)

    def _talk(self) -> bool:
        """Until closed: send and listen, over one socket. False to go on over another."""
        self._greeted, self._next = None, self._spool.first
        opened = time.monotonic()
        context: zmq.Context[Any] = zmq.Context()
        socket = context.socket(zmq.DEALER)
        try:
            socket.sndhwm = socket.rcvhwm = _HIGH_WATER
            socket.immediate = True  # nothing is queued for a peer that is not there
            connect(socket, self._options.endpoint, self._options.keys)
            poller = zmq.Poller()
            poller.register(socket, zmq.POLLIN)
            poller.register(self._woken, zmq.POLLIN)
            while not self._is_done():
                closing = self._deadline is not None
                if closing and time.monotonic() > max(opened, self.counts.heard_at or 0.0) + self._patience:
                    self._patience *= 2
                    return False
                wait = min(self._options.batch_seconds, 0.05) if closing else self._options.batch_seconds
                poller.poll(round(wait * 1000))
                self._listen(socket)
                self._spool.tighten()
                if not self._refused:
                    self._beat(socket)
                    self._send_elements(socket)
                    self._send_of_captures(socket)
            self._say_goodbye(socket)
            return True
        finally:
            socket.close(linger=_LINGER_MS if self._deadline is not None else 0)
            context.term()

    def _is_done(self) -> bool:
        if self._deadline is None:
            return False
        now = time.monotonic()
        heard_at = self.counts.heard_at
        patience = _NEVER_HEARD_SECONDS if heard_at is None else _SILENT_SECONDS
        silent = now > max(self._closing_since, heard_at or 0.0) + patience
        delivered = self._spool.first == self._spool.end and self._desk.is_empty
        return delivered or bool(self._refused) or now > self._deadline or silent

    # ---- listening ------------------------------------------------------------------------------

    def _listen(self, socket: zmq.Socket[bytes]) -> None:
        try:
            while self._woken.recv(64):
                pass
        except OSError:
            pass
        while socket.poll(0):
            frames = socket.recv_multipart(zmq.NOBLOCK)
            try:
                answer = decode_from_aggregator(frames[-1])
            except StreamError as error:
                self._failures.append(str(error))
                continue
            if answer.incarnation == self._incarnation:
                self.counts.heard_at = time.monotonic()
                self._take(answer)

    def _take(self, answer: FromAggregator) -> None:
        if isinstance(answer, Ack):
            self._spool.acknowledge(answer.up_to_sequence)
            self._next = max(self._next, self._spool.first)
        elif isinstance(answer, Resend):
            if answer.hello:
                self._greeted = None
            self._next = max(self._spool.first, 0 if answer.hello else answer.sequence)
        elif isinstance(answer, Echo):
            if self._options.on_echo is not None:
                self._options.on_echo(answer, time.time_ns())
        elif isinstance(answer, CaptureCommand | CaptureAck):
            self._desk.hear(answer)
        elif not self._refused:
            self._refused = answer.reason
            self._failures.append(f"the aggregator refuses this stream: {answer.reason}")

    # ---- sending --------------------------------------------------------------------------------

    def _beat(self, socket: zmq.Socket[bytes]) -> None:
        """Now and then say that this rank is here and where it is, and what its sources have to say."""
        now = time.monotonic()
        if now < self._next_beat:
            return
        closing = self._deadline is not None
        self._next_beat = now + (_LAST_BEAT_SECONDS if closing else _BEAT_SECONDS)
        team = self._spool.newest_team
        if team is None or not self._greet(socket, team):
            return
        head: dict[str, Any] = {"v": VERSION, "rank": team.identity.rank, "incarnation": self._incarnation}
        samples = [sample for source in self._sources for sample in self._asked(source)]
        if samples:
            self._send(socket, Samples(**head, samples=tuple(samples)))
        self._send(socket, Heartbeat(**head, sent=self._next, sent_ns=time.time_ns()))
        if closing:
            self._say_goodbye(socket)

    def _say_goodbye(self, socket: zmq.Socket[bytes]) -> None:
        """Once everything was sent: somebody waits for it to be on disk."""
        rank, end = None if self._greeted is None else self._greeted.rank, self._spool.end
        if rank is not None and self._next == end:
            self._send(socket, Bye(v=VERSION, rank=rank, incarnation=self._incarnation, sequence=end))

    def _asked(self, source: SampleSource) -> Sequence[AnySample]:
        try:
            return source()
        except Exception as error:  # fail-open: this one is asked no more
            self._sources = tuple(other for other in self._sources if other is not source)
            self._failures.append(f"samples: {describe_error(error)}")
            return ()

    def _send_elements(self, socket: zmq.Socket[bytes]) -> None:
        """Send what there is, as far as the connection takes it."""
        self._next = max(self._next, self._spool.first)
        while (found := self._spool.message(self._next)) is not None:
            message, after = found
            team = self._spool.team(self._next)
            if team is None or not self._greet(socket, team) or not self._send(socket, message):
                return
            self.counts.sent_again += self._next < self._furthest
            self._next = after
            self._furthest = max(self._furthest, after)

    def _send_of_captures(self, socket: zmq.Socket[bytes]) -> None:
        """Send what there is to say of captures, as far as the connection takes it."""
        team = self._spool.newest_team
        if team is None or self._desk.is_empty or not self._greet(socket, team):
            return
        for message in self._desk.messages():
            if not self._send(socket, message):
                return

    def _greet(self, socket: zmq.Socket[bytes], team: JobRank) -> bool:
        """Say who this is, if that was not said or has changed; False if nobody takes it."""
        known = self._greeted
        hello = self._greeting(team, self._spool.first if known is None else known.first)
        if hello == known:
            return True
        if not self._send(socket, hello):
            return False
        self._greeted = hello
        return True

    def _send(self, socket: zmq.Socket[bytes], message: Message) -> bool:
        try:
            socket.send(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        self.counts.sent_messages += 1
        return True
