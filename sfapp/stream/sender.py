"""Send a rank's stream: one daemon thread owns the socket and sends the content of the queue.

It runs inside training and fails open: errors are recorded, and training continues.
"""

from __future__ import annotations

import os
import socket as sockets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import zmq

from sfapp.errors import StreamError, describe_error
from sfapp.model.samples import AnySample
from sfapp.packets.job import JobRank
from sfapp.packets.sink import STREAM_VARIABLE
from sfapp.packets.threads import start_or_note
from sfapp.stream.capture_mailbox import StreamCaptureMailbox
from sfapp.stream.encryption import Keys, connect, is_local
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
from sfapp.stream.send_queue import SendQueue

_HEARTBEAT_SECONDS = 1.0
_CLOSING_HEARTBEAT_SECONDS = 0.25
_SILENT_SECONDS, _NEVER_CONNECTED_SECONDS = 10.0, 3.0
"""Seconds that ``close`` waits for an aggregator that has become silent or has never responded."""
_REOPEN_SECONDS = 1.0
"""Seconds that ``close`` waits for a response before it reconnects, doubled each time. libzmq's own pauses
may be long by then, but an aggregator that responds slowly to a thousand ranks must not receive new
connections every second."""
_HIGH_WATER = 64  # messages that libzmq may queue
_LINGER_MS = 200  # to deliver the last message
_RESTART_SECONDS = 1.0

