"""From closed windows to packets, on a thread of its own, so that training never waits for it.

Every window handed over ends as rows on disk exactly once: whole, written by rank 0, or in parts, written by
each rank from its own rows, when a gather fails, when a disk refuses, or when this process has to leave.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sfapp.errors import describe_error
from sfapp.packets.compose import part_draft
from sfapp.packets.job import JobRank
from sfapp.packets.window_rows import WindowBuffer
from sfapp.recorder.capture.mailbox import FileCaptureMailbox
from sfapp.recorder.transport.errors import GatherFailed, GatherRefused, warn
from sfapp.recorder.transport.gather import Result, TelemetryGroup
from sfapp.recorder.transport.packet_writer import Pen
from sfapp.recorder.transport.process_group import GatherRank, group_of
from sfapp.recorder.window.queue import Closed, Convoy, Early

if TYPE_CHECKING:
    from sfapp.packets import WindowDraft

LAST_IN_PARTS = "over NCCL the last window is left in parts"

REMEMBERED = 256
"""Newest packets and failures that a recorder can tell of: a run may have any number of windows."""


class Failures(deque[str]):
    """The newest things that went wrong. The first is a warning in the log too, where somebody may see it."""

    def __init__(self) -> None:
        super().__init__(maxlen=REMEMBERED)

    def append(self, what: str) -> None:
        if not self:
            warn(f"{what} (training goes on; what else fails is in Recorder.failures)")
        super().append(what)


class Writer:
    """Owns the line of closed windows, the thread that empties it, and the telemetry group's operations."""

    def __init__(self, most_waiting: int) -> None:
        self.written: deque[Path] = deque(maxlen=REMEMBERED)
        self.failures: deque[str] = Failures()
        self.mailbox = FileCaptureMailbox(self.failures)
        self._pen = Pen(self.failures)
        self._most_waiting = most_waiting
        self._convoy = Convoy()
        self._unclaimed: dict[int, tuple[JobRank, WindowBuffer]] = {}  # by number: nobody writes them yet
        self._claims = threading.Condition()
        self._writing = 0
        self._thread = threading.Thread(target=self._run, name="sfapp-recorder", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        """Windows that are not on disk yet."""
        with self._claims:
            return len(self._unclaimed) + self._writing

    def begin_window(self, rank: JobRank, buffer: WindowBuffer) -> None:
        """Do nothing: a window is gathered once it has ended."""

    def end_window(self, team: JobRank, buffer: WindowBuffer, last: bool = False) -> bool:
        """Hand a closed window over; False if too many wait already and its rows are dropped.

        A dropped window still takes its turn, empty: gathers stay in the same order on all ranks. The
        ``last`` window is never dropped.

        Where operations must come from the training's thread, it gathers here, for which it waits, and the
        last window is left in parts: training may be over because another rank is.
        """
        with self._claims:
            group = group_of(team)
            together = 1 if group is None else group.together
            kept = last or len(self._unclaimed) < self._most_waiting + together - 1
            if not kept:
                buffer = buffer.without_rows()
            self._unclaimed[buffer.number] = (team, buffer)
        early = None
        if isinstance(team, GatherRank) and group is not None and group.needs_training_thread:
            early = Early(why=LAST_IN_PARTS) if last else self._gather_early(team, group, buffer)
        self._convoy.put(Closed(team, buffer, early))
        return kept

    def close(self, seconds: float) -> None:
        """Write what is waiting and stop; after ``seconds``, write this rank's part of what is left."""
        self._convoy.end()
        self._thread.join(seconds)
        self.save_parts("the recorder was closed before the other ranks answered", seconds)
        self._pen.close()

    def save_parts(self, reason: str, seconds: float) -> None:
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

    def _save(self, left: Sequence[tuple[JobRank, WindowBuffer]], reason: str) -> None:
        for team, buffer in left:
            with self._claimed(buffer) as mine:
                if mine:
                    self._write_part(team, buffer, reason)
            if (group := group_of(team)) is not None:
                group.give_up(reason)

    # ---- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while going := self._convoy.next():
            gone = len(going)
            try:
                gone = self._ship(going[0].team, going)
            except Exception as error:  # fail-open: windows are lost, the job is not
                self._failed(going[0].buffer, error)
            self._convoy.leave(gone)

    def _ship(self, team: JobRank, going: Sequence[Closed]) -> int:
        """Bring windows to disk; how many, from the first on: the others go another time."""
        first = going[0].buffer
        if going[0].early is not None:
            self._ship_early(team, first, going[0].early)
            return 1
        group = team.group_for(first.number, first.train_ns) if isinstance(team, GatherRank) else None
        whys: list[str | None] = [team.part_reason]
        if isinstance(team, GatherRank) and group is not None:
            try:
                whys = [why or None for why in self._gather(team, group, [closed.buffer for closed in going])]
                team.keep()
            except GatherRefused as refusal:
                whys = [str(refusal)]
            except GatherFailed as failure:
                # After a failed collective the group's connections are in no known state: parts for a while.
                team.lose(group, first.number, str(failure))
                whys = [str(failure) for _ in going]
        for closed, why in zip(going, whys, strict=False):
            if group is not None and why is None:  # on disk
                with self._claims:
                    self._unclaimed.pop(closed.buffer.number, None)
                continue
            with self._claimed(closed.buffer) as mine:
                if mine:
                    self._write_part(team, closed.buffer, why)
        return len(whys)

    def _gather_early(self, team: GatherRank, group: TelemetryGroup, buffer: WindowBuffer) -> Early:
        begin = time.perf_counter_ns()
        try:
            _, gathered = group.gather([buffer])
        except GatherRefused as refusal:
            return Early(why=str(refusal))
        except GatherFailed as failure:
            team.lose(group, buffer.number, str(failure))
            return Early(why=str(failure))
        return Early(gathered[0] if gathered else None, time.perf_counter_ns() - begin)

    def _ship_early(self, team: JobRank, buffer: WindowBuffer, early: Early) -> None:
        """Nobody tells the others whether rank 0 could write the window: it is lost where it could not."""
        why = early.why
        if early.gathered is not None:
            (why,) = self._write_whole(team, [buffer], [early.gathered], early.gather_ns)
        with self._claimed(buffer) as mine:
            if mine and why:
                self._write_part(team, buffer, why)

    def _gather(self, team: JobRank, group: TelemetryGroup, buffers: Sequence[WindowBuffer]) -> list[str]:
        """Gather windows and, on rank 0, write them: of each that came together why it is not on disk, or
        nothing if it is."""
        begin = time.perf_counter_ns()
        count, gathered = group.gather(buffers)
        gather_ns = (time.perf_counter_ns() - begin) // count
        reasons = self._write_whole(team, buffers, gathered, gather_ns) if gathered else []
        return group.confirm(reasons, self._convoy.together(team, buffers[0]))

    def _write_whole(
        self, team: JobRank, buffers: Sequence[WindowBuffer], gathered: Sequence[Result], gather_ns: int
    ) -> list[str]:
        """Rank 0 writes whole windows; of each why not, or nothing: then all ranks write parts."""
        reasons = [found.objection for found in gathered]
        with ExitStack() as claims:
            packets: dict[int, tuple[WindowDraft, Path]] = {}  # by place
            for place, (buffer, found) in enumerate(zip(buffers, gathered, strict=False)):
                if reasons[place]:
                    continue
                if not claims.enter_context(self._claimed(buffer)):
                    reasons[place] = "rank 0 had to leave"
                    continue
                try:
                    buffer.faults |= found.faults
                    draft = found.draft(team.job, buffer, gather_ns)
                    packets[place] = draft, self._path(team, draft, None)
                except Exception as error:  # fail-open, and the others must hear of it or they wait in vain
                    reasons[place] = self._not_written(team, buffer, error)
            for (place, (_, path)), refusal in zip(
                packets.items(), self._pen.write([*packets.values()]), strict=True
            ):
                if refusal is None:
                    self.written.append(path)
                else:
                    reasons[place] = self._not_written(team, buffers[place], refusal)
        return reasons

    def _not_written(self, team: JobRank, buffer: WindowBuffer, error: Exception) -> str:
        """A window that rank 0 claimed and could not write: this rank's part of it is to be written."""
        self._failed(buffer, error)
        with self._claims:
            self._unclaimed[buffer.number] = (team, buffer)
        return f"rank 0 could not write the window: {describe_error(error)}"[:500]

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

    def _write_part(self, team: JobRank, buffer: WindowBuffer, why: str | None) -> None:
        """Write this rank's own rows; never raises."""
        if not buffer.filled:
            return
        identity = replace(team.identity, role=buffer.schema.role)
        alone = team.job.world_size == 1
        try:
            draft = part_draft(team.job, buffer, identity, None if alone else why)
            path = self._path(team, draft, None if alone else identity.rank)
            refusal = self._pen.write([(draft, path)])[0] if alone else self._pen.write_here(draft, path)
            if refusal is not None:
                raise refusal
            self.written.append(path)
        except Exception as error:  # fail-open: the rows are lost, the job is not
            self._failed(buffer, error)

    def _path(self, team: JobRank, draft: WindowDraft, part_rank: int | None) -> Path:
        from sfapp.packets import packet_path

        return packet_path(team.job.root, draft.run_id, draft.number, part_rank)

    def _failed(self, buffer: WindowBuffer, error: Exception) -> None:
        self.failures.append(f"window {buffer.number}: {describe_error(error)}")
