"""What a rank has recorded and the aggregator has not acknowledged: in memory, then as parts on disk.

The training thread only adds windows here, and fills their buffers as it would without a stream; all else is
the sender's thread. Nothing is encoded before it is sent, so that sending again costs no memory.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

from sfapp.errors import PacketError
from sfapp.packets.compose import part_draft
from sfapp.packets.job import JobRank
from sfapp.packets.window_rows import WindowBuffer
from sfapp.stream.codec import ElementId, buffer_of, closed, opened, steps
from sfapp.stream.messages import VERSION, Gap, Message

WAITING = "waits to be streamed"
"""What the manifest of a part that was written to disk meanwhile says of why it is alone."""

_PORTION_BYTES = 256 * 1024
"""Rows sent in one message: few enough that a relay may hold messages of a thousand ranks."""


@dataclass(slots=True, eq=False)
class QueuedWindow:
    """A window that is held, or what is left of windows that were discarded.

    Attributes:
        first: sequence of its first element.
        buffer: None once it is in a file, or discarded.
        number, steps: which window, and how many steps it has; known once it is closed.
        until: sequence after its last element, known once it is closed.
        discarded: the first and last of the windows that were discarded here.
        told: whether the aggregator was told that they were.
    """

    team: JobRank
    first: int
    buffer: WindowBuffer | None
    closed: bool = False
    number: int = 0
    steps: int = 0
    until: int = 0
    path: Path | None = None
    size: int = 0
    discarded: tuple[int, int] | None = None
    told: bool = False

    @property
    def end(self) -> int:
        """Sequence after its last element so far: a window begins to count with its first step."""
        if self.closed or self.buffer is None:
            return self.until
        filled = self.buffer.sync()
        return self.first + 1 + filled if filled else self.first


class SendQueue:
    """The elements of one rank's stream from the first that is not acknowledged."""

    def __init__(self, incarnation: str, memory_bytes: int, disk_bytes: int, failures: deque[str]) -> None:
        self.lost_steps = 0
        self._failures = failures
        self._incarnation = incarnation
        self._most = memory_bytes, disk_bytes
        self._held: list[QueuedWindow] = []
        self._end = 0  # sequence after the last closed window
        self._lock = threading.Lock()
        self._in_memory = self._on_disk = 0
        self._read: tuple[Path, WindowBuffer] | None = None

    # ---- the training thread --------------------------------------------------------------------

    def open(self, team: JobRank, buffer: WindowBuffer) -> None:
        """A window begins; one that was opened before and has no steps is forgotten."""
        with self._lock:
            if self._held and not self._held[-1].closed:
                self._held.pop()
            self._held.append(QueuedWindow(team, self._end, buffer))

    def close(self, team: JobRank, buffer: WindowBuffer) -> None:
        """The window ends: no more steps are added."""
        with self._lock:
            if not self._held or self._held[-1].buffer is not buffer:
                self._held.append(QueuedWindow(team, self._end, buffer))
            held = self._held[-1]
            held.steps, held.number = buffer.filled, buffer.number
            held.size = buffer.row_NC.nbytes + sum(values.nbytes for values in buffer.side.values())
            held.until = self._end = held.first + 2 + buffer.filled
            held.closed = True
            self._in_memory += held.size

    # ---- the sender's thread --------------------------------------------------------------------

    @property
    def first(self) -> int:
        """Sequence of the first element that is held, or of the next one."""
        with self._lock:
            return self._held[0].first if self._held else self._end

    @property
    def end(self) -> int:
        """Sequence of the element that is recorded next."""
        with self._lock:
            return max(self._end, self._held[-1].end if self._held else 0)

    @property
    def windows(self) -> int:
        """Closed windows that are held."""
        with self._lock:
            return sum(held.closed and held.discarded is None for held in self._held)

    @property
    def newest_team(self) -> JobRank | None:
        """Whose window was opened last, if it is held."""
        with self._lock:
            return self._held[-1].team if self._held else None

    def team(self, sequence: int) -> JobRank | None:
        """Whose element this is; None for one that is not held."""
        held = self._holding(sequence)
        return None if held is None else held.team

    def message(self, sequence: int) -> tuple[Message, int] | None:
        """The message that begins with this element, and the sequence after it; None if there is nothing."""
        held = self._holding(sequence)
        if held is None:
            return None
        buffer = self._buffer(held)
        place = ElementId(held.team.identity.rank, self._incarnation, sequence)
        if buffer is None:
            return _gap(place, held), held.until
        if sequence == held.first:
            return opened(place, buffer), sequence + 1
        step = sequence - held.first - 1
        if step == buffer.filled:
            return closed(place, buffer), sequence + 1
        rows = min(buffer.filled - step, max(1, _PORTION_BYTES // buffer.row_NC[0].nbytes))
        return steps(place, buffer, step, step + rows), sequence + rows

    def acknowledge(self, up_to: int) -> None:
        """Let go of windows whose elements are all below ``up_to``."""
        with self._lock:
            done = 0
            while done < len(self._held) and self._held[done].closed and self._held[done].until <= up_to:
                done += 1
            gone, self._held = self._held[:done], self._held[done:]
            self._in_memory -= sum(held.size for held in gone if held.buffer is not None)
        for held in gone:
            if held.discarded and not held.told:
                self.lost_steps -= held.steps  # they had arrived before they were discarded
            self._forget_file(held)

    def tighten(self) -> None:
        """Keep to the bounds: the oldest windows go to disk, and from there they are discarded."""
        memory_bytes, disk_bytes = self._most
        while self._in_memory > memory_bytes:
            self._set_down(next(held for held in self._closed() if held.buffer is not None))
            while self._on_disk > disk_bytes:
                self._discard(next(held for held in self._closed() if held.path is not None))

    def left(self) -> list[tuple[JobRank, WindowBuffer]]:
        """The closed windows that are in memory still. What is in files stays there."""
        return [(held.team, held.buffer) for held in self._closed() if held.buffer is not None]

    # ---- inside ---------------------------------------------------------------------------------

    def _closed(self) -> list[QueuedWindow]:
        with self._lock:
            return [held for held in self._held if held.closed]

    def _holding(self, sequence: int) -> QueuedWindow | None:
        with self._lock:
            place = bisect_right(self._held, sequence, key=lambda held: held.first) - 1
            held = self._held[place] if place >= 0 else None
        return held if held is not None and sequence < held.end else None

    def _buffer(self, held: QueuedWindow) -> WindowBuffer | None:
        """The window's rows, from its file if need be; None if they were discarded."""
        if held.buffer is not None or held.path is None:
            return held.buffer
        if self._read is None or self._read[0] != held.path:
            from sfapp.packets import read_packet

            try:
                self._read = held.path, buffer_of(read_packet(held.path).window)
            except PacketError as error:
                self._discard(held, str(error))
                return None
        return self._read[1]

    def _set_down(self, held: QueuedWindow) -> None:
        """Put a window on disk, as this rank's part: whatever happens, it can be read there."""
        from sfapp.packets import packet_path, write_packet

        buffer = held.buffer
        assert buffer is not None
        job, identity = held.team.job, replace(held.team.identity, role=buffer.schema.role)
        with self._lock:
            self._in_memory -= held.size
        if not buffer.filled:
            self._discard(held)
            return
        try:
            path = packet_path(job.root, job.run_id, buffer.number, identity.rank)
            size = write_packet(part_draft(job, buffer, identity, WAITING), path)
        except PacketError as error:
            self._discard(held, str(error))
            return
        held.path, held.size, held.buffer = path, size, None
        self._on_disk += size

    def _discard(self, held: QueuedWindow, why: str = "") -> None:
        number = held.number
        self._forget_file(held)
        held.buffer, held.discarded = None, (number, number)
        self.lost_steps += held.steps
        self._failures.append(f"window {number}: {held.steps} steps discarded: {why or 'the spool is full'}")
        self._join_gaps()

    def _join_gaps(self) -> None:
        """One gap of neighbours, so that a full spool does not grow by what it has discarded."""
        with self._lock:
            joined: list[QueuedWindow] = []
            for held in self._held:
                before = joined[-1] if joined else None
                if before and before.discarded and held.discarded and before.team is held.team:
                    before.until, before.steps = held.until, before.steps + held.steps
                    before.discarded = before.discarded[0], held.discarded[1]
                    before.told = False
                else:
                    joined.append(held)
            self._held = joined

    def _forget_file(self, held: QueuedWindow) -> None:
        if held.path is not None:
            self._on_disk -= held.size
            try:
                held.path.unlink(missing_ok=True)
            except OSError as error:
                self._failures.append(
                    f"{held.path.name} is delivered and cannot be removed: {error.strerror}"
                )
            held.path = None


def _gap(place: ElementId, held: QueuedWindow) -> Gap:
    """What is missing from ``place`` on. Of a single window, some steps may have arrived before."""
    held.told = True
    first, last = held.discarded or (held.number, held.number)
    there = max(0, place.sequence - held.first - 1) if first == last else 0
    return Gap(
        v=VERSION,
        rank=place.rank,
        incarnation=place.incarnation,
        sequence=place.sequence,
        until=held.until,
        first_window=first,
        last_window=last,
        steps=max(0, held.steps - there),
        reason="the spool was full, or its files could not be used",
    )