SampleSource = Callable[[], Sequence[AnySample]]
EchoCallback = Callable[[Echo, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Destination of a recorder's stream, and limits of its send queue.

    Attributes:
        endpoint: address of the node's relay or of the aggregator, ``tcp://127.0.0.1:29766``.
        keys: keys of the session for an aggregator, ``keys.of_relay()`` for a relay. Required for any address
            that other machines can reach.
        batch_seconds: seconds for which steps are collected before they are sent.
        spool_memory_bytes: bound for unacknowledged windows in memory; above it, the oldest are written as
            parts.
        spool_disk_bytes: bound for those parts; above it, the oldest are discarded and counted.
        sources: called about once a second on the sender's thread for samples to send.
        on_echo: called on that thread with every answer to a heartbeat and the time it arrived (ns since
            1970).
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
        """Return options for a recorder's ``stream`` argument or the environment; None means no stream.

        Keys are read from the environment. With keys, an address of this machine is taken for the relay's.

        Raises:
            StreamError: the keys are invalid.
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
class SenderCounts:
    """Counts of a sender, and when it last received an answer (monotonic seconds)."""

    failed: int = 0
    received_at: float | None = None


class StreamSender:
    """Sender of the elements of a queue, in order, until they are acknowledged.

    Only ``close`` blocks. The socket is created and used on one thread, which ends with ``close``; a forked
    child has neither.

    Args:
        make_hello: makes the hello of a rank, given the sequence of its first element.
        failures: receives a message for each failure.
        mailbox: exchanges messages about captures; None for a stream without captures.
    """

    def __init__(
        self,
        options: StreamOptions,
        queue: SendQueue,
        incarnation: str,
        make_hello: Callable[[JobRank, int], StreamHello],
        failures: deque[str],
        mailbox: StreamCaptureMailbox | None = None,
    ) -> None:
        self.counts = SenderCounts()
        self._failures = failures
        self._options = options
        self._mailbox = mailbox or StreamCaptureMailbox(incarnation, lambda: 0)
        self._queue = queue
        self._incarnation = incarnation
        self._make_hello = make_hello
        self._sources = options.sources
        self._next = 0
        self._furthest = 0
        self._has_noted_answer = False
        self._sent_hello: StreamHello | None = None
        self._hello_of: tuple[object, ...] = ()  # content of the last hello
        self._next_heartbeat = 0.0
        self._deadline: float | None = None  # set by close
        self._reopen_seconds = _REOPEN_SECONDS
        self._closing_since = 0.0
        self._refused = ""
        self._wake, self._woken = sockets.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="sfapp-sender", daemon=True)
        self._is_started = start_or_note(self._thread, failures)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start_again(self) -> bool:
        """Return whether the thread has been started, and try once more if the system refused it."""
        self._is_started = self._is_started or start_or_note(self._thread, self._failures)
        return self._is_started

    def close(self, seconds: float) -> bool:
        """Send the rest of the queue, wait until it is acknowledged, and end the thread.

        Args:
            seconds: maximum wait; the wait for a silent aggregator ends earlier.

        Returns:
            Whether everything was acknowledged.
        """
        self._closing_since = time.monotonic()
        self._deadline = self._closing_since + seconds
        self._wake_thread()
        if self._is_started:
            self._thread.join(seconds + 1.0)
        if not self._thread.is_alive():
            self._wake.close()
            self._woken.close()
        return self._queue.first == self._queue.end

    def _wake_thread(self) -> None:
        try:
            self._wake.send(b"\0")
        except OSError:  # already awake, or ended
            return

    # ---- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                if self._run_connection():
                    return
                continue
            except Exception as error:  # fail-open: start again with a new socket
                self.counts.failed += 1
                self._failures.append(f"stream: {describe_error(error)}")
            if self._deadline is not None:
                return
            time.sleep(_RESTART_SECONDS)

    def _run_connection(self) -> bool:
        """Send and receive over one socket until closed; return False to continue with a new socket."""
        self._sent_hello, self._next = None, self._queue.first
        opened = time.monotonic()
        context: zmq.Context[Any] = zmq.Context()
        socket = context.socket(zmq.DEALER)
        try:
            socket.sndhwm = socket.rcvhwm = _HIGH_WATER
            socket.immediate = True  # queue nothing before a connection exists
            connect(socket, self._options.endpoint, self._options.keys)
            poller = zmq.Poller()
            poller.register(socket, zmq.POLLIN)
            poller.register(self._woken, zmq.POLLIN)
            while not self._is_done():
                closing = self._deadline is not None
                last_answer = max(opened, self.counts.received_at or 0.0)
                if closing and time.monotonic() > last_answer + self._reopen_seconds:
                    self._reopen_seconds *= 2
                    return False
                wait = min(self._options.batch_seconds, 0.05) if closing else self._options.batch_seconds
                for ready, _ in poller.poll(round(wait * 1000)):
                    if ready is socket:
                        self._receive(socket)
                    else:
                        self._take_wakes()
                self._queue.enforce_limits()
                if not self._refused:
                    self._send_heartbeat(socket)
                    self._send_elements(socket)
                    self._send_capture_messages(socket)
            self._send_bye(socket)
            return True
        finally:
            socket.close(linger=_LINGER_MS if self._deadline is not None else 0)
            context.term()

    def _is_done(self) -> bool:
        if self._deadline is None:
            return False
        now = time.monotonic()
        received_at = self.counts.received_at
        patience = _NEVER_CONNECTED_SECONDS if received_at is None else _SILENT_SECONDS
        silent = now > max(self._closing_since, received_at or 0.0) + patience
        delivered = self._queue.first == self._queue.end and self._mailbox.is_empty
        return delivered or bool(self._refused) or now > self._deadline or silent

    # ---- receiving ------------------------------------------------------------------------------

    def _take_wakes(self) -> None:
        try:
            while self._woken.recv(64):
                pass
        except OSError:
            return

    def _receive(self, socket: zmq.Socket[bytes]) -> None:
        """Process all responses that have arrived."""
        while int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            frames = socket.recv_multipart(zmq.NOBLOCK)
            try:
                answer = decode_from_aggregator(frames[-1])
            except StreamError as error:
                self._failures.append(str(error))
                continue
            if answer.incarnation == self._incarnation:
                self.counts.received_at = time.monotonic()
                self._take(answer)

    def _take(self, answer: FromAggregator) -> None:
        if isinstance(answer, Ack):
            self._queue.acknowledge(self._at_most_sent(answer.up_to_sequence))
            self._next = max(self._next, self._queue.first)
        elif isinstance(answer, Resend):
            if answer.hello:
                self._sent_hello = None
            wanted = 0 if answer.hello else self._at_most_sent(answer.sequence)
            self._next = max(self._queue.first, wanted)
        elif isinstance(answer, Echo):
            if self._options.on_echo is not None:
                self._options.on_echo(answer, time.time_ns())
        elif isinstance(answer, CaptureCommand | CaptureAck):
            self._mailbox.receive(answer)
        elif not self._refused:
            self._refused = answer.reason
            self._failures.append(f"the aggregator refuses this stream: {answer.reason}")

    def _at_most_sent(self, sequence: int) -> int:
        """Return the sequence of an answer, limited to the sequence that was sent: unsent messages cannot
        have arrived."""
        if sequence > self._furthest and not self._has_noted_answer:
            self._has_noted_answer = True
            self._failures.append(
                f"the aggregator answered for element {sequence}, but {self._furthest} were sent: only those "
                "count as received"
            )
        return min(sequence, self._furthest)

    # ---- sending --------------------------------------------------------------------------------

    def _send_heartbeat(self, socket: zmq.Socket[bytes]) -> None:
        """Send a heartbeat and the samples of all sources, if they are due."""
        now = time.monotonic()
        if now < self._next_heartbeat:
            return
        closing = self._deadline is not None
        self._next_heartbeat = now + (_CLOSING_HEARTBEAT_SECONDS if closing else _HEARTBEAT_SECONDS)
        rank = self._queue.newest_rank
        if rank is None or not self._ensure_hello(socket, rank):
            return
        head: dict[str, Any] = {"v": VERSION, "rank": rank.identity.rank, "incarnation": self._incarnation}
        samples = [sample for source in self._sources for sample in self._call(source)]
        if samples:
            self._send(socket, Samples(**head, samples=tuple(samples)))
        self._send(socket, Heartbeat(**head, sent=self._next, sent_ns=time.time_ns()))
        if closing:
            self._send_bye(socket)

    def _send_bye(self, socket: zmq.Socket[bytes]) -> None:
        """Send ``Bye`` once all elements were sent, so that the aggregator writes the last window soon."""
        rank, end = None if self._sent_hello is None else self._sent_hello.rank, self._queue.end
        if rank is not None and self._next == end:
            self._send(socket, Bye(v=VERSION, rank=rank, incarnation=self._incarnation, sequence=end))

    def _call(self, source: SampleSource) -> Sequence[AnySample]:
        try:
            return source()
        except Exception as error:  # fail-open: do not call this source again
            self._sources = tuple(other for other in self._sources if other is not source)
            self._failures.append(f"samples: {describe_error(error)}")
            return ()

    def _send_elements(self, socket: zmq.Socket[bytes]) -> None:
        """Send queued elements until the queue is empty or the connection accepts no more."""
        self._next = max(self._next, self._queue.first)
        while (found := self._queue.message(self._next)) is not None:
            if not self._ensure_hello(socket, found.rank) or not self._send(socket, found.message):
                return
            self._next = found.after
            self._furthest = max(self._furthest, found.after)
            if found.is_newest:  # Rows recorded from now on wait for the next batch.
                return

    def _send_capture_messages(self, socket: zmq.Socket[bytes]) -> None:
        """Send messages about captures until there are none or the connection accepts no more."""
        if self._mailbox.is_empty:
            return
        rank = self._queue.newest_rank
        if rank is None or not self._ensure_hello(socket, rank):
            return
        for message in self._mailbox.messages():
            if not self._send(socket, message):
                return

    def _ensure_hello(self, socket: zmq.Socket[bytes], rank: JobRank) -> bool:
        """Send a hello unless the same one was sent over this socket; return False if that failed."""
        sent = self._sent_hello
        of = (rank.identity, rank.job, rank.attempt)
        if sent is not None and all(map(is_, of, self._hello_of)):
            return True  # The usual case, found without making a hello for every message.
        hello = self._make_hello(rank, self._queue.first if sent is None else sent.first)
        if hello != sent and not self._send(socket, hello):
            return False
        self._sent_hello, self._hello_of = hello, of
        return True

    def _send(self, socket: zmq.Socket[bytes], message: Message) -> bool:
        try:
            socket.send(encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True
