"""Listen for the streams of all ranks of a session, and answer them.

One thread and one socket do all the work; ``StreamReceiver`` decides what a message means.
"""

from __future__ import annotations

import logging
import threading
import time
import warnings
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType

import zmq

from sfapp.packets.output import PacketOutput
from sfapp.stream.encryption import Keys, authenticating, bind
from sfapp.stream.frames import MOST_FRAMES, receive_frames
from sfapp.stream.live_state import LiveSnapshot, StepCallback
from sfapp.stream.socket_context import open_context
from sfapp.stream.stream_receiver import (
    ABANDON_AFTER_SECONDS,
    CLOSE_AFTER_SECONDS,
    MOST_RUNS,
    HeartbeatCallback,
    Route,
    SampleCallback,
    StreamReceiver,
)
from sfapp.stream.window_assembly import AssemblyCounts
from sfapp.terminal import printable

_LOG = logging.getLogger("sfapp")

_TICK_MS = 50
_BATCH_MESSAGES = 500  # messages between two rounds of periodic work
_RECEIVE_HIGH_WATER = 100
"""Number of messages of one connection that libzmq queues here. It uses 8 KiB for a small message that
arrives alone, so a longer queue for a thousand ranks would take gigabytes. Further messages wait in the
ranks' send queues."""
_SEND_HIGH_WATER = 10_000  # to one connection: a relay's carries the answers to all ranks of its node
_LINGER_MS = 500
_REPEAT_SECONDS = 60.0
"""Seconds after which the log says again that nothing can be written."""

_WORKS_SECONDS = 5.0
"""Seconds without a failed write, which is repeated every second, after which writing works."""

_UPLOAD_SECONDS = 8.0
"""Longest wait for a bucket at the end: ``sfapp run`` waits 10 s for the aggregator's process."""


class Aggregator:
    """Server that receives the streams of all ranks and writes packets.

    It listens as soon as it is created; ``run`` does the work on one thread.

    >>> with Aggregator(Path("packets"), "tcp://127.0.0.1:29765") as aggregator:
    ...     aggregator.run(stop)

    Args:
        root: the packet directory, or what uploads its packets (``sfapp.packets.output``); it is closed, too.
        endpoint: address to listen on; port 0 or ``*`` picks a free one.
        keys: keys of the session, required for any address that other machines can reach.
        close_after: seconds that a window waits for its last ranks once one has closed it.
        abandon_after: seconds after which a silent rank's unfinished window is written as a part.
        most_bytes: maximum size of windows in memory. Above it, windows are written before they are complete;
            if none can be, the rank with the largest open window is refused and writes parts instead. Above
            it no more rows are accepted of runs that cannot be written, and above twice the size of any.
        most_runs: runs that are remembered at the same time. Above that, the one that has been idle for
            longest is closed; while none is idle for ``abandon_after`` seconds, no further one is accepted.
        on_samples, on_heartbeat, on_steps: callbacks for system metrics, heartbeats and steps.

    Raises:
        StreamError: the endpoint is in use, or needs keys.
    """

    def __init__(
        self,
        root: Path | PacketOutput,
        endpoint: str,
        keys: Keys | None = None,
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
        self._receiver = StreamReceiver(
            output,
            self._deliver,
            close_after=close_after,
            abandon_after=abandon_after,
            most_bytes=most_bytes,
            most_runs=most_runs,
            on_samples=on_samples,
            on_heartbeat=on_heartbeat,
            on_steps=on_steps,
        )
        self._seen_failures = 0
        self._failed_at = 0.0
        self._reported_at: float | None = None  # None while writing works
        self._resources = ExitStack()
        self._resources.callback(output.close, _UPLOAD_SECONDS)
        try:
            output.start(self._note_failure)
            context = open_context()
            self._resources.callback(context.term)
            self._resources.enter_context(authenticating(context, keys))
            self._socket = context.socket(zmq.ROUTER)
            self._resources.callback(self._socket.close, linger=_LINGER_MS)
            self._socket.rcvhwm, self._socket.sndhwm = _RECEIVE_HIGH_WATER, _SEND_HIGH_WATER
            self.endpoint = bind(self._socket, endpoint, keys)
        except BaseException:
            self._resources.close()
            raise

    def snapshot(self) -> LiveSnapshot:
        """Return the current state of all ranks. Safe on any thread."""
        return self._receiver.snapshot()

    def now(self) -> LiveSnapshot:
        """Deprecated: use ``snapshot``."""
        warnings.warn("Aggregator.now() is now snapshot()", DeprecationWarning, stacklevel=2)
        return self.snapshot()

    @property
    def closed_runs(self) -> int:
        """Number of runs that were closed to make room for others; ``failures`` names them."""
        return self._receiver.closed_runs

    @property
    def counts(self) -> AssemblyCounts:
        """Counts of written windows and parts."""
        return self._receiver.assembler.counts

    @property
    def failures(self) -> tuple[str, ...]:
        """The newest failures, at most 256."""
        return tuple(self._receiver.assembler.failures)

    def run(self, stop: threading.Event) -> None:
        """Receive messages and write packets until ``stop`` is set; then write the remaining rows."""
        while not stop.is_set():
            self._socket.poll(_TICK_MS)
            self._receive_batch()
            self._receiver.run_due_work()
            self._report_failed_writes(time.monotonic())
        self._receive_batch()
        self._receiver.finish()

    def close(self) -> None:
        """Stop listening. Call it after ``run`` has returned, or instead of ``run``; safe to call again."""
        self._resources.close()

    def __enter__(self) -> Aggregator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note_failure(self, failure: str) -> None:
        self._receiver.assembler.failures.append(failure)
        _LOG.warning("%s", failure)

    def _report_failed_writes(self, now: float) -> None:
        """Log that packets cannot be written, once a minute, and that they can again."""
        if self.counts.failed > self._seen_failures:
            self._seen_failures, self._failed_at = self.counts.failed, now
            if self._reported_at is None or now - self._reported_at >= _REPEAT_SECONDS:
                self._reported_at = now
                reason = printable(self._receiver.assembler.failures[-1])
                _LOG.warning("packets cannot be written, so ranks keep their rows: %s", reason)
        elif self._reported_at is not None and now - self._failed_at >= _WORKS_SECONDS:
            self._reported_at = None
            _LOG.warning("packets are written again")

    # ---- messages -------------------------------------------------------------------------------

    def _receive_batch(self) -> None:
        for _ in range(_BATCH_MESSAGES):
            try:
                *route, last = receive_frames(self._socket)
            except zmq.Again:
                self._receiver.note_empty_queue()
                return
            if 0 < len(route) < MOST_FRAMES:
                names = tuple(frame.bytes for frame in route)
                self._receiver.receive(names, last.buffer, partial(_address, last, names))
            else:
                reason = f"more than {MOST_FRAMES} frames" if route else "one frame"
                self._receiver.count_fault(_address(last, ()), "malformed", reason)

    def _deliver(self, route: Route, answer: bytes) -> None:
        try:
            self._socket.send_multipart([*route, answer], zmq.NOBLOCK)
        except zmq.ZMQError:  # disconnected, or its queue is full: both sides repeat unanswered messages
            return


def _address(frame: zmq.Frame, route: tuple[bytes, ...]) -> str:
    """Return the address a message came from, with the number of the relay's client behind a relay."""
    try:
        address = str(frame.get("Peer-Address"))
    except (zmq.ZMQError, ValueError):  # not every transport has addresses
        address = "this machine"
    return f"{address}, client {route[-1].hex()[:16]} of its relay" if len(route) > 1 else address
