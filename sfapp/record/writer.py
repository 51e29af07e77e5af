"""From closed windows to packets, on a thread of its own, so that training never waits for it.

Every window handed over ends as rows on disk exactly once: whole, written by rank 0, or in parts, written by
each rank from its own rows, when a gather fails, when a disk refuses, or when this process has to leave.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sfapp.record.buffers import WindowBuffer
from sfapp.record.compose import part_draft
from sfapp.record.desk import FileDesk
from sfapp.record.gather import Result, TelemetryGroup
from sfapp.record.pen import Pen
from sfapp.record.refusals import GatherFailed, GatherRefused, one_line
from sfapp.record.team import Team

if TYPE_CHECKING:
    from sfapp.packets import Draft

_LOG = logging.getLogger("sfapp")

LAST_IN_PARTS = "over NCCL the last window is left in parts"

REMEMBERED = 256
"""Newest packets and failures that a recorder can tell of: a run may have any number of windows."""


class Failures(deque[str]):
    """The newest things that went wrong. The first is a warning in the log too, where somebody may see it."""

    def __init__(self) -> None:
        super().__init__(maxlen=REMEMBERED)

    def append(self, what: str) -> None:
        if not self:
            _LOG.warning("%s (training goes on; what else fails is in Recorder.failures)", what)
        super().append(what)


@dataclass(frozen=True, slots=True)
class Early:
    """What came of a gather on the training's thread: on rank 0 the rows, or why there are none."""

    gathered: Result | None = None
    gather_ns: int = 0
    why: str | None = None


