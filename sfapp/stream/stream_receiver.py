"""Take and answer the messages of all ranks: the aggregator without its socket.

Rows are acknowledged once they are in a packet on disk, so nothing is lost if this process is killed: the
ranks send unacknowledged rows again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path

from msgspec import UNSET

from sfapp.errors import StreamError, StreamVersionError
from sfapp.model.samples import AnySample
from sfapp.packets.output import PacketOutput
from sfapp.stream.capture_broker import CaptureBroker
from sfapp.stream.live_state import LiveSnapshot, RankStates, StepCallback
from sfapp.stream.message_parser import decode_from_rank, read_sender
from sfapp.stream.messages import (
    MAX_MESSAGE_BYTES,
    VERSION,
    Ack,
    Bye,
    CapturePiece,
    CaptureReport,
    Echo,
    FromAggregator,
    FromRank,
    Heartbeat,
    Message,
    Refused,
    Resend,
    Samples,
    StreamHello,
    encode,
)
from sfapp.stream.open_runs import OpenRun, OpenRuns
from sfapp.stream.rank_streams import Element, RankStream, check_hello, skip_gone, take_element
from sfapp.stream.silent_processes import SilentProcesses
from sfapp.stream.steady_time import AGGREGATOR_TIME
from sfapp.stream.window_assembly import WindowAssembler
from sfapp.terminal import quoted

CLOSE_AFTER_SECONDS = 30.0
LATE_AFTER_SECONDS = 2.0
ABANDON_AFTER_SECONDS = 60.0
"""Seconds without a message after which a rank counts as dead; if it returns, it sends its window again."""

REMOVE_AFTER_SECONDS = 3 * 3600.0
"""Seconds without a message after which a rank's state is removed: an aggregator may serve many runs."""

MOST_RUNS = 1_024
"""Runs that are remembered at the same time; each takes about 5 kB and a folder."""

MOST_RANKS = 2**17
"""Ranks, and processes of them, that are remembered at the same time in all runs; each takes about 5 kB."""

MOST_HELLO_BYTES = 1 << 30
"""Largest size of the hellos of all ranks in memory; further ranks have to wait."""

MAX_HELLO_BYTES = 64 * 1024
"""Longer hellos are dropped and counted: those of recorders have some hundred bytes, and they are kept."""

_BYE_SECONDS = 0.5
"""Seconds that a window waits for its last ranks once one of its ranks has left."""

_RESEND_SECONDS = 0.25  # between two requests to the same process
_CLEAN_UP_SECONDS = 0.5
_MAX_RESEND_TIMES = 10_000
_KEPT_FAILURES = 256
_MOST_OVERSHOOT = 2  # of the bytes in memory: between two rounds, or beside runs that cannot be written

Route = tuple[bytes, ...]
"""Leading frames of an answer, which name its receiver."""

SampleCallback = Callable[[StreamHello, Sequence[AnySample]], None]
"""Callback on the aggregator's thread for a rank's system metrics."""

HeartbeatCallback = Callable[[StreamHello, Heartbeat], None]
"""Callback on the aggregator's thread for every heartbeat."""


