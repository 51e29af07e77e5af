"""Which window on disk a rank's window is: attempts at a run follow each other in one row of numbers.

A job that is started again counts its windows from where its own disk says, which may be 0. Its attempt gets
the numbers after those that the run has. What was decided is kept in ``.stream.jsonl`` beside the packets, so
that an aggregator that is started again decides alike.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import msgspec

from sfapp.errors import StreamError
from sfapp.packets import packet_path
from sfapp.stream.messages import StreamHello

RESTARTS_FILE = ".stream.jsonl"


class RestartEntry(msgspec.Struct, frozen=True):
    """One line of the ledger: this process is this rank of this attempt, whose windows move by ``offset``.

    Attributes:
        turn: of attempts that call themselves the same: a rank that is there already begins the next.
    """

    attempt: str
    turn: int
    rank: int
    incarnation: str
    offset: int


class RunRestarts:
    """The attempts at one run."""

    def __init__(self, root: Path, run_id: str) -> None:
        self._folder = packet_path(root, run_id, 0).parent
        self._turns: defaultdict[str, list[dict[int, str]]] = defaultdict(list)
        self._offset: dict[tuple[str, int], int] = {}
        self._entries: dict[tuple[str, str], RestartEntry] = {}
        for entry in self._read():
            self._take(entry)

    def offset(self, hello: StreamHello, newest: int | None) -> int:
        """What to add to the numbers of this process's windows.

        Args:
            newest: the highest number of a window of the run that is under way, None without one.

        Raises:
            StreamError: the ledger cannot be written.
        """
        known = self._entries.get((hello.attempt, hello.incarnation))
        if known is None:
            known = self._decide(hello, newest)
            self._write(known)
            self._take(known)
        return known.offset

    def _decide(self, hello: StreamHello, newest: int | None) -> RestartEntry:
        turns = self._turns[hello.attempt]
        free = (turn for turn, ranks in enumerate(turns) if hello.rank not in ranks)
        turn = max(free, default=len(turns))
        offset = self._offset.get((hello.attempt, turn))
        if offset is None:
            following = max(self._on_disk(), -1 if newest is None else newest) + 1
            offset = max(0, following - hello.first_window)
        return RestartEntry(hello.attempt, turn, hello.rank, hello.incarnation, offset)

    def _take(self, entry: RestartEntry) -> None:
        turns = self._turns[entry.attempt]
        while len(turns) <= entry.turn:
            turns.append({})
        turns[entry.turn][entry.rank] = entry.incarnation
        self._offset[entry.attempt, entry.turn] = entry.offset
        self._entries[entry.attempt, entry.incarnation] = entry

    def _on_disk(self) -> int:
        """The highest number of a packet of the run, −1 without one."""
        names = (path.name.partition(".")[0] for path in self._folder.glob("*.parquet"))
        return max((int(name) for name in names if name.isascii() and name.isdigit()), default=-1)

    def _read(self) -> list[RestartEntry]:
        try:
            lines = (self._folder / RESTARTS_FILE).read_bytes().splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            try:
                found.append(msgspec.json.decode(line, type=RestartEntry))
            except msgspec.DecodeError:  # cut off when the aggregator was killed: the rank says hello again
                continue
        return found

    def _write(self, entry: RestartEntry) -> None:
        path = self._folder / RESTARTS_FILE
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with path.open("ab+") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
                was_cut_off = file.read(1) not in (b"", b"\n")
                file.write(b"\n" * was_cut_off + msgspec.json.encode(entry) + b"\n")
        except OSError as error:
            raise StreamError(f"{str(path)!r} cannot be written: {error.strerror}") from error
