"""Queue the rows that the aggregator has not acknowledged: in memory, then as parts on disk.

As without a stream, the training thread only adds windows and fills their buffers; the sender's thread does
everything else. Messages are encoded when they are sent, so sending again costs no memory.
"""

from __future__ import annotations

import errno
import threading
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sfapp.errors import PacketError
from sfapp.files import system_error
from sfapp.packets.compose import part_draft
from sfapp.packets.job import JobRank
from sfapp.packets.window_rows import WindowBuffer
from sfapp.stream.codec import ElementId, buffer_from_part, closed_message, opened_message, steps_message
from sfapp.stream.messages import VERSION, Gap, Message

QUEUED = "queued to be streamed"
"""Reason in the manifest of a part that was written because the queue was full in memory."""

_LOOK_SECONDS = 40.0
"""Time between two looks for closed windows that wait in memory for their acknowledgement: longer than the
aggregator waits for other ranks. Windows that wait since the last look are written to disk. A process that
has to end at once can write a few hundred, not those of hours."""

_ROWS_BYTES = 256 * 1024
"""Largest rows of one message, small enough for a relay that queues messages of a thousand ranks."""

_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that say nothing of the file: the process has used what it may, for a moment."""

_OF_SERVER = frozenset({errno.EACCES, errno.EIO, errno.ESTALE, errno.ETIMEDOUT})
"""Errors of a file server that is restarted, or does not accept an expired ticket; or of a damaged disk."""

_MOST_READS = 300
"""Number of times that a file is read while it has such an error, about a minute. Its window keeps the later
ones waiting, so it is discarded then."""


@dataclass(slots=True, eq=False)
class QueuedWindow:
    """A queued window, or the gap in place of discarded windows.

    Attributes:
        first: sequence of its first element.
        buffer: None once it is in a file or discarded.
        number, steps: number of the window and of its steps, known once it is closed.
        until: sequence after its last element, known once it is closed.
        file: inode of its file if it may be removed. An aggregator with the same folder may have written what
            it acknowledges there, before or afterwards.
        discarded: numbers of the first and last window that this gap replaces.
        unreported: discarded steps of which no gap was sent to the aggregator.
        was_waiting: whether it was closed when windows that wait were last looked for.
        unread: number of times that its file could not be read.
    """

    rank: JobRank
    first: int
    buffer: WindowBuffer | None
    closed: bool = False
    number: int = 0
    steps: int = 0
    until: int = 0
    path: Path | None = None
    file: int = 0
    size: int = 0
    discarded: tuple[int, int] | None = None
    unreported: int = 0
    was_waiting: bool = False
    unread: int = 0

    @property
    def end(self) -> int:
        """Sequence after its last element so far. A window without steps has no element yet."""
        if self.closed or self.buffer is None:
            return self.until
        filled = self.buffer.sync()
        return self.first + 1 + filled if filled else self.first


class QueuedMessage(NamedTuple):
    """A message of the stream.

    Attributes:
        rank: its rank and job.
        after: sequence after its last element.
        is_newest: whether nothing was recorded after it when it was made.
    """

    rank: JobRank
    message: Message
    after: int
    is_newest: bool


class SendQueue:
    """Elements of one rank's stream, from the first that is not acknowledged.

    Args:
        memory_bytes, disk_bytes: bounds for closed windows in memory and in files.
        failures: receives a message for each failure.
    """

    def __init__(self, incarnation: str, memory_bytes: int, disk_bytes: int, failures: deque[str]) -> None:
        self.lost_steps = 0
        self._failures = failures
        self._incarnation = incarnation
        self._memory_limit, self._disk_limit = memory_bytes, disk_bytes
        self._queue: list[QueuedWindow] = []
        self._end = 0  # sequence after the last closed window
        self._lock = threading.Lock()
        self._in_memory = self._on_disk = 0
        self._look_at = float("-inf")
        self._read: tuple[Path, WindowBuffer] | None = None

    # ---- the training thread --------------------------------------------------------------------

    def open(self, rank: JobRank, buffer: WindowBuffer) -> None:
        """Append a window that is about to be filled, replacing an open one without steps."""
        with self._lock:
            if self._queue and not self._queue[-1].closed:
                self._queue.pop()
            self._queue.append(QueuedWindow(rank, self._end, buffer))

    def close(self, rank: JobRank, buffer: WindowBuffer) -> None:
        """Close the window of this buffer: no more steps are added."""
        with self._lock:
            if not self._queue or self._queue[-1].buffer is not buffer:
                self._queue.append(QueuedWindow(rank, self._end, buffer))
            window = self._queue[-1]
            window.steps, window.number = buffer.filled, buffer.number
            window.size = buffer.row_NC.nbytes + sum(values.nbytes for values in buffer.side.values())
            window.until = self._end = window.first + 2 + buffer.filled
            window.closed = True
            self._in_memory += window.size

    # ---- the sender's thread --------------------------------------------------------------------

    @property
    def first(self) -> int:
        """Sequence of the first queued element, or of the next element if the queue is empty."""
        with self._lock:
            return self._queue[0].first if self._queue else self._end

    @property
    def end(self) -> int:
        """Sequence of the next element to be recorded."""
        with self._lock:
            return max(self._end, self._queue[-1].end if self._queue else 0)

    @property
    def windows(self) -> int:
        """Number of closed windows that are queued."""
        with self._lock:
            return sum(window.closed and window.discarded is None for window in self._queue)

    @property
    def windows_with_steps(self) -> int:
        """Number of closed windows that are queued and have steps."""
        return sum(window.discarded is None and window.steps > 0 for window in self._closed())

    @property
    def newest_rank(self) -> JobRank | None:
        """Rank and job of the newest queued window."""
        with self._lock:
            return self._queue[-1].rank if self._queue else None

    def message(self, sequence: int) -> QueuedMessage | None:
        """Return the message that begins with this element; None if it is not queued or cannot be read."""
        window = self._find(sequence)
        if window is None:
            return None
        rank, buffer = window.rank, self._load(window)
        element = ElementId(rank.identity.rank, self._incarnation, sequence)
        if buffer is None and window.path is not None:
            return None
        if buffer is None:
            return QueuedMessage(rank, _gap(element, window), window.until, False)
        if sequence == window.first:
            return QueuedMessage(rank, opened_message(element, buffer, rank.attempt), sequence + 1, False)
        filled, is_closed = buffer.filled, window.closed
        step = sequence - window.first - 1
        if step == filled:
            return QueuedMessage(rank, closed_message(element, buffer), sequence + 1, False)
        rows = min(filled - step, max(1, _ROWS_BYTES // buffer.row_NC[0].nbytes))
        message = steps_message(element, buffer, step, step + rows)
        return QueuedMessage(rank, message, sequence + rows, step + rows == filled and not is_closed)

    def acknowledge(self, up_to: int) -> None:
        """Remove windows whose elements are all below ``up_to``."""
        with self._lock:
            done = 0
            while done < len(self._queue) and self._queue[done].closed and self._queue[done].until <= up_to:
                done += 1
            removed, self._queue = self._queue[:done], self._queue[done:]
            self._in_memory -= sum(window.size for window in removed if window.buffer is not None)
        for window in removed:
            self.lost_steps -= window.unreported  # they had arrived before they were discarded
            self._remove_file(window)

    def enforce_limits(self, now: float) -> None:
        """Write windows to disk that have waited for long, and the oldest above the memory limit; discard
        the oldest above the disk limit.

        Args:
            now: monotonic seconds.
        """
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            self._write_waiting()
        while self._in_memory > self._memory_limit:
            self._write_to_disk(next(window for window in self._closed() if window.buffer is not None))
            while self._on_disk > self._disk_limit:
                self._discard(next(window for window in self._closed() if window.path is not None))

    def undelivered(self) -> list[tuple[JobRank, WindowBuffer]]:
        """Return the closed windows that are still in memory. Windows in files stay there as parts."""
        return [(window.rank, window.buffer) for window in self._closed() if window.buffer is not None]

    # ---- inside ---------------------------------------------------------------------------------

    def _closed(self) -> list[QueuedWindow]:
        with self._lock:
            return [window for window in self._queue if window.closed]

    def _find(self, sequence: int) -> QueuedWindow | None:
        with self._lock:
            index = bisect_right(self._queue, sequence, key=lambda window: window.first) - 1
            window = self._queue[index] if index >= 0 else None
        return window if window is not None and sequence < window.end else None

    def _load(self, window: QueuedWindow) -> WindowBuffer | None:
        """Return the window's buffer, read from its file if necessary; None if it was discarded, or if
        its file cannot be read for now."""
        if window.buffer is not None or window.path is None:
            return window.buffer
        if self._read is None or self._read[0] != window.path:
            try:
                self._read = window.path, _part_of(window, window.path)
            except (OSError, PacketError) as error:
                window.unread += 1
                if not _may_pass(error, window.unread):
                    self._discard(window, str(error))
                return None
            window.unread = 0
        return self._read[1]

    def _write_waiting(self) -> None:
        """Write the windows that wait since the last look, while there is room on disk."""
        for window in self._closed():
            if window.was_waiting and window.steps and window.buffer is not None:
                if self._on_disk + window.size > self._disk_limit:
                    return
                try:
                    self._write_part(window)
                except PacketError as error:
                    self._failures.append(f"window {window.number} waits in memory: {error}")
                    return
            window.was_waiting = True

    def _write_to_disk(self, window: QueuedWindow) -> None:
        """Write a window for which there is no room in memory; discard it if that fails."""
        reason = ""
        if window.steps:
            try:
                self._write_part(window)
                return
            except PacketError as error:
                reason = str(error)
        with self._lock:
            self._in_memory -= window.size
        self._discard(window, reason)

    def _write_part(self, window: QueuedWindow) -> None:
        """Write a window as this rank's part, which readers can use if it is never delivered.

        Raises:
            PacketError: it cannot be written.
        """
        from sfapp.packets import packet_path, write_packet

        buffer = window.buffer
        assert buffer is not None
        rank = window.rank.of_process(self._incarnation)
        job, identity = rank.job, buffer.schema.identify(rank.identity)
        path = packet_path(job.root, job.run_id, buffer.number, identity.rank, job.process)
        is_of_others = _inode(path) != 0
        size = write_packet(part_draft(job, buffer, identity, QUEUED), path)
        with self._lock:
            self._in_memory -= window.size
        window.path, window.size, window.buffer = path, size, None
        window.file = 0 if is_of_others else _inode(path)
        self._on_disk += size

    def _discard(self, window: QueuedWindow, reason: str = "") -> None:
        number = window.number
        self._remove_file(window)
        window.buffer, window.discarded = None, (number, number)
        window.unreported = window.steps
        self.lost_steps += window.steps
        reason = reason or "the send queue is full"
        self._failures.append(f"window {number}: {window.steps} steps discarded: {reason}")
        self._merge_gaps()

    def _merge_gaps(self) -> None:
        """Merge adjacent gaps, so that a full queue does not grow with discarded windows."""
        with self._lock:
            merged: list[QueuedWindow] = []
            for window in self._queue:
                before = merged[-1] if merged else None
                if before and before.discarded and window.discarded and before.rank is window.rank:
                    before.until, before.steps = window.until, before.steps + window.steps
                    before.discarded = before.discarded[0], window.discarded[1]
                    before.unreported += window.unreported
                else:
                    merged.append(window)
            self._queue = merged

    def _remove_file(self, window: QueuedWindow) -> None:
        if window.path is not None:
            self._on_disk -= window.size
            try:
                if _inode(window.path) == window.file:
                    window.path.unlink(missing_ok=True)
            except OSError as error:
                self._failures.append(f"{window.path.name} was delivered but not removed: {error.strerror}")
            window.path = None


def _may_pass(error: BaseException, times: int) -> bool:
    """Return whether an error that has occurred so many times has such a cause that the file may be read
    later."""
    cause = system_error(error)
    if cause is None:
        return False
    return cause.errno in _PASSING or (cause.errno in _OF_SERVER and times < _MOST_READS)


def _inode(path: Path) -> int:
    """Return what tells a file from one that has replaced it; 0 if there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _part_of(window: QueuedWindow, path: Path) -> WindowBuffer:
    """Return the buffer that was written to a part. Others may write to its folder.

    Raises:
        PacketError: it is no packet, or not the one that was written.
        OSError: it does not exist.
    """
    from sfapp.packets import read_packet

    if (size := path.stat().st_size) != window.size:
        raise PacketError(f"has {size:,} bytes, not the {window.size:,} that were written", path=str(path))
    buffer = buffer_from_part(read_packet(path).window)
    if (buffer.number, buffer.filled) != (window.number, window.steps):
        raise PacketError(f"is of window {buffer.number} with {buffer.filled} steps", path=str(path))
    return buffer


def _gap(element: ElementId, window: QueuedWindow) -> Gap:
    """Return the gap from ``element`` on. Some steps of a single discarded window may have arrived before."""
    window.unreported = 0
    first, last = window.discarded or (window.number, window.number)
    delivered = max(0, element.sequence - window.first - 1) if first == last else 0
    return Gap(
        v=VERSION,
        rank=element.rank,
        incarnation=element.incarnation,
        sequence=element.sequence,
        until=window.until,
        first_window=first,
        last_window=last,
        steps=max(0, window.steps - delivered),
        reason="the send queue was full, or its files could not be used",
    )
