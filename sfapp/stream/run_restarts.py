"""Decide the offset of each attempt at a run, and store it (``sfapp.packets.attempts``), so that a restarted
aggregator uses the same one.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import msgspec

from sfapp.errors import StreamError
from sfapp.files import open_regular, sync_folder
from sfapp.model.parse import MOST_WINDOW, whole_number
from sfapp.packets import packet_path
from sfapp.packets.attempts import MAX_BYTES, RESTARTS_FILE, Attempts, RestartEntry, attempt_label
from sfapp.packets.job import LAST_COUNTED, NOT_AGREED
from sfapp.packets.output import PacketOutput
from sfapp.stream.messages import StreamHello
from sfapp.terminal import quoted

_LISTING_SECONDS = 1.0
"""Seconds for which all ranks wait for a bucket that lists the packets of one run; ranks of that run wait
longer."""


class RunRestarts:
    """Attempts at one run, and the offset of each."""

    def __init__(self, root: Path | PacketOutput, run_id: str) -> None:
        self._output = PacketOutput.of(root)
        self._run_id = run_id
        self._folder = packet_path(self._output.folder, run_id, 0).parent
        self._attempts = Attempts.read(self._folder)
        self._present: defaultdict[str, set[str]] = defaultdict(set)  # processes by their attempt's label

    def leave(self, label: str, incarnation: str) -> None:
        """Note that a process has left its attempt, or is silent."""
        self._present[label].discard(incarnation)

    def entry(self, hello: StreamHello, newest: int | None) -> RestartEntry:
        """Return the attempt of this process and the offset of its window numbers.

        Args:
            newest: highest number of a window of the run that is in memory, or None.

        Raises:
            StreamError: the file cannot be written or is full, or the run has no window numbers left.
        """
        known = self._attempts.entry(hello.attempt, hello.incarnation)
        entry = self._new_entry(hello, newest) if known is None else known
        self._present[entry.label].add(hello.incarnation)
        return entry

    def _new_entry(self, hello: StreamHello, newest: int | None) -> RestartEntry:
        """Return and write the entry of a process that has none."""
        try:
            with self._output.locked(self._folder):
                turn, offset = self._turn_of(hello)
                is_first = offset is None
                if offset is None and (self._folder / RESTARTS_FILE).exists():
                    # Another aggregator of the folder may have decided it meanwhile.
                    self._attempts = Attempts.read(self._folder)
                    turn, offset = self._turn_of(hello)
                if offset is None:
                    offset = self._following_offset(hello, newest)
                entry = RestartEntry(hello.attempt, turn, hello.rank, hello.incarnation, offset)
                # From the first line of a turn, the offset of its other ranks follows: it alone must survive
                # a power failure, and a flush per rank would keep a thousand of them waiting.
                self._write(entry, sync=is_first)
        except OSError as error:
            raise StreamError(f"cannot write to run {quoted(self._run_id)}: {error.strerror}") from error
        self._attempts.add(entry)
        return entry

    def _turn_of(self, hello: StreamHello) -> tuple[int, int | None]:
        """Return the turn that a process belongs to, and the turn's offset if it is decided.

        A start whose ranks did not agree on its name is over once all of its processes have left: the next
        may begin with a rank that never connected.
        """
        turn = self._attempts.turn_of(hello.attempt, hello.rank)
        is_over = self._present.get(attempt_label(hello.attempt, turn)) == set()
        if is_over and hello.attempt.startswith(NOT_AGREED):
            turn += 1
        return turn, self._attempts.offset(hello.attempt, turn)

    def _following_offset(self, hello: StreamHello, newest: int | None) -> int:
        """Return the offset behind all windows of the run.

        Raises:
            StreamError: the run has no window numbers left, or has to wait for the bucket.
        """
        following = max(self._newest_on_disk(), -1 if newest is None else newest) + 1
        elsewhere = self._output.following_window_within(_LISTING_SECONDS, self._run_id)
        if elsewhere is None:
            raise StreamError(f"run {quoted(self._run_id)} has to wait: its packets in the bucket are listed")
        following = max(following, elsewhere)
        offset = max(0, following - hello.first_window)
        if offset > MOST_WINDOW:
            raise StreamError(f"run {quoted(hello.run_id)} has no window numbers left")
        return offset

    def _newest_on_disk(self) -> int:
        """Return the highest number of a packet of the run, or −1."""
        names = (path.name.partition(".")[0] for path in self._folder.glob("*.parquet"))
        numbers = (whole_number(name) for name in names)
        return max(
            (number for number in numbers if number is not None and number <= LAST_COUNTED), default=-1
        )

    def _write(self, entry: RestartEntry, sync: bool) -> None:
        path = self._folder / RESTARTS_FILE
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with open_regular(path, "ab+", follow_links=False) as file:
                end = file.seek(0, os.SEEK_END)
                if end > MAX_BYTES:
                    raise StreamError(
                        f"run {quoted(self._run_id)} was restarted too often: {path.name} has {end:,} bytes"
                    )
                file.seek(max(0, end - 1))
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
