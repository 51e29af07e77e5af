"""Read and append to the log of all edits, a file of JSON lines next to the packets.

Several processes may use it: an exclusive lock keeps their lines apart, and each continues to read where it
stopped. A line that cannot be read is kept, reported and skipped.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sfapp.errors import IncidentError
from sfapp.files import open_regular, sync_folder
from sfapp.incidents.events import Event, checked, decode, encode
from sfapp.incidents.state import IncidentState
from sfapp.incidents.state_builder import StateBuilder

NAME = "incidents.jsonl"

MAX_BYTES = 256 << 20
"""Size limit of a log, bytes: about a million edits."""


class IncidentLog:
    """Log of the edits next to some packets. Safe to use from several threads.

    Attributes:
        path: the file; it need not exist before the first edit.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._known: IncidentState | None = None
        self._reset()

    @classmethod
    def for_packets(cls, root: Path) -> IncidentLog:
        """Return the log of a packet folder, or of the folder of a packet file."""
        return cls((root if root.is_dir() else root.parent) / ".sfapp" / NAME)

    def state(self) -> IncidentState:
        """Return the present notes and incidents, with other processes' edits.

        Raises:
            IncidentError: the file cannot be read.
        """
        with self._lock:
            try:
                self._read_on()
            except OSError as error:
                raise IncidentError(f"{self.path} cannot be read: {error.strerror}") from error
            return self._state()

    def append(self, events: Sequence[Event]) -> IncidentState:
        """Write edits durably, all or none, and return the resulting state.

        An edit that the log already has is not written again.

        Raises:
            IncidentError: a field is out of bounds, or the file cannot be written.
        """
        lines = [(event, encode(event)) for event in checked(events)]
        with self._lock:
            try:
                self.path.parent.mkdir(exist_ok=True)
                with self._locked() as file:
                    self._read_on()
                    new = dict.fromkeys(line for event, line in lines if event.id not in self._edits)
                    _write(file, b"".join(new))
                    self._read_on()
            except OSError as error:
                raise IncidentError(
                    f"{self.path} cannot be written: {error.strerror}; notes need a folder that "
                    "may be written, on a file system that has locks"
                ) from error
            return self._state()

    def _state(self) -> IncidentState:
        if self._known is None:
            torn = [f"line {self._line}: cut off, without its end"] if self._torn else []
            self._known = self._edits.state([*self._notices, *torn])
        return self._known

    def _reset(self) -> None:
        self._edits = StateBuilder()
        self._notices: list[str] = []
        self._offset = 0
        self._line = 1
        self._inode = -1
        self._torn = False
        self._known = None

    def _read_on(self) -> None:
        """Read appended lines, or the whole file again if it was replaced or cut."""
        try:
            with open_regular(self.path) as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._reset()
                    self._inode = status.st_ino
                if status.st_size > MAX_BYTES:
                    raise IncidentError(
                        f"{self.path} has over {MAX_BYTES >> 20} MB: it is not a log of notes"
                    )
                if status.st_size > self._offset:
                    file.seek(self._offset)
                    self._take_in(file.read())
        except FileNotFoundError:
            self._reset()

    def _take_in(self, content: bytes) -> None:
        *lines, rest = content.split(b"\n")
        for line in lines:
            self._note_line(line)
            self._offset += len(line) + 1
        self._torn = bool(rest)
        self._known = None

    def _note_line(self, line: bytes) -> None:
        try:
            event = decode(line) if line else None
        except IncidentError as error:
            self._notices.append(f"line {self._line}: {error}; kept and skipped")
        else:
            if event is not None:
                self._edits.add(event)
        self._line += 1

    @contextmanager
    def _locked(self) -> Iterator[int]:
        new = not self.path.exists()
        with open_regular(self.path, "ab+", permissions=0o644) as file:  # Closing it releases the lock too.
            fcntl.flock(file, fcntl.LOCK_EX)
            if new:
                sync_folder(self.path.parent)
            yield file.fileno()


def _write(file: int, content: bytes) -> None:
    """Append on a new line, even after an incomplete line of a process that was killed."""
    if not content:
        return
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        content = b"\n" + content
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(file, left) :]
        os.fsync(file)
    except OSError:
        os.ftruncate(file, size)  # All or none: a full disk leaves no incomplete line.
        raise
