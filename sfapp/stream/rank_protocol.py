"""Decide what a rank sends and what an answer means: the sender without its thread and socket."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

from msgspec import UNSET

from sfapp.errors import StreamError, describe_error
from sfapp.model.samples import AnySample
from sfapp.model.standstill import ProcessId, ProcessLook, ReportedPlace
from sfapp.packets.job import JobRank, process_seconds
from sfapp.stream.capture_mailbox import StreamCaptureMailbox
from sfapp.stream.message_parser import decode_from_aggregator
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
)
from sfapp.stream.process_looks import look_at
from sfapp.stream.send_queue import SendQueue

_HEARTBEAT_SECONDS = 1.0
_CLOSING_HEARTBEAT_SECONDS = 0.25

SampleSource = Callable[[], Sequence[AnySample]]
EchoCallback = Callable[[Echo, int], None]
PlaceCallback = Callable[[], ReportedPlace | None]

Send = Callable[[Message], bool]
"""Sends a message; returns False if the connection accepts no more."""


class RankProtocol:
    """One rank's side of the stream: the elements of a queue, in order, until they are acknowledged.

    Used on one thread.

    Args:
        make_hello: makes the hello of a rank, given the sequence of its first element.
        failures: receives a message for each failure.
        mailbox: exchanges messages about captures.
        sources, on_echo, place: as in ``StreamOptions``.
        clock: monotonic seconds.

    Attributes:
        received_at: when the last answer arrived; None before the first.
        refused: why the aggregator refuses this stream; empty if it does not.
    """

    def __init__(
        self,
        queue: SendQueue,
        incarnation: str,
        make_hello: Callable[[JobRank, int], StreamHello],
        failures: deque[str],
        mailbox: StreamCaptureMailbox,
        sources: tuple[SampleSource, ...] = (),
        on_echo: EchoCallback | None = None,
        place: PlaceCallback | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.received_at: float | None = None
        self.refused = ""
        self._queue = queue
        self._incarnation = incarnation
        self._make_hello = make_hello
        self._failures = failures
        self._mailbox = mailbox
        self._sources = sources
        self._on_echo = on_echo
        self._place = place
        self._look_at: Sequence[ProcessId] = ()
        self._clock = clock
        self._next = 0
        self._furthest = 0
        self._has_noted_answer = False
        self._sent_hello: StreamHello | None = None
        self._hello_of: tuple[object, ...] = ()  # content of the last hello
        self._next_heartbeat = 0.0

    @property
    def is_delivered(self) -> bool:
        """Whether everything was acknowledged."""
        return self._queue.first == self._queue.end and self._mailbox.is_empty

    def begin_connection(self) -> None:
        """Begin with a hello and the first element that is not acknowledged."""
        self._sent_hello, self._next = None, self._queue.first

    # ---- receiving ------------------------------------------------------------------------------

    def receive(self, frame: bytes) -> None:
        """Take one answer."""
        try:
            answer = decode_from_aggregator(frame)
        except StreamError as error:
            self._failures.append(str(error))
            return
        if answer.incarnation == self._incarnation:
            self.received_at = self._clock()
            self._take(answer)

    def _take(self, answer: FromAggregator) -> None:
        if isinstance(answer, Ack):
            self._queue.acknowledge(self._at_most_sent(answer.up_to_sequence))
            self._next = max(self._next, self._queue.first)
        elif isinstance(answer, Resend):
            if answer.hello or answer.sequence < self._queue.first:
                # Elements that are gone are named by the hello: another aggregator has acknowledged them.
                self._sent_hello = None
            wanted = 0 if answer.hello else self._at_most_sent(answer.sequence)
            self._next = max(self._queue.first, wanted)
        elif isinstance(answer, Echo):
            self._look_at = answer.look_at or ()
            if self._on_echo is not None:
                self._on_echo(answer, time.time_ns())
        elif isinstance(answer, CaptureCommand | CaptureAck):
            self._mailbox.receive(answer)
        elif not self.refused:
            self.refused = answer.reason
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

    def send_due(self, send: Send, closing: bool) -> None:
        """Send what is due, until the connection accepts no more."""
        self._queue.enforce_limits(self._clock())
        if not self.refused:
            self._send_heartbeat(send, closing)
            self._send_elements(send)
            self._send_capture_messages(send)

    def _send_heartbeat(self, send: Send, closing: bool) -> None:
        """Send a heartbeat and the samples of all sources, if they are due."""
        now = self._clock()
        if now < self._next_heartbeat:
            return
        self._next_heartbeat = now + (_CLOSING_HEARTBEAT_SECONDS if closing else _HEARTBEAT_SECONDS)
        rank = self._queue.newest_rank
        if rank is None or not self._ensure_hello(send, rank):
            return
        head: dict[str, Any] = {"v": VERSION, "rank": rank.identity.rank, "incarnation": self._incarnation}
        samples = [sample for source in self._sources for sample in self._call(source)]
        if samples:
            send(Samples(**head, samples=tuple(samples)))
        place, looks = self._read_place() or UNSET, self._looks() or UNSET
        age = process_seconds()
        send(
            Heartbeat(
                **head,
                sent=self._next,
                sent_ns=time.time_ns(),
                process_seconds=UNSET if age is None else age,
                place=place,
                looks=looks,
            )
        )
        if closing:
            self.send_bye(send)

    def send_bye(self, send: Send) -> None:
        """Send ``Bye`` once all elements were sent, so that the aggregator writes the last window soon."""
        rank, end = None if self._sent_hello is None else self._sent_hello.rank, self._queue.end
        if rank is not None and self._next == end:
            send(Bye(v=VERSION, rank=rank, incarnation=self._incarnation, sequence=end))

    def _call(self, source: SampleSource) -> Sequence[AnySample]:
        try:
            return source()
        except Exception as error:  # fail-open: do not call this source again
            self._sources = tuple(other for other in self._sources if other is not source)
            self._failures.append(f"samples: {describe_error(error)}")
            return ()

    def _read_place(self) -> ReportedPlace | None:
        try:
            return None if self._place is None else self._place()
        except Exception as error:  # fail-open: heartbeats continue without it
            self._place = None
            self._failures.append(f"place of the training thread: {describe_error(error)}")
            return None

    def _looks(self) -> tuple[ProcessLook, ...]:
        """Return the states of the processes that were asked for, once."""
        asked, self._look_at = self._look_at, ()
        found = (look_at(process) for process in asked)
        return tuple(look for look in found if look is not None)

    def _send_elements(self, send: Send) -> None:
        """Send queued elements until the queue is empty or the connection accepts no more."""
        self._next = max(self._next, self._queue.first)
        while (found := self._queue.message(self._next)) is not None:
            if not self._ensure_hello(send, found.rank) or not send(found.message):
                return
            self._next = found.after
            self._furthest = max(self._furthest, found.after)
            if found.is_newest:  # Rows recorded from now on wait for the next batch.
                return

    def _send_capture_messages(self, send: Send) -> None:
        """Send messages about captures until there are none or the connection accepts no more."""
        if self._mailbox.is_empty:
            return
        rank = self._queue.newest_rank
        if rank is None or not self._ensure_hello(send, rank):
            return
        for message in self._mailbox.messages():
            if not send(message):
                return

    def _ensure_hello(self, send: Send, rank: JobRank) -> bool:
        """Send a hello unless the same one was sent over this connection; return False if that failed."""
        sent = self._sent_hello
        of = (rank.identity, rank.job, rank.attempt)
        if sent is not None and all(map(is_, of, self._hello_of)):
            return True  # The usual case, found without making a hello for every message.
        hello = self._make_hello(rank, self._queue.first if sent is None else sent.first)
        if hello != sent and not send(hello):
            return False
        self._sent_hello, self._hello_of = hello, of
        return True
