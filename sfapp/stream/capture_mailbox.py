"""A rank's end of captures over the stream: requests come from the aggregator, events go to it in pieces.

What is said is kept until the aggregator has it on disk, and sent again from there on where that takes long
(go-back-N): it is little, and seldom.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from sfapp.errors import StreamError
from sfapp.model.capture import CaptureRequest, RankCapture
from sfapp.packets.capture_mailbox import NEVER_CHOSEN
from sfapp.packets.job import JobRank
from sfapp.stream.messages import (
    PIECE_BYTES,
    VERSION,
    CaptureAck,
    CaptureCommand,
    CapturePiece,
    CaptureReport,
)

MOST_BYTES = 64 << 20
"""Events of one capture that are kept for the aggregator; a large model's steps take some megabytes."""

_AGAIN_SECONDS = 3.0
_PAUSE_SECONDS = 0.5
_KNOWN = 1000

Said = CaptureReport | CapturePiece


class StreamCaptureMailbox:
    """The ``CaptureMailbox`` of a rank that streams.

    The sender's thread takes and gives messages, the captures'
    thread the rest.

    Args:
        clock_offset_ns: what to add to this machine's time now to have the aggregator's; 0 where not known.
    """

    def __init__(self, incarnation: str, clock_offset_ns: Callable[[], int]) -> None:
        self._incarnation = incarnation
        self._clock_offset_ns = clock_offset_ns
        self._lock = threading.Lock()
        self._known: deque[str] = deque(maxlen=_KNOWN)
        self._asked: deque[CaptureRequest] = deque()
        self._kept: deque[Said] = deque()
        self._first = 0  # number of the first that is kept
        self._next = 0  # of the one that is sent next
        self._moved_at = 0.0

    # ---- the captures' thread -------------------------------------------------------------------

    def poll_seconds(self, team: JobRank) -> float:
        """As ``CaptureMailbox``: nothing is asked of anybody else."""
        return _PAUSE_SECONDS

    def new_requests(self, team: JobRank) -> list[CaptureRequest]:
        """As ``CaptureMailbox``."""
        with self._lock:
            found = [each for each in self._asked if team.identity.rank in each.ranks]
            self._asked.clear()
        return [each for each in found if each.run_id == team.job.run_id]

    def first_step(self, team: JobRank, request: CaptureRequest) -> int:
        """As ``CaptureMailbox``: the aggregator has chosen already."""
        return NEVER_CHOSEN

    def report(self, team: JobRank, request: CaptureRequest, capture: RankCapture) -> None:
        """As ``CaptureMailbox``."""
        self._keep(CaptureReport, team, capture=request.id, said=capture)

    def root(self, team: JobRank, scratch: Path) -> Path:
        """As ``CaptureMailbox``: they go to the aggregator from there."""
        return scratch

    def deliver(self, team: JobRank, request: CaptureRequest, windows: tuple[int, ...], root: Path) -> None:
        """As ``CaptureMailbox``: in pieces, from memory. An unreadable trace stays on this machine.

        Raises:
            StreamError: there are too many events to keep them.
        """
        from sfapp.packets.captures import TRACE_SUFFIX
        from sfapp.packets.paths import operators_path

        run_id, rank = team.job.run_id, team.identity.rank
        paths = {window: operators_path(root, run_id, window, rank) for window in windows}
        found = {window: path.read_bytes() for window, path in paths.items() if path.exists()}
        size = sum(map(len, found.values()))
        if size > MOST_BYTES:
            raise StreamError(f"{size:,} bytes of events are more than {MOST_BYTES:,}: capture fewer steps")
        for window, content in found.items():
            self._keep_pieces(team, request, window, content)
        for trace in root.rglob(f"*{TRACE_SUFFIX}"):
            kept = team.job.root / trace.relative_to(root)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(trace, kept)

    def _keep_pieces(self, team: JobRank, request: CaptureRequest, window: int, content: bytes) -> None:
        offset_ns = self._clock_offset_ns()
        begins = range(0, len(content), PIECE_BYTES)
        for piece, begin in enumerate(begins):
            self._keep(
                CapturePiece,
                team,
                capture=request.id,
                window=window,
                piece=piece,
                pieces=len(begins),
                content=content[begin : begin + PIECE_BYTES],
                clock_offset_ns=offset_ns,
            )

    def _keep(self, kind: Callable[..., Said], team: JobRank, **about: Any) -> None:
        with self._lock:
            number = self._first + len(self._kept)
            head: dict[str, Any] = {
                "v": VERSION,
                "rank": team.identity.rank,
                "incarnation": self._incarnation,
            }
            self._kept.append(kind(**head, number=number, first=0, **about))

    # ---- the sender's thread --------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether the aggregator has all that was said."""
        return not self._kept

    def hear(self, answer: CaptureCommand | CaptureAck) -> None:
        """What the aggregator says."""
        with self._lock:
            if isinstance(answer, CaptureCommand):
                if answer.request.id not in self._known:
                    self._known.append(answer.request.id)
                    self._asked.append(answer.request)
                return
            while self._kept and self._first < answer.number:
                self._kept.popleft()
                self._first += 1
                self._moved_at = time.monotonic()
            self._next = max(self._next, self._first)

    def messages(self) -> Iterator[Said]:
        """What is to be sent now, in order; one counts as sent once the next is asked for."""
        while True:
            with self._lock:
                now, end = time.monotonic(), self._first + len(self._kept)
                if self._next == end and self._kept and now - self._moved_at > _AGAIN_SECONDS:
                    self._next = self._first
                if self._next >= end:
                    return
                message = self._kept[self._next - self._first]
                first = self._first
            yield msgspec.structs.replace(message, first=first)
            with self._lock:
                self._next = max(self._next, message.number + 1)
                self._moved_at = time.monotonic()
