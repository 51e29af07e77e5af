"""Send a rank's stream: one daemon thread owns the socket and sends the content of the queue.

It runs inside training and fails open: errors are recorded, and training continues.
"""

from __future__ import annotations

import os
import socket as sockets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import zmq

from sfapp.errors import describe_error
from sfapp.packets.job import JobRank
from sfapp.packets.sink import STREAM_VARIABLE
from sfapp.packets.threads import start_or_note
from sfapp.stream.capture_mailbox import StreamCaptureMailbox
from sfapp.stream.encryption import Keys, is_local
from sfapp.stream.messages import Message, StreamHello, encode
from sfapp.stream.rank_protocol import EchoCallback, PlaceCallback, RankProtocol, SampleSource
from sfapp.stream.reconnection import Connection
from sfapp.stream.send_queue import SendQueue
from sfapp.stream.socket_context import open_context

_SILENT_SECONDS, _NEVER_CONNECTED_SECONDS = 10.0, 3.0
"""Seconds that ``close`` waits for an aggregator that has become silent or has never responded."""
_REOPEN_SECONDS = 1.0
"""Seconds that ``close`` waits for a response before it reconnects, doubled each time. libzmq's own pauses
may be long by then, but an aggregator that responds slowly to a thousand ranks must not receive new
connections every second."""
_HIGH_WATER = 64  # messages that libzmq may queue
_LINGER_MS = 200  # to deliver the last message
_RESTART_SECONDS = 1.0


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
        place: called on that thread before every heartbeat: where the training thread is.
    """

    endpoint: str
    keys: Keys | None = None
    batch_seconds: float = 0.2
    spool_memory_bytes: int = 64 * 2**20
    spool_disk_bytes: int = 2**30
    sources: tuple[SampleSource, ...] = ()
    on_echo: EchoCallback | None = None
    place: PlaceCallback | None = None

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


class Sender(Protocol):
    """Delivers the elements of a queue."""

    def start_again(self) -> bool:
        """Return whether it works, and try to start it if it does not."""

    def close(self, seconds: float) -> bool:
        """Deliver the rest within ``seconds`` and end; return whether everything was acknowledged.

        Safe to call on another thread meanwhile; the shorter time counts.
        """


SenderFactory = Callable[
    [
        "StreamOptions",
        SendQueue,
        str,
        Callable[[JobRank, int], StreamHello],
        deque[str],
        StreamCaptureMailbox,
    ],
    Sender,
]
"""Makes a sender from the arguments of ``StreamSender``."""


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
        self._failures = failures
        self._options = options
        self._queue = queue
        self._protocol = RankProtocol(
            queue,
            incarnation,
            make_hello,
            failures,
            mailbox or StreamCaptureMailbox(incarnation, lambda: 0),
            options.sources,
            options.on_echo,
            options.place,
        )
        self._deadline: float | None = None  # set by close
        self._reopen_seconds = _REOPEN_SECONDS
        self._closing_since = 0.0
        self._wakes: tuple[sockets.socket, sockets.socket] | None = None  # from ``close``, to the thread
        self._thread = threading.Thread(target=self._run, name="sfapp-sender", daemon=True)
        self._is_started = False
        self.start_again()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start_again(self) -> bool:
        """Return whether the thread has been started, and try once more if the system refused it."""
        if not self._is_started and self._open_wakes():
            self._is_started = start_or_note(self._thread, self._failures)
        return self._is_started

    def _open_wakes(self) -> bool:
        """Open the sockets by which ``close`` wakes the thread; return False if the system refuses them."""
        if self._wakes is None:
            try:
                self._wakes = sockets.socketpair()
            except OSError as error:  # The process has no file descriptors left.
                self._note(describe_error(error))
                return False
            for end in self._wakes:
                end.setblocking(False)
        return True

    def close(self, seconds: float) -> bool:
        """Send the rest of the queue, wait until it is acknowledged, and end the thread.

        Args:
            seconds: maximum wait; the wait for a silent aggregator ends earlier.

        Returns:
            Whether everything was acknowledged.
        """
        now = time.monotonic()
        if self._deadline is None:
            self._closing_since, self._deadline = now, now + seconds
        else:
            self._deadline = min(self._deadline, now + seconds)
        self._wake_thread()
        if self._is_started:
            self._thread.join(seconds + 1.0)
        if not self._thread.is_alive():
            for end in self._wakes or ():
                end.close()
        return self._queue.first == self._queue.end

    def _wake_thread(self) -> None:
        if self._wakes is None:  # There is no thread.
            return
        try:
            self._wakes[0].send(b"\0")
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
                self._note(describe_error(error))
            if self._deadline is not None:
                return
            time.sleep(_RESTART_SECONDS)

    def _run_connection(self) -> bool:
        """Send and receive over one socket until closed; return False to continue with a new socket."""
        self._protocol.begin_connection()
        opened = time.monotonic()
        context = open_context()
        socket = context.socket(zmq.DEALER)
        connection: Connection | None = None
        try:
            socket.sndhwm = socket.rcvhwm = _HIGH_WATER
            socket.immediate = True  # queue nothing before a connection exists
            connection = Connection(socket, self._options.endpoint, self._options.keys, self._note)
            poller = zmq.Poller()
            poller.register(socket, zmq.POLLIN)
            assert self._wakes is not None
            woken = self._wakes[1]
            poller.register(woken, zmq.POLLIN)
            send = partial(_send, socket)
            while not self._is_done():
                closing = self._deadline is not None
                last_answer = max(opened, self._protocol.received_at or 0.0)
                if closing and time.monotonic() > last_answer + self._reopen_seconds:
                    self._reopen_seconds *= 2
                    return False
                wait = min(self._options.batch_seconds, 0.05) if closing else self._options.batch_seconds
                for ready, _ in poller.poll(round(wait * 1000)):
                    if ready is socket:
                        self._receive(socket)
                    else:
                        _take_wakes(woken)
                connection.tend()
                self._protocol.send_due(send, closing)
            self._protocol.send_bye(send)
            return True
        finally:
            if connection is not None:
                connection.close()
            socket.close(linger=_LINGER_MS if self._deadline is not None else 0)
            context.term()

    def _note(self, reason: str) -> None:
        failure = f"stream: {reason}"
        if failure not in self._failures:
            self._failures.append(failure)

    def _is_done(self) -> bool:
        if self._deadline is None:
            return False
        now = time.monotonic()
        received_at = self._protocol.received_at
        patience = _NEVER_CONNECTED_SECONDS if received_at is None else _SILENT_SECONDS
        silent = now > max(self._closing_since, received_at or 0.0) + patience
        delivered = self._protocol.is_delivered
        return delivered or bool(self._protocol.refused) or now > self._deadline or silent

    def _receive(self, socket: zmq.Socket[bytes]) -> None:
        """Process all responses that have arrived."""
        while int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._protocol.receive(socket.recv_multipart(zmq.NOBLOCK)[-1])


def _take_wakes(woken: sockets.socket) -> None:
    try:
        while woken.recv(64):
            pass
    except OSError:
        return


def _send(socket: zmq.Socket[bytes], message: Message) -> bool:
    try:
        socket.send(encode(message), zmq.NOBLOCK)
    except zmq.Again:
        return False
    return True
