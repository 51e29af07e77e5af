"""Tell attempts at a streamed run apart, and number their windows: numbers continue over all attempts.

A restarted job numbers its windows after those on its own disk, possibly from 0. The aggregator gives each
attempt an offset, which moves its windows behind those that the run already has, and stores it in
``.stream.jsonl`` next to the packets. A part that a rank wrote has the rank's own number and the name of its
process; a reader adds the offset of the file in the part's folder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from io import BytesIO
from typing import Annotated

import msgspec
from msgspec import Meta

from sfapp.errors import PacketError
from sfapp.files import may_pass
from sfapp.model import Manifest
from sfapp.model.parse import MOST_WINDOW, UNREADABLE_JSON, parse_time
from sfapp.packets.job import LAST_COUNTED, NOT_AGREED
from sfapp.packets.packet_layout import MAX_RANK_VALUE, MAX_VALUE
from sfapp.storage import FileStamp, StoragePath, storage_of

RESTARTS_FILE = ".stream.jsonl"

MAX_BYTES = 2**28
"""Size limit of the file: two million lines, a few dozen attempts of 100,000 ranks."""

_MAX_BYTES_FOR_READERS = 2**26
"""The same for readers of parts, which may be several processes."""

_MOST_DAMAGED = 10_000
"""Damaged lines after which the rest is not read: a process that is killed leaves one, and a file of short
ones has a hundred million."""

_CLOCKS_DIFFER = timedelta(seconds=1)
"""Difference between the clocks of two nodes up to which files of one start are still recognised."""


class RestartEntry(msgspec.Struct, frozen=True):
    """One line of the file: a process, its rank and attempt, and the attempt's offset.

    Attributes:
        turn: distinguishes attempts of the same name. A process of a rank that is already in the last turn
            begins the next one.
        offset: added to the process's numbers of windows. Ranks that do not agree on their start may count
            from different numbers.
        first: number in the run of the attempt's first window; files of older versions do not have it.
    """

    attempt: str
    turn: Annotated[int, Meta(ge=0, le=MAX_VALUE)]
    rank: Annotated[int, Meta(ge=0, le=MAX_RANK_VALUE)]
    incarnation: str
    offset: Annotated[int, Meta(ge=-MAX_VALUE, le=MAX_VALUE)]
    first: Annotated[int, Meta(ge=0, le=MAX_VALUE)] | None = None

    @property
    def label(self) -> str:
        """Name of the attempt in manifests, different for each turn."""
        return attempt_label(self.attempt, self.turn)


_LINE = msgspec.json.Decoder(RestartEntry)


class Attempts:
    """Attempts at one run as stored, their offsets and the processes in them.

    Attributes:
        largest_offset: of all processes, 0 at least.
    """

    def __init__(self) -> None:
        self._turns: defaultdict[str, dict[int, set[int]]] = defaultdict(dict)  # ranks by turn
        self._last_turn: dict[str, int] = {}
        self._decided_by: dict[tuple[str, int], RestartEntry] = {}
        self._entries: dict[tuple[str, str], RestartEntry] = {}
        self.largest_offset = 0

    @classmethod
    def read(cls, folder: StoragePath, most: int = MAX_BYTES) -> Attempts:
        """Return the attempts in the file of a run's folder; a few damaged lines are skipped.

        Raises:
            OSError: there is one that cannot be read.
        """
        found, damaged = cls(), 0
        try:
            lines = BytesIO(storage_of(folder).read_small(folder / RESTARTS_FILE, most))
        except (FileNotFoundError, NotADirectoryError):
            return found
        for line in lines:
            try:
                found.add(_LINE.decode(line))
            except UNREADABLE_JSON:  # truncated when killed, or damaged
                damaged += 1
                if damaged > _MOST_DAMAGED:
                    break
        return found

    def add(self, entry: RestartEntry) -> None:
        """Add a process."""
        self._turns[entry.attempt].setdefault(entry.turn, set()).add(entry.rank)
        self._last_turn[entry.attempt] = max(entry.turn, self._last_turn.get(entry.attempt, 0))
        self._decided_by.setdefault((entry.attempt, entry.turn), entry)
        self._entries[entry.attempt, entry.incarnation] = entry
        if entry.offset <= LAST_COUNTED:
            self.largest_offset = max(entry.offset, self.largest_offset)

    def entry(self, attempt: str, incarnation: str) -> RestartEntry | None:
        """Return the entry of a process, or None if it has none."""
        return self._entries.get((attempt, incarnation))

    def first_entry(self, attempt: str, turn: int) -> RestartEntry | None:
        """Return the entry of an attempt's first process, or None if no process of it is stored."""
        return self._decided_by.get((attempt, turn))

    def turn_of(self, attempt: str, rank: int) -> int:
        """Return the turn of a process that is not stored: the last one without its rank, or a new one."""
        last = self._last_turn.get(attempt)
        if last is None:
            return 0
        return last + (rank in self._turns[attempt][last])


