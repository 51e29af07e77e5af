"""Map the window numbers of a restarted job to numbers on disk, which continue over all attempts at a run.

A restarted job numbers its windows after those on its own disk, possibly from 0. Each attempt has an offset
that moves its windows after those that the run already has. Offsets are stored in ``.stream.jsonl`` next to
the packets, so that a restarted aggregator uses the same ones.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import msgspec

from sfapp.errors import StreamError
from sfapp.files import open_regular, read_regular, sync_folder
from sfapp.model.parse import UNREADABLE_JSON, whole_number
from sfapp.packets import packet_path
from sfapp.stream.messages import StreamHello

RESTARTS_FILE = ".stream.jsonl"

MAX_BYTES = 2**28
"""Size limit of the file: two million lines, a few dozen attempts of 100,000 ranks."""


class RestartEntry(msgspec.Struct, frozen=True):
    """One line of the file: a process, its rank and attempt, and the attempt's offset.

    Attributes:
        turn: distinguishes attempts of the same name. A process of a rank that is already in the last turn
            begins the next one.
    """

    attempt: str
    turn: int
    rank: int
    incarnation: str
    offset: int


class RunRestarts:
    """Attempts at one run, and the offset of each."""

    def __init__(self, root: Path, run_id: str) -> None:
        self._folder = packet_path(root, run_id, 0).parent
        self._turns: defaultdict[str, list[dict[int, str]]] = defaultdict(list)
        self._offset: dict[tuple[str, int], int] = {}
        self._entries: dict[tuple[str, str], RestartEntry] = {}
        for entry in self._read():
            self._add(entry)

    def offset(self, hello: StreamHello, newest: int | None) -> int:
        """Return the offset of the window numbers of this process.

        Args:
            newest: highest number of a window of the run that is in memory, or None.

        Raises:
            StreamError: the file cannot be written.
        """
        known = self._entries.get((hello.attempt, hello.incarnation))
        if known is None:
            known = self._decide(hello, newest)
            # From the first line of a turn, the offset of its other ranks follows: it alone must survive a
            # power failure, and a flush per rank would keep a thousand of them waiting.
            self._write(known, sync=(known.attempt, known.turn) not in self._offset)
            self._add(known)
        return known.offset

    def _decide(self, hello: StreamHello, newest: int | None) -> RestartEntry:
        turns = self._turns[hello.attempt]
        free = (turn for turn, ranks in enumerate(turns) if hello.rank not in ranks)
        turn = max(free, default=len(turns))
        offset = self._offset.get((hello.attempt, turn))
        if offset is None:
            following = max(self._newest_on_disk(), -1 if newest is None else newest) + 1
            offset = max(0, following - hello.first_window)
        return RestartEntry(hello.attempt, turn, hello.rank, hello.incarnation, offset)

    def _add(self, entry: RestartEntry) -> None:
        turns = self._turns[entry.attempt]
        while len(turns) <= entry.turn:
            turns.append({})
        turns[entry.turn][entry.rank] = entry.incarnation
        self._offset[entry.attempt, entry.turn] = entry.offset
        self._entries[entry.attempt, entry.incarnation] = entry

    def _newest_on_disk(self) -> int:
        """Return the highest number of a packet of the run, or −1."""
        names = (path.name.partition(".")[0] for path in self._folder.glob("*.parquet"))
        numbers = (whole_number(name) for name in names)
        return max((number for number in numbers if number is not None), default=-1)

    def _read(self) -> list[RestartEntry]:
        try:
            lines = read_regular(self._folder / RESTARTS_FILE, MAX_BYTES).splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            try:
                found.append(msgspec.json.decode(line, type=RestartEntry))
            except UNREADABLE_JSON:  # truncated when killed, or damaged
                continue
        return found

    def _write(self, entry: RestartEntry, sync: bool) -> None:
        path = self._folder / RESTARTS_FILE
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with open_regular(path, "ab+") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
                was_truncated = file.read(1) not in (b"", b"\n")
                file.write(b"\n" * was_truncated + msgspec.json.encode(entry) + b"\n")
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            if sync:
                sync_folder(self._folder)
                sync_folder(self._folder.parent)
        except OSError as error:
            raise StreamError(f"cannot write {str(path)!r}: {error.strerror}") from error
