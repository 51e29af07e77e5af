"""Stream a recorder's windows to an aggregator: ``StreamWriter`` is a ``PacketSink``.

Windows that the aggregator has not acknowledged when the recorder is closed go to a local sink as this rank's
parts, as after a failed gather. Readers merge them, so nothing is lost.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import get_args

from msgspec import UNSET

from sfapp.errors import StreamError
from sfapp.model.capture import CaptureKind
from sfapp.model.standstill import PlaceSource, ReportedPlace
from sfapp.packets.job import JobRank, process_seconds
from sfapp.packets.sink import STREAM_VARIABLE, LocalSinkFactory
from sfapp.packets.window_rows import WindowBuffer
from sfapp.stream.capture_mailbox import StreamCaptureMailbox
from sfapp.stream.encryption import check_endpoint
from sfapp.stream.messages import VERSION, StreamHello
from sfapp.stream.place_reporter import PlaceReporter
from sfapp.stream.send_queue import SendQueue
from sfapp.stream.sender import Sender, SenderFactory, StreamOptions, StreamSender
from sfapp.stream.system_sampler import SystemSampler

NOT_ACKNOWLEDGED = "the aggregator did not acknowledge it before the recorder was closed"


class StreamWriter:
    """Sink with a send queue, a sender, a system sampler, and a local sink for undelivered windows.

    Args:
        options: destination and limits of the stream.
        local_sink: creates the sink for windows that could not be delivered.
        make_sender, sampler: replaced in simulations, which have no threads.

    Raises:
        StreamError: the endpoint is invalid, or needs keys.
    """

    def __init__(
        self,
        options: StreamOptions,
        local_sink: LocalSinkFactory,
        make_sender: SenderFactory = StreamSender,
        sampler: SystemSampler | None = None,
    ) -> None:
        self.incarnation = secrets.token_hex(8)
        self._process = os.getpid()
        self._first_window: dict[str, int] = {}
        check_endpoint(options.endpoint, options.keys)
        self._local = local_sink()
        self._places: PlaceReporter | None = None
        self._sampler = sampler or SystemSampler(self.failures)
        options = replace(
            options,
            sources=(*options.sources, self._sampler.samples),
            on_echo=options.on_echo or self._sampler.on_echo,
            place=options.place or self._place,
        )
        self._queue = SendQueue(
            self.incarnation, options.spool_memory_bytes, options.spool_disk_bytes, self.failures
        )
        self.mailbox = StreamCaptureMailbox(self.incarnation, self._sampler.clock_offset_ns)
        self._sender: Sender = make_sender(
            options, self._queue, self.incarnation, self._make_hello, self.failures, self.mailbox
        )
        self._is_closed = False
        self._finishing = threading.Lock()

    @property
    def written(self) -> deque[Path]:
        """Parts of windows that the stream did not deliver."""
        return self._local.written

    @property
    def failures(self) -> deque[str]:
        """The newest failures."""
        return self._local.failures

    @property
    def pending(self) -> int:
        """Number of closed windows that are neither acknowledged nor on disk nor discarded."""
        return len(self._queue.undelivered()) if not self._is_closed else self._local.pending

    @property
    def lost_steps(self) -> int:
        """Steps that were discarded because the send queue was full."""
        return self._queue.lost_steps

    def follow(self, places: PlaceSource) -> None:
        """Report where the training thread is with every heartbeat from now on."""
        self._places = PlaceReporter(places)

    def _place(self) -> ReportedPlace | None:
        return None if self._places is None else self._places.report()

    def begin_window(self, rank: JobRank, buffer: WindowBuffer) -> None:
        """Queue a window, whose steps are sent as the buffer fills."""
        if self._process == os.getpid():
            self._first_window.setdefault(rank.attempt, buffer.number)
            self._sampler.set_identity(rank.identity)
            self._queue.open(rank, buffer)

    def end_window(self, rank: JobRank, buffer: WindowBuffer, last: bool = False) -> bool:
        """Close the window; return False in a forked child, which has no sender."""
        if self._process != os.getpid():
            return False
        self._queue.close(rank, buffer)
        if not self._sender.start_again():
            self._queue.enforce_limits(time.monotonic())  # the sender's work otherwise
        return True

    def close(self, seconds: float) -> None:
        """Deliver the queued windows within ``seconds``, and write the others as parts."""
        self._finish(NOT_ACKNOWLEDGED, seconds)

    def save_parts(self, reason: str, seconds: float) -> None:
        """Write as ``close`` does, but keep half of the time for parts."""
        self._finish(reason, seconds / 2)

    def _finish(self, reason: str, seconds: float) -> None:
        """Deliver or write the rest once. The process may end as soon as this returns, so a second thread
        (the training thread and the one that handles SIGTERM may both arrive here) waits for the first."""
        if not self._finishing.acquire(blocking=False):
            self._sender.close(seconds)  # The first waits no longer than the second may.
            if not self._finishing.acquire(timeout=2 * max(1.0, seconds)):
                return
        try:
            if not self._is_closed:
                self._is_closed = True
                self._finish_once(reason, seconds)
        finally:
            self._finishing.release()

    def _finish_once(self, reason: str, seconds: float) -> None:
        try:
            self._sampler.close()
            self._sender.close(seconds)
        finally:  # Ctrl-C ends the wait, not the rows.
            self._note_undelivered()
            for rank, buffer in self._queue.undelivered():
                self._local.end_window(rank.of_process(self.incarnation).alone(reason), buffer, last=True)
            self._local.close(max(1.0, seconds))

    def _note_undelivered(self) -> None:
        """Say that windows stay on this machine: a relay between may hide that no aggregator answers."""
        left, rank = self._queue.windows_with_steps, self._queue.newest_rank
        if left and rank is not None:
            self.failures.append(
                f"stream: windows that were not acknowledged: {left}; they are parts in {rank.job.root}"
            )

    def _make_hello(self, rank: JobRank, first: int) -> StreamHello:
        identity, job, age = rank.identity, rank.job, process_seconds()
        return StreamHello(
            v=VERSION,
            rank=identity.rank,
            incarnation=self.incarnation,
            run_id=job.run_id,
            attempt=rank.attempt,
            first_window=self._first_window.get(rank.attempt, 0),
            first=first,
            world_size=job.world_size,
            local_rank=identity.local_rank,
            node_rank=identity.node_rank,
            hostname=identity.hostname,
            attributes=dict(identity.attributes) or UNSET,
            understands=get_args(CaptureKind),
            process_seconds=UNSET if age is None else age,
            wrapper=job.wrapper,
            parallelism=job.parallelism,
            prefetch=job.prefetch,
            model_fit=job.model_fit,
            recorder=job.recorder,
            extra=job.extra,
        )


def stream_sink(stream: StreamOptions | str | None, local_sink: LocalSinkFactory) -> StreamWriter:
    """Return the sink of a recorder that streams to ``stream`` or to the address in the environment.

    Raises:
        StreamError: neither names an endpoint, or the endpoint or the keys cannot be used.
    """
    options = StreamOptions.of(stream)
    if options is None:
        raise StreamError(f"no address to stream to: pass tcp://HOST:PORT or set {STREAM_VARIABLE}")
    return StreamWriter(options, local_sink)