def starts_of(manifests: Sequence[Manifest]) -> list[tuple[str, int] | None]:
    """Return the start of a run that each file belongs to: its attempt and a number; None if it names none.

    Ranks that did not agree on a name for their start may have the name of another one. Every window of a
    start ended after the recorders of all its ranks were created, so files of which that is not true are of
    starts with different numbers.
    """
    starts = [None if each.attempt is None else (each.attempt, 0) for each in manifests]
    times = {
        index: known
        for index, each in enumerate(manifests)
        if each.attempt is not None and each.attempt.startswith(NOT_AGREED) and (known := _times(each))
    }
    newest: dict[str, tuple[int, datetime]] = {}
    for index, (begin, end) in sorted(times.items(), key=lambda item: item[1]):
        attempt = manifests[index].attempt or ""
        number, first_end = newest.get(attempt, (0, end))
        if begin - first_end > _CLOCKS_DIFFER:
            number, first_end = number + 1, end
        starts[index] = attempt, number
        newest[attempt] = number, min(first_end, end)
    return starts


def _times(manifest: Manifest) -> tuple[datetime, datetime] | None:
    """Return when the rank's recorder was created and the window ended; the first or last time if not known.

    None if the node's clock was set back between the two: then they tell nothing.
    """
    created_at = manifest.recorder.started_at
    begin = (created_at and parse_time(created_at)) or datetime.min.replace(tzinfo=UTC)
    end = parse_time(manifest.ended_at) or datetime.max.replace(tzinfo=UTC)
    return (begin, end) if begin <= end else None


def attempt_label(attempt: str, turn: int) -> str:
    """Return the name of an attempt in manifests."""
    return f"{attempt}/{turn}" if turn else attempt


def placed(manifest: Manifest, rank: int, path: StoragePath) -> Manifest:
    """Return the manifest of a rank's own part with the run's number of its window and its attempt's label.

    Other manifests are returned as they are. The number is the rank's own if the aggregator had no message of
    the attempt, or its file is absent.

    Raises:
        PacketError: it is not known, because its file cannot be read for a moment.
    """
    if manifest.attempt is None or manifest.process is None:
        return manifest
    file = storage_of(path).found(path.parent / RESTARTS_FILE)
    attempts = Attempts() if file is None else _attempts_in(path.parent, file.stamp)
    known = attempts.entry(manifest.attempt, manifest.process)
    turn = attempts.turn_of(manifest.attempt, rank) if known is None else known.turn
    known = known or attempts.first_entry(manifest.attempt, turn)
    number = manifest.window + (0 if known is None else known.offset)
    return replace(
        manifest,
        window=number if 0 <= number <= MOST_WINDOW else manifest.window,
        attempt=attempt_label(manifest.attempt, turn),
        process=None,
    )


@lru_cache(maxsize=4)
def _attempts_in(folder: StoragePath, stamp: FileStamp) -> Attempts:
    try:
        return Attempts.read(folder, _MAX_BYTES_FOR_READERS)
    except OSError as error:
        if may_pass(error):
            raise PacketError(f"{RESTARTS_FILE} numbers it and cannot be read: {error.strerror}") from error
        return Attempts()
