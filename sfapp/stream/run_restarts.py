"""Decide the offset of each attempt at a run, and store it (``sfapp.packets.attempts``), so that a restarted
aggregator uses the same one.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from sfapp.errors import StreamError
from sfapp.files import append_lines, open_regular, sync_folder
from sfapp.model.parse import MOST_WINDOW, whole_number
from sfapp.packets import packet_path
from sfapp.packets.attempts import MAX_BYTES, RESTARTS_FILE, Attempts, RestartEntry, attempt_label
from sfapp.packets.job import LAST_COUNTED, NOT_AGREED
from sfapp.packets.output import PacketOutput
from sfapp.packets.paths import SUFFIX
from sfapp.stream.messages import StreamHello
from sfapp.stream.signs_of_life import SignsOfLife
from sfapp.terminal import quoted

_LISTING_SECONDS = 1.0
"""Seconds for which all ranks wait for a bucket that lists the packets of one run; ranks of that run wait
longer."""

_ALIVE_SECONDS = 5.0
"""Seconds in which a process of a start sends something, after a restart of the aggregator, too: it sends a
heartbeat each second. A rank that closes its recorder waits longer."""

_BURST_SECONDS = 0.5
"""Seconds in which all that waited on its way with a message arrives."""

_MOST_WAITING = 100_000
"""Largest number of processes whose hellos are remembered until their start is known."""

_MOST_PROCESSES, _MOST_STARTS = 64, 64
"""Largest number of processes of a start, and of starts, of which it is known when they were alive."""


class RunRestarts:
    """Attempts at one run, and the offset of each.

    Raises:
        StreamError: they cannot be read. Without them, windows of the run would get other numbers.
    """

    def __init__(self, root: Path | PacketOutput, run_id: str) -> None:
        self._output = PacketOutput.of(root)
        self._run_id = run_id
        self._folder = packet_path(self._output.folder, run_id, 0).parent
        try:
            self._attempts = Attempts.read(self._folder)
        except OSError as error:
            raise StreamError(f"cannot read run {quoted(run_id)}: {error.strerror}") from error
        self._signs: dict[str, dict[str, SignsOfLife]] = {}  # by attempt's label and process
        self._waiting: dict[str, tuple[float, float]] = {}  # first hello and start of a process

    def hear(self, label: str, incarnation: str, age: float | UnsetType, now: float) -> None:
        """Note that a process of an attempt has sent something at this age."""
        if not label.startswith(NOT_AGREED):
            return
        if label not in self._signs and len(self._signs) >= _MOST_STARTS:
            self._signs.clear()
        signs = self._signs.setdefault(label, {})
        if incarnation in signs or len(signs) < _MOST_PROCESSES:
            # Recorders of older versions do not send their age: what they send counts as sent now.
            signs.setdefault(incarnation, SignsOfLife()).note(now if age is UNSET else age, now)

    def entry(self, hello: StreamHello, newest: int | None, now: float) -> RestartEntry | None:
        """Return the attempt of this process and the offset of its window numbers.

        None means that it is not known yet which start the process belongs to: it has to say hello again.

        Args:
            newest: highest number of a window of the run that is in memory, or None.
            now: in monotonic seconds.

        Raises:
            StreamError: the file cannot be written or is full, or the run has no window numbers left.
        """
        known = self._attempts.entry(hello.attempt, hello.incarnation)
        if known is None and (known := self._new_entry(hello, newest, now)) is None:
            return None
        self._waiting.pop(hello.incarnation, None)
        self.hear(known.label, hello.incarnation, hello.process_seconds, now)
        return known

    def _new_entry(self, hello: StreamHello, newest: int | None, now: float) -> RestartEntry | None:
        """Return and write the entry of a process that is not known here, or None if it has to wait."""
        try:
            with self._output.locked(self._folder):
                turn = self._turn_of(hello, now)
                if turn is not None and self._is_new(hello, turn) and (self._folder / RESTARTS_FILE).exists():
                    # Another aggregator of the folder may have decided it meanwhile.
                    self._attempts = Attempts.read(self._folder)
                    if known := self._attempts.entry(hello.attempt, hello.incarnation):
                        return known
                    turn = self._turn_of(hello, now)
                if turn is None:
                    return None
                is_first = self._is_new(hello, turn)
                first, offset = self._numbers_of(hello, turn, newest)
                entry = RestartEntry(hello.attempt, turn, hello.rank, hello.incarnation, offset, first)
                # From the first line of a turn, the offset of its other ranks follows: it alone must survive
                # a power failure, and a flush per rank would keep a thousand of them waiting.
                self._write(entry, sync=is_first)
        except OSError as error:
            raise StreamError(f"cannot write to run {quoted(self._run_id)}: {error.strerror}") from error
        self._attempts.add(entry)
        return entry

    def _turn_of(self, hello: StreamHello, now: float) -> int | None:
        """Return the turn that a process belongs to, or None if it has to wait to know.

        Starts may have the same name if their ranks did not agree on one, and a start may begin with a rank
        that never connected in the one before. A process belongs to a start that sent something after the
        process was started: other processes of an earlier start had ended by then.
        """
        turn = self._attempts.turn_of(hello.attempt, hello.rank)
        if self._is_new(hello, turn) or not hello.attempt.startswith(NOT_AGREED):
            return turn
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.clear()
        # A hello that was on its way for long says that the process is younger than it is: it is asked again.
        since, started = self._waiting.get(hello.incarnation, (now, now))
        if hello.process_seconds is not UNSET:
            started = min(started, now - hello.process_seconds)
        self._waiting[hello.incarnation] = since, started
        signs = self._signs.get(attempt_label(hello.attempt, turn), {})
        if any(life.sent_at is not None and life.sent_at > started for life in signs.values()):
            return turn if now - since >= _BURST_SECONDS else None
        return turn + 1 if now - since >= _ALIVE_SECONDS else None

    def _is_new(self, hello: StreamHello, turn: int) -> bool:
        return self._attempts.first_entry(hello.attempt, turn) is None

    def _numbers_of(self, hello: StreamHello, turn: int, newest: int | None) -> tuple[int | None, int]:
        """Return the number of an attempt's first window, None if not known, and the offset of a process.

        Ranks that agreed on the attempt agreed on the number that they count from, too.
        """
        decided = self._attempts.first_entry(hello.attempt, turn)
        if decided is None:
            first = self._following_number(hello, newest)
        elif decided.first is None or not hello.attempt.startswith(NOT_AGREED):
            return decided.first, decided.offset
        else:
            first = decided.first
        return first, first - hello.first_window

    def _following_number(self, hello: StreamHello, newest: int | None) -> int:
        """Return a number behind all windows of the run, and not below those of the process.

        Raises:
            StreamError: the run has no window numbers left, or has to wait for the bucket.
        """
        following = max(self._newest_on_disk(), -1 if newest is None else newest) + 1
        elsewhere = self._output.following_window_within(_LISTING_SECONDS, self._run_id)
        if elsewhere is None:
            raise StreamError(f"run {quoted(self._run_id)} has to wait: its packets in the bucket are listed")
        # Windows that are parts on a rank's disk have its own numbers, and their attempt's offset in the run.
        following = max(following, elsewhere, hello.first_window + self._attempts.largest_offset)
        if following > MOST_WINDOW:
            raise StreamError(f"run {quoted(hello.run_id)} has no window numbers left")
        return following

    def _newest_on_disk(self) -> int:
        """Return the highest number of a packet of the run, or −1.

        Raises:
            OSError: its folder cannot be listed.
        """
        try:
            found = os.listdir(self._folder)  # ``Path.glob`` finds nothing where that fails.
        except FileNotFoundError:
            return -1
        numbers = (whole_number(name.partition(".")[0]) for name in found if name.endswith(SUFFIX))
        return max(
            (number for number in numbers if number is not None and number <= LAST_COUNTED), default=-1
        )

    def _write(self, entry: RestartEntry, sync: bool) -> None:
        path = self._folder / RESTARTS_FILE
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with open_regular(path, "ab+", follow_links=False) as file:
                size = os.fstat(file.fileno()).st_size
                if size > MAX_BYTES:
                    raise StreamError(
                        f"run {quoted(self._run_id)} was restarted too often: {path.name} has {size:,} bytes"
                    )
                if sync:
                    sync_folder(self._folder)
                    sync_folder(self._folder.parent)
                append_lines(file.fileno(), msgspec.json.encode(entry) + b"\n", sync=sync)
        except OSError as error:
            raise StreamError(f"cannot write {str(path)!r}: {error.strerror}") from error