class Writer:
    """Owns the queue of closed windows, the thread that empties it, and the telemetry group's operations."""

    def __init__(self, most_waiting: int) -> None:
        self.written: deque[Path] = deque(maxlen=REMEMBERED)
        self.failures: deque[str] = Failures()
        self.desk = FileDesk(self.failures)
        self._pen = Pen(self.failures)
        self._most_waiting = most_waiting
        self._queue: queue.SimpleQueue[tuple[Team, WindowBuffer, Early | None] | None] = queue.SimpleQueue()
        self._unclaimed: dict[int, tuple[Team, WindowBuffer]] = {}  # by number: nobody writes them yet
        self._claims = threading.Condition()
        self._writing = 0
        self._thread = threading.Thread(target=self._run, name="sfapp-recorder", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        """Windows that nobody has written yet."""
        with self._claims:
            return len(self._unclaimed)

    def follow(self, team: Team, buffer: WindowBuffer) -> None:
        """A window begins. Nothing is to be done before it ends; a writer that streams begins here."""

    def submit(self, team: Team, buffer: WindowBuffer, last: bool = False) -> bool:
        """Hand a closed window over; False if too many wait already and its rows are dropped.

        A dropped window still takes its turn, empty: gathers stay in the same order on all ranks. The
        ``last`` window is never dropped.

        Where operations must come from the training's thread, it gathers here, for which it waits, and the
        last window is left in parts: training may be over because another rank is.
        """
        with self._claims:
            kept = last or len(self._unclaimed) < self._most_waiting
            if not kept:
                buffer = buffer.without_rows()
            self._unclaimed[buffer.number] = (team, buffer)
        early = None
        if team.group is not None and team.group.needs_training_thread:
            early = Early(why=LAST_IN_PARTS) if last else self._gather_early(team, team.group, buffer)
        self._queue.put((team, buffer, early))
        return kept

    def close(self, seconds: float) -> None:
        """Write what is waiting and stop; after ``seconds``, write this rank's part of what is left."""
        self._queue.put(None)
        self._thread.join(seconds)
        self.rescue("the recorder was closed before the other ranks answered", seconds)
        self._pen.close()

    def rescue(self, reason: str, seconds: float) -> None:
        """Write this rank's part of every window that is not being written yet, and wait at most ``seconds``
        for that and for those that other threads write. Nothing is gathered after it."""
        deadline = time.monotonic() + seconds
        with self._claims:
            left = list(self._unclaimed.values())
        if left:
            # On a thread that can be left behind: the file system may be one that does not answer.
            saving = threading.Thread(
                target=self._save, args=(left, reason), name="sfapp-rescue", daemon=True
            )
            saving.start()
            saving.join(seconds)
        with self._claims:
            self._claims.wait_for(lambda: not self._writing, max(0.0, deadline - time.monotonic()))

    def _save(self, left: Sequence[tuple[Team, WindowBuffer]], reason: str) -> None:
        for team, buffer in left:
            with self._claimed(buffer) as mine:
                if mine:
                    self._write_part(team, buffer, reason)
            if team.group is not None:
                team.group.give_up(reason)

    # ---- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            team, buffer, early = item
            try:
                if early is None:
                    self._ship(team, buffer)
                else:
                    self._ship_early(team, buffer, early)
            except Exception as error:  # fail-open: a window is lost, the job is not
                self._failed(buffer, error)

    def _ship(self, team: Team, buffer: WindowBuffer) -> None:
        group, why = team.group_for(buffer.number, buffer.train_ns), team.why_alone
        if group is not None:
            try:
                why = self._gather(team, group, buffer)
                team.keep()
            except GatherRefused as refusal:
                why = str(refusal)
            except GatherFailed as failure:
                # After a failed collective the group's connections are in no known state: parts for a while.
                why = str(failure)
                team.lose(group, buffer.number, why)
            if why is None:  # on disk
                with self._claims:
                    self._unclaimed.pop(buffer.number, None)
                return
        with self._claimed(buffer) as mine:
            if mine:
                self._write_part(team, buffer, why)

    def _gather_early(self, team: Team, group: TelemetryGroup, buffer: WindowBuffer) -> Early:
        begin = time.perf_counter_ns()
        try:
            gathered = group.gather(buffer)
        except GatherRefused as refusal:
            return Early(why=str(refusal))
        except GatherFailed as failure:
            team.lose(group, buffer.number, str(failure))
            return Early(why=str(failure))
        return Early(gathered, time.perf_counter_ns() - begin)

    def _ship_early(self, team: Team, buffer: WindowBuffer, early: Early) -> None:
        """Nobody tells the others whether rank 0 could write the window: it is lost where it could not."""
        why = early.why
        if early.gathered is not None:
            why = self._write_whole(team, buffer, early.gathered, early.gather_ns)
        with self._claimed(buffer) as mine:
            if mine and why:
                self._write_part(team, buffer, why)

    def _gather(self, team: Team, group: TelemetryGroup, buffer: WindowBuffer) -> str | None:
        """Gather and, on rank 0, write a window; why it is not on disk, or None if it is."""
        begin = time.perf_counter_ns()
        gathered = group.gather(buffer)
        if gathered is None:
            return group.confirm() or None
        gather_ns = time.perf_counter_ns() - begin
        return group.confirm(self._write_whole(team, buffer, gathered, gather_ns)) or None

    def _write_whole(self, team: Team, buffer: WindowBuffer, gathered: Result, gather_ns: int) -> str:
        """Rank 0 writes the whole window; says why not if it could not, so that all ranks write parts."""
        with self._claimed(buffer) as mine:
            if not mine:
                return "rank 0 had to leave"
            try:
                buffer.faults |= gathered.faults
                self._write(team.job.root, gathered.draft(team.job, buffer, gather_ns), None)
            except Exception as error:  # fail-open, and the others must hear of it or they wait in vain
                self._failed(buffer, error)
                with self._claims:
                    self._unclaimed[buffer.number] = (team, buffer)
                return f"rank 0 could not write the window: {one_line(error)}"[:500]
        return ""

    # ---- who writes what ------------------------------------------------------------------------

    @contextmanager
    def _claimed(self, buffer: WindowBuffer) -> Iterator[bool]:
        """Whether this thread is the one to write the window; ``rescue`` may have been before it."""
        with self._claims:
            mine = self._unclaimed.pop(buffer.number, None) is not None
            self._writing += mine
        try:
            yield mine
        finally:
            with self._claims:
                self._writing -= mine
                self._claims.notify_all()

    def _write_part(self, team: Team, buffer: WindowBuffer, why: str | None) -> None:
        """Write this rank's own rows; never raises."""
        if not buffer.filled:
            return
        identity = replace(team.identity, role=buffer.schema.role)
        alone = team.job.world_size == 1
        try:
            draft = part_draft(team.job, buffer, identity, None if alone else why)
            self._write(team.job.root, draft, None if alone else identity.rank)
        except Exception as error:  # fail-open: the rows are lost, the job is not
            self._failed(buffer, error)

    def _write(self, root: Path, draft: Draft, part_rank: int | None) -> None:
        from sfapp.packets import packet_path

        path = packet_path(root, draft.run_id, draft.number, part_rank)
        self._pen.write(draft, path, is_part=part_rank is not None)
        self.written.append(path)

    def _failed(self, buffer: WindowBuffer, error: Exception) -> None:
        self.failures.append(f"window {buffer.number}: {one_line(error)}")
