"""Exchange capture requests, reports and operator events with the aggregator, on a rank that streams.

Messages are queued until the aggregator has them on disk. If acknowledgements stop, all queued messages are
sent again from the first one (go-back-N), which suffices for few and rare messages.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from sfapp.errors import StreamError
from sfapp.files import read_regular
from sfapp.model.capture import CaptureRequest, RankCapture
from sfapp.packets.capture_mailbox import NEVER_CHOSEN, FileKind
from sfapp.packets.job import JobRank
from sfapp.stream.messages import (
    PIECE_BYTES,
    VERSION,
    CaptureAck,
    CaptureCommand,
    CapturePiece,
    CaptureReport,
)

MAX_BYTES = 64 << 20
"""Largest events of one capture. The steps of a large model take some megabytes."""

_RESEND_SECONDS = 3.0
_POLL_SECONDS = 0.5
_MAX_KNOWN = 1000

_MOST_REQUESTS = 32
"""Requests that wait for the captures' thread: an aggregator passes no more of a run on at the same time."""

_MOST_UNACKNOWLEDGED = 256
"""Messages without an acknowledgement, at most 128 MiB, above which no further request is taken."""

CaptureMessage = CaptureReport | CapturePiece


class StreamCaptureMailbox:
    """The ``CaptureMailbox`` of a rank that streams.

    The sender's thread calls ``receive`` and ``messages``, the captures' thread everything else.

    Args:
        clock_offset_ns: returns the offset from this machine's time to the aggregator's; 0 if unknown.
    """

    def __init__(self, incarnation: str, clock_offset_ns: Callable[[], int]) -> None:
        self._incarnation = incarnation
        self._clock_offset_ns = clock_offset_ns
        self._lock = threading.Lock()
        self._known: deque[str] = deque(maxlen=_MAX_KNOWN)
        self._requests: deque[CaptureRequest] = deque()
        self._queue: deque[CaptureMessage] = deque()
        self._first = 0  # number of the first queued message
        self._next = 0  # number of the next message to send
        self._sent = 0  # number after the last message that was ever sent
        self._moved_at = 0.0

    # ---- the captures' thread -------------------------------------------------------------------

    def poll_seconds(self, rank: JobRank) -> float:
        """Implement ``CaptureMailbox``; it only reads memory."""
        return _POLL_SECONDS

    def new_requests(self, rank: JobRank) -> list[CaptureRequest]:
        """As ``CaptureMailbox``."""
        with self._lock:
            found = [each for each in self._requests if rank.identity.rank in each.ranks]
            self._requests.clear()
        return [self._on_this_clock(each) for each in found if each.run_id == rank.job.run_id]

    def _on_this_clock(self, request: CaptureRequest) -> CaptureRequest:
        """Return a request with the time at which it was made by this machine's clock, which may be wrong."""
        offset = timedelta(microseconds=self._clock_offset_ns() / 1000)
        with suppress(OverflowError):  # The aggregator may send any time.
            return replace(request, asked_at=request.asked_at - offset)
        return request

    def first_step(self, rank: JobRank, request: CaptureRequest) -> int:
        """As ``CaptureMailbox``; requests of the aggregator have a first step."""
        return NEVER_CHOSEN

    def report(self, rank: JobRank, request: CaptureRequest, capture: RankCapture) -> None:
        """As ``CaptureMailbox``."""
        self._append(CaptureReport, rank, capture=request.id, state=capture)

    def root(self, rank: JobRank, scratch: Path) -> Path:
        """As ``CaptureMailbox``; events are sent from there."""
        return scratch

    def deliver(self, rank: JobRank, request: CaptureRequest, windows: tuple[int, ...], root: Path) -> None:
        """As ``CaptureMailbox``: queue the events in pieces. An unreadable trace stays on this machine.

        Raises:
            StreamError: the events exceed the limit.
        """
        from sfapp.packets.captures import TRACE_SUFFIX
        from sfapp.packets.paths import operators_path

        run_id, number = rank.job.run_id, rank.identity.rank
        paths = {window: operators_path(root, run_id, window, number) for window in windows}
        present = {window: path for window, path in paths.items() if path.exists()}
        size = sum(path.stat().st_size for path in present.values())
        if size > MAX_BYTES:
            raise StreamError(f"{size:,} bytes of events, limit {MAX_BYTES:,}: capture fewer steps")
        for window, path in present.items():
            self._queue_pieces(rank, request, read_regular(path, MAX_BYTES), window=window)
        for trace in root.rglob(f"*{TRACE_SUFFIX}"):
            kept = rank.job.root / trace.relative_to(root)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(trace, kept)

    def deliver_file(
        self, rank: JobRank, request: CaptureRequest, kind: FileKind, of_rank: int, content: bytes
    ) -> None:
        """As ``CaptureMailbox``: queue the file in pieces."""
        self._queue_pieces(rank, request, content, window=0, of_rank=of_rank, holds=kind)

    def _queue_pieces(self, rank: JobRank, request: CaptureRequest, content: bytes, **about: Any) -> None:
        about["clock_offset_ns"] = self._clock_offset_ns()
        begins = range(0, len(content), PIECE_BYTES)
        for piece, begin in enumerate(begins):
            self._append(
                CapturePiece,
                rank,
                capture=request.id,
                piece=piece,
                pieces=len(begins),
                content=content[begin : begin + PIECE_BYTES],
                **about,
            )

    def _append(self, kind: Callable[..., CaptureMessage], rank: JobRank, **fields: Any) -> None:
        with self._lock:
            number = self._first + len(self._queue)
            head: dict[str, Any] = {
                "v": VERSION,
                "rank": rank.identity.rank,
                "incarnation": self._incarnation,
            }
            self._queue.append(kind(**head, number=number, first=0, **fields))

    # ---- the sender's thread --------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether the aggregator has acknowledged every message."""
        return not self._queue

    def receive(self, answer: CaptureCommand | CaptureAck) -> None:
        """Process a request or an acknowledgement of the aggregator."""
        with self._lock:
            if isinstance(answer, CaptureCommand):
                if answer.request.id not in self._known and self._has_room():
                    self._known.append(answer.request.id)
                    self._requests.append(answer.request)
                return
            while self._queue and self._first < min(answer.number, self._sent):
                self._queue.popleft()
                self._first += 1
                self._moved_at = time.monotonic()
            self._next = max(self._next, self._first)

    def _has_room(self) -> bool:
        """Return whether one more request is taken. One that is not comes again: the aggregator repeats it
        until this rank reports on it."""
        return len(self._requests) < _MOST_REQUESTS and len(self._queue) < _MOST_UNACKNOWLEDGED

    def messages(self) -> Iterator[CaptureMessage]:
        """Yield the messages to send now, in order. One counts as sent when the next is requested."""
        while True:
            with self._lock:
                now, end = time.monotonic(), self._first + len(self._queue)
                if self._next == end and self._queue and now - self._moved_at > _RESEND_SECONDS:
                    self._next = self._first
                if self._next >= end:
                    return
                message = self._queue[self._next - self._first]
                first = self._first
            yield msgspec.structs.replace(message, first=first)
            with self._lock:
                self._next = max(self._next, message.number + 1)
                self._sent = max(self._sent, self._next)
                self._moved_at = time.monotonic()