class StreamReceiver:
    """State of all streams of a session. Used on one thread, except ``snapshot``.

    Args:
        root: the packet directory, or what uploads its packets.
        deliver: sends an encoded answer along a route. It may fail silently: both sides repeat what is not
            answered.
        clock: monotonic seconds.
        close_after, abandon_after, most_bytes, most_runs, on_samples, on_heartbeat, on_steps: as of
            ``Aggregator``.

    Attributes:
        assembler: the windows that are not on disk.
        closed_runs: number of runs that were closed to make room for others.
    """

    def __init__(
        self,
        root: Path | PacketOutput,
        deliver: Callable[[Route, bytes], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        close_after: float = CLOSE_AFTER_SECONDS,
        abandon_after: float = ABANDON_AFTER_SECONDS,
        most_bytes: int = 2**30,
        most_runs: int = MOST_RUNS,
        on_samples: SampleCallback | None = None,
        on_heartbeat: HeartbeatCallback | None = None,
        on_steps: StepCallback | None = None,
    ) -> None:
        output = PacketOutput.of(root)
        self.assembler = WindowAssembler(output, close_after, LATE_AFTER_SECONDS, clock)
        self.closed_runs = 0
        self._deliver = deliver
        self._clock = clock
        self._abandon_after = abandon_after
        self._most_bytes = most_bytes
        self._on_samples = on_samples
        self._on_heartbeat = on_heartbeat
        self._live = RankStates(clock, on_steps)
        self._silent = SilentProcesses(self._live)
        self._captures = CaptureBroker(
            output.folder, lambda stream, answer: self._send(stream.route, answer), self.assembler.failures
        )
        self._streams: dict[str, RankStream] = {}
        self._hello_bytes = 0
        self._runs = OpenRuns(output, most_runs)
        self._resend_time: dict[str, float] = {}
        self._next_clean_up = self._next_room = 0.0
        self._caught_up_at = clock()  # when the receive queue was last empty

    def snapshot(self) -> LiveSnapshot:
        """Return the current state of all ranks. Safe on any thread."""
        return self._live.snapshot()

    def count_fault(self, address: str, kind: str, reason: str) -> None:
        """Count a message that is dropped."""
        self._live.count_fault(address, kind, reason)

    def note_empty_queue(self) -> None:
        """Note that all messages that had arrived were taken: ranks without one are silent."""
        self._caught_up_at = self._clock()

    def finish(self) -> None:
        """Write the remaining rows, because the aggregator ends."""
        self.assembler.write_due(self._most_bytes, everything=True)
        self._acknowledge()
        for stream in self._streams.values():
            if stream.current is not None:
                self.assembler.abandon(stream.current)

    # ---- messages -------------------------------------------------------------------------------

    def receive(self, route: Route, content: bytes | memoryview, address: Callable[[], str]) -> None:
        """Take one message.

        Args:
            route: leading frames of an answer to it.
            address: returns where it came from, for messages that are dropped.
        """
        self._live.messages += 1
        try:
            message = decode_from_rank(content)
            if isinstance(message, StreamHello) and len(content) > MAX_HELLO_BYTES:
                raise StreamError(f"hello of {len(content):,} bytes: the limit is {MAX_HELLO_BYTES:,}")
            self._dispatch(route, message)
        except StreamVersionError as error:
            self._live.count_fault(address(), "newer_version", str(error))
            sender = read_sender(content)
            if sender is not None:
                self._refuse(route, *sender, str(error))
        except StreamError as error:
            kind = "oversized" if len(content) > MAX_MESSAGE_BYTES else "malformed"
            self._live.count_fault(address(), kind, str(error))
            if isinstance(error.__cause__, OSError):  # such as a full disk: the rank sends it again
                self.assembler.counts.failed += 1
                self.assembler.failures.append(str(error))

    def _dispatch(self, route: Route, message: FromRank) -> None:
        now = self._clock()
        if isinstance(message, StreamHello):
            self._take_hello(route, message, now)
            return
        stream = self._streams.get(message.incarnation)
        if stream is None or stream.hello.rank != message.rank:
            self._request_hello(route, message, now)
            return
        stream.route, stream.received_at = route, now
        self._live.touch(stream.hello)
        self._runs.touch(stream.hello.run_id, now)
        if isinstance(message, Element):
            self._take_element(stream, message, now)
        elif isinstance(message, Heartbeat):
            self._take_heartbeat(stream, message, now)
        elif isinstance(message, Samples) and self._on_samples is not None:
            self._on_samples(stream.hello, message.samples)
        elif isinstance(message, CaptureReport | CapturePiece):
            self._captures.receive(stream, message)
        elif isinstance(message, Bye):
            self._live.set_left(stream.hello)
            self.assembler.write_within(stream.undelivered, _BYE_SECONDS)

    def _take_hello(self, route: Route, hello: StreamHello, now: float) -> None:
        stream = self._streams.get(hello.incarnation)
        hello_bytes = check_hello(hello, stream)
        if stream is None:
            self._check_room(now)
        grown = hello_bytes - (0 if stream is None else stream.hello_bytes)
        if self._hello_bytes + grown > MOST_HELLO_BYTES:
            raise StreamError(f"the rank has to wait: hellos take {self._hello_bytes:,} bytes")
        if hello.run_id not in self._runs and self._runs.is_full:
            self._make_room(hello.run_id, now)
        newest = self.assembler.newest.get(hello.run_id)
        entry = self._runs.join(hello, now).restarts.entry(hello, newest, now)
        if entry is None:
            return
        if stream is None:
            stream = self._streams[hello.incarnation] = RankStream.begin(hello, entry, route, now)
        self._hello_bytes += grown
        stream.hello, stream.hello_bytes = hello, hello_bytes
        skip_gone(stream, hello.first, self.assembler)
        stream.offset, stream.attempt = entry.offset, entry.label
        stream.route, stream.received_at = route, now
        self._live.add_rank(hello)

    def _check_room(self, now: float) -> None:
        """Make room for another rank by removing silent ones.

        Raises:
            StreamError: none is silent; the rank tries again.
        """
        if max(len(self._streams), len(self._live)) < MOST_RANKS:
            return
        if now >= self._next_room:
            self._next_room = now + _CLEAN_UP_SECONDS
            self._runs.keep(self._live.remove_silent(self._abandon_after), now)
        if max(len(self._streams), len(self._live)) >= MOST_RANKS:
            raise StreamError(f"the rank has to wait: {MOST_RANKS:,} ranks are connected")

    def _make_room(self, wanted: str, now: float) -> None:
        """Close the run that has been idle for longest. If it continues, its ranks connect again.

        Raises:
            StreamError: none can be closed; the rank of the run that is wanted tries again.
        """
        run_id, run = self._runs.idlest()
        idle_seconds = now - run.active_at
        if idle_seconds <= self._abandon_after or not self._close_run(run_id, run):
            idle = f"none has been idle for {self._abandon_after:g} s"
            raise StreamError(f"run {quoted(wanted)} has to wait: {self._runs.most:,} runs are open, {idle}")
        self.closed_runs += 1
        reason = f"to make room among {self._runs.most:,}, idle for {idle_seconds:.0f} s"
        self.assembler.failures.append(f"run {quoted(run_id)} was closed {reason}")

    def _close_run(self, run_id: str, run: OpenRun) -> bool:
        """Write and remove what is kept of a run; return False if it cannot be written."""
        found = (self._streams.get(incarnation) for incarnation in run.incarnations)
        streams = [stream for stream in found if stream is not None and stream.hello.run_id == run_id]
        if any(stream.waits_for_disk for stream in streams):
            return False
        if not all(stream.current is None or self.assembler.abandon(stream.current) for stream in streams):
            return False
        for stream in streams:
            self._remove(stream)
        self._live.remove_run(run_id, run.ranks)
        self._runs.remove(run_id)
        return True

    def _take_element(self, stream: RankStream, element: Element, now: float) -> None:
        if stream.lacks_hello_of(element):
            self._request_hello(stream.route, element, now)
            return
        most = self._most_bytes * (1 if stream.hello.run_id in self.assembler.failing else _MOST_OVERSHOOT)
        try:
            if self.assembler.size > most or not take_element(stream, element, self.assembler, self._live):
                self._request_resend(stream, now)
        except StreamError as error:  # sending it again would not help: the rank writes parts instead
            self._refuse(stream.route, element.rank, element.incarnation, str(error))
            raise

    def _take_heartbeat(self, stream: RankStream, heartbeat: Heartbeat, now: float) -> None:
        received_ns = AGGREGATOR_TIME.ns()
        hello = stream.hello
        self._runs.hear(hello, stream.attempt, heartbeat.process_seconds, now)
        if self._on_heartbeat is not None:
            self._on_heartbeat(hello, heartbeat)
        place = heartbeat.place or None
        self._live.set_place(hello, place)
        self._silent.take(heartbeat.looks or (), place)
        if heartbeat.sent > stream.expected:
            self._request_resend(stream, now)
        self._send(
            stream.route,
            Echo(
                v=VERSION,
                rank=hello.rank,
                incarnation=hello.incarnation,
                sent_ns=heartbeat.sent_ns,
                received_ns=received_ns,
                replied_ns=AGGREGATOR_TIME.ns(),
                look_at=self._silent.asked_of(place) or UNSET,
            ),
        )
        self._send_ack(stream)  # the previous one may have been lost

    def _request_hello(self, route: Route, message: Message, now: float) -> None:
        """Request the identity and first element of a process that an earlier aggregator knew."""
        if now - self._resend_time.get(message.incarnation, float("-inf")) < _RESEND_SECONDS:
            return
        if len(self._resend_time) > _MAX_RESEND_TIMES:
            self._resend_time.clear()
        self._resend_time[message.incarnation] = now
        self._send(
            route,
            Resend(v=VERSION, rank=message.rank, incarnation=message.incarnation, sequence=0, hello=True),
        )

    def _request_resend(self, stream: RankStream, now: float) -> None:
        if now - stream.resend_requested_at < _RESEND_SECONDS:
            return
        stream.resend_requested_at = now
        hello = stream.hello
        self._send(
            stream.route,
            Resend(v=VERSION, rank=hello.rank, incarnation=hello.incarnation, sequence=stream.expected),
        )

    def _refuse(self, route: Route, rank: int, incarnation: str, reason: str) -> None:
        self._send(route, Refused(v=VERSION, rank=rank, incarnation=incarnation, reason=reason[:1000]))

    def _send(self, route: Route, answer: FromAggregator) -> None:
        self._deliver(route, encode(answer))

    # ---- periodic work -------------------------------------------------------------------------

    def run_due_work(self) -> None:
        """Write and acknowledge windows that are due, and remove ranks that have been silent for too long."""
        if self.assembler.write_due(self._bound):
            self._acknowledge()
        elif self.assembler.size > self._bound:
            self._refuse_largest()
        now = self._clock()
        self._captures.poll(self._streams.values(), now)
        if now < self._next_clean_up:
            return
        self._next_clean_up = now + _CLEAN_UP_SECONDS
        self._silent.update()
        for stream in list(self._streams.values()):
            # Measured from when the queue was last empty: a rank whose messages wait here is not silent.
            if self._caught_up_at - stream.received_at <= self._abandon_after or stream.waits_for_disk:
                continue
            if stream.current is None or self.assembler.abandon(stream.current):
                self._remove(stream)
        self._runs.keep(self._live.remove_silent(REMOVE_AFTER_SECONDS), now)
        del self.assembler.failures[:-_KEPT_FAILURES]

    @property
    def _bound(self) -> int:
        """Bytes in memory above which windows are written early, or a rank is refused."""
        return self._most_bytes * (_MOST_OVERSHOOT if self.assembler.failing else 1)

    def _refuse_largest(self) -> None:
        """Refuse the stream with the largest open window, of which a part is written: nothing else can be
        written. Its rank writes parts from now on.
        """
        others = (each for each in self._streams.values() if each.hello.run_id not in self.assembler.failing)
        opened = ((each.current.size, each) for each in others if each.current is not None)
        size, stream = max(opened, key=itemgetter(0), default=(0, None))
        if stream is None or stream.current is None or not self.assembler.abandon(stream.current):
            return
        hello = stream.hello
        reason = f"the aggregator holds more than {self._most_bytes:,} bytes of open windows"
        self._refuse(stream.route, hello.rank, hello.incarnation, reason)
        name = f"rank {hello.rank} of run {quoted(hello.run_id)}"
        self.assembler.failures.append(f"{name} was refused with {size:,} bytes: {reason}")
        self._remove(stream)

    def _remove(self, stream: RankStream) -> None:
        del self._streams[stream.hello.incarnation]
        self._hello_bytes -= stream.hello_bytes
        self._runs.remove_stream(stream.hello)

    def _acknowledge(self) -> None:
        for stream in self._streams.values():
            if stream.acknowledge():
                self._send_ack(stream)

    def _send_ack(self, stream: RankStream) -> None:
        stream.acknowledge()
        hello, up_to = stream.hello, stream.acknowledged
        ack = Ack(v=VERSION, rank=hello.rank, incarnation=hello.incarnation, up_to_sequence=up_to)
        self._send(stream.route, ack)
