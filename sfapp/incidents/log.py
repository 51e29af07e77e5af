"""Read and append to the log of all edits, a file of JSON lines next to the packets.

Several processes may use it: an exclusive lock keeps their lines apart, and each continues to read where it
stopped. A line that cannot be read is kept, reported and skipped. Once there are many lines, older
ones are compressed (``compaction``).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sfapp.errors import IncidentError
from sfapp.files import append_lines, lock_file, open_regular, sync_folder
from sfapp.incidents.compaction import PackError, compact, is_pack, tail_before, unpack
from sfapp.incidents.events import Event, checked, decode, encode
from sfapp.incidents.state import IncidentState
from sfapp.incidents.state_builder import StateBuilder
from sfapp.terminal import quoted

NAME = "incidents.jsonl"

MAX_BYTES = 256 << 20
"""Size limit of a log and of its lines, bytes."""

MAX_LINES = MAX_BYTES >> 10
"""Limit of the number of lines: an edit of 100 bytes takes 1 to 3 kB of memory and 0.1 ms, however short its
texts are. Those of people have 200 bytes and more."""

_LOCK_S = 10.0
"""Seconds for which an edit waits for another process's, which takes milliseconds, with a compaction half a
second."""

_MOST_NOTICES = 100
"""Lines that cannot be read and are named; the others are counted."""

COMPACT_AT = 4 << 20
"""Size of the lines outside packs from which on the log is compacted, bytes: about 10,000 edits."""


class IncidentLog:
    """Log of the edits next to some packets. Safe to use from several threads.

    Attributes:
        path: the file; it need not exist before the first edit.
        shown: its name in messages.
    """

    def __init__(self, path: Path, *, compact_at: int = COMPACT_AT) -> None:
        self.path = path
        self.shown = str(path)
        self._compact_at = self._next_compaction = compact_at
        self._lock = threading.Lock()
        self._known: IncidentState | None = None
        self._reset()

    @classmethod
    def for_packets(cls, root: Path) -> IncidentLog:
        """Return the log of a packet folder, or of the folder of a packet file."""
        return cls((root if root.is_dir() else root.parent) / ".sfapp" / NAME)

    def signature(self) -> tuple[int, ...] | None:
        """Return what changes with every edit; None if there is no file.

        Raises:
            OSError: the file cannot be examined.
        """
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def state(self) -> IncidentState:
        """Return the present notes and incidents, with other processes' edits.

        Raises:
            IncidentError: the file cannot be read.
        """
        with self._lock:
            try:
                self._read_on()
            except OSError as error:
                raise IncidentError(f"{self.shown} cannot be read: {error.strerror}") from error
            return self._state()

    def append(self, events: Sequence[Event]) -> IncidentState:
        """Write edits durably, all or none, and return the resulting state.

        An edit that the log already has is not written again.

        Raises:
            IncidentError: a field is out of bounds, the log is full, or the file cannot be written.
        """
        lines = [(event, encode(event)) for event in checked(events)]
        try:
            self.path.parent.mkdir(exist_ok=True)
            # The file first: while others keep it locked, the log can be read, and edits wait side by side.
            with self._locked() as file, self._lock:
                self._read_on()
                new = b"".join(dict.fromkeys(line for event, line in lines if event.id not in self._edits))
                if new:
                    self._refuse_beyond_bounds(new)
                append_lines(file, new)
                self._read_on()
                self._compact_if_large(file)
                return self._state()
        except OSError as error:
            raise IncidentError(
                f"{self.shown} cannot be written: {error.strerror}; notes need a folder that "
                "may be written, on a file system that has locks"
            ) from error

    def _refuse_beyond_bounds(self, new: bytes) -> None:
        # ``_line`` is the next line, and one that was cut off may be ended before the new ones.
        if self._line_bytes + len(new) > MAX_BYTES or self._line + new.count(b"\n") > MAX_LINES:
            raise IncidentError(
                f"{self.shown} is full: it holds at most {MAX_BYTES >> 20} MB and {MAX_LINES:,} lines of "
                "edits; export what is still needed, move the file away and import the export"
            )

    def _state(self) -> IncidentState:
        if self._known is None:
            torn = [f"line {self._line}: cut off, without its end"] if self._torn else []
            more = self._faults - len(self._notices)
            further = [f"{more:,} more lines cannot be read; kept and skipped"] if more else []
            self._known = self._edits.state([*self._notices, *torn, *further])
        return self._known

    def _reset(self) -> None:
        self._edits = StateBuilder()
        self._notices: list[str] = []
        self._faults = 0
        self._offset = 0
        self._plain_begin = 0
        self._line = 1
        self._line_bytes = 0
        self._refused_bytes = 0
        self._inode = -1
        self._tail = b""
        self._torn = False
        self._known = None

    def _read_on(self) -> None:
        """Read appended lines, or the whole file again if it was replaced or cut."""
        try:
            with open_regular(self.path) as file:
                status = os.fstat(file.fileno())
                if (
                    status.st_ino != self._inode
                    or status.st_size < self._offset
                    or tail_before(file.fileno(), self._offset) != self._tail
                ):
                    self._reset()
                    self._inode = status.st_ino
                if status.st_size > MAX_BYTES:
                    raise self._oversized()
                if status.st_size > self._offset:
                    file.seek(self._offset)
                    self._take_in(file.read())
                    self._tail = tail_before(file.fileno(), self._offset)
        except FileNotFoundError:
            self._reset()

    def _oversized(self) -> IncidentError:
        self._reset()
        return IncidentError(f"{self.shown} has over {MAX_BYTES >> 20} MB: it is not a log of notes")

    def _take_in(self, content: bytes) -> None:
        if content.count(b"\n") > MAX_LINES:
            self._reset()
            raise IncidentError(f"{self.shown} has over {MAX_LINES:,} lines: it is not a log of notes")
        *lines, rest = content.split(b"\n")
        for line in lines:
            self._offset += len(line) + 1
            if is_pack(line):
                self._take_in_pack(line)
                self._plain_begin = self._offset
            else:
                self._note_line(line)
        self._torn = bool(rest)
        self._known = None

    def _take_in_pack(self, line: bytes) -> None:
        # Lines after the packs may take more than is left: no size below 0 bounds anything.
        most = max(0, MAX_BYTES - self._line_bytes)
        try:
            if self._refused_bytes > MAX_BYTES:
                raise PackError(f"not unpacked, after damaged packs of over {MAX_BYTES >> 20} MB")
            lines = unpack(line, most, MAX_LINES + 1 - self._line)
        except PackError as error:
            self._refused_bytes += error.unpacked
            self._note_fault(error)
            self._line += 1
        else:
            for each in lines[:-1].split(b"\n"):
                self._note_line(each)

    def _note_line(self, line: bytes) -> None:
        self._line_bytes += len(line) + 1
        try:
            if self._line > MAX_LINES:
                raise IncidentError(f"not read, after {MAX_LINES:,} others")
            event = decode(line) if line else None
        except IncidentError as error:
            self._note_fault(error)
        else:
            if event is not None:
                self._edits.add(event)
        self._line += 1

    def _note_fault(self, error: IncidentError) -> None:
        self._faults += 1
        if self._faults <= _MOST_NOTICES:
            self._notices.append(f"line {self._line}: {error}; kept and skipped")

    def _compact_if_large(self, file: int) -> None:
        plain = self._offset - self._plain_begin
        if plain < self._next_compaction:
            return
        try:
            done = compact(self.path, file, self._plain_begin, self._offset)
        except OSError:  # The edit itself is on disk. Compaction is tried again when there are twice as many.
            self._next_compaction = 2 * plain
            return
        self._next_compaction = self._compact_at
        self._inode, self._tail, self._plain_begin = done.inode, done.tail, done.plain_begin
        self._offset += done.shift

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the log and lock it. Closing it releases the lock too."""
        while True:
            new, target = not self.path.exists(), _writable_target(self.path)
            with open_regular(target, "ab+", permissions=0o644, follow_links=False) as file:
                self._wait_for_lock(file.fileno())
                if not _is_at(self.path, file.fileno()):
                    continue  # Another process compacted it meanwhile: this file is no longer the log.
                if new:
                    sync_folder(self.path.parent)
                yield file.fileno()
                return

    def _wait_for_lock(self, file: int) -> None:
        """Lock the log.

        Raises:
            IncidentError: another process keeps it locked; every process that can read the file may do so.
        """
        try:
            lock_file(file, _LOCK_S)
        except BlockingIOError:
            raise IncidentError(
                f"{self.shown} cannot be written: another process has locked it for {_LOCK_S:g} s "
                f"(`lsof {NAME}` names it)"
            ) from None


class UnavailableLog(IncidentLog):
    """Log of packets that have no place for notes: it is empty, and refuses edits."""

    def __init__(self, reason: str) -> None:
        """Create a log.

        Args:
            reason: why an edit is refused, and what to do.
        """
        super().__init__(Path(NAME))
        self._reason = reason

    def signature(self) -> tuple[int, ...] | None:
        return None

    def state(self) -> IncidentState:
        return self._state()

    def append(self, events: Sequence[Event]) -> IncidentState:
        raise IncidentError(self._reason)


def _writable_target(path: Path) -> Path:
    """Return the file that a log's path or link leads to.

    Raises:
        OSError: a link leads to a file of another kind. A user who may write next to the packets could
            otherwise have texts of notes appended to any file of the app's user, such as a start-up file of a
            shell.
    """
    target = Path(os.path.realpath(path))  # ``resolve`` raises no OSError for a link to itself.
    if target.suffix != path.suffix:
        raise OSError(
            errno.ELOOP, f"a link to {quoted(str(target))}, which is no {path.suffix} file", str(path)
        )
    return target


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False
