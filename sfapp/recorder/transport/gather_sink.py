"""The sink of all local transports, which gathers closed windows and writes packets on its own thread.

The rows of each window reach the disk exactly once. Rank 0 writes whole windows. If a gather fails, if rank 0
cannot write, or if this process has to end, each rank writes its own rows as a part.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sfapp.errors import PacketError, describe_error
from sfapp.model.standstill import PlaceSource
from sfapp.packets import WindowDraft, packet_path
from sfapp.packets.compose import part_draft
from sfapp.packets.job import JobRank
from sfapp.packets.threads import start_or_note
from sfapp.packets.window_rows import WindowBuffer
from sfapp.recorder.capture.mailbox import FileCaptureMailbox
from sfapp.recorder.transport.gather_errors import GatherFailed, GatherRefused, warn
from sfapp.recorder.transport.packet_writer import PacketWriter
from sfapp.recorder.transport.rank_group import GatherRank, group_of
from sfapp.recorder.transport.transport_group import GatherResult, TransportGroup
from sfapp.recorder.transport.window_queue import ClosedWindow, EarlyGather, WindowQueue

_LAST_IN_PARTS = "the last window is left in parts, because it would be gathered on the training thread"

_NO_THREAD = "the system refused this rank a thread to gather it"

_TAKEN = "another recorder has written it: give each job a run_id of its own"

_MAX_REMEMBERED = 256
"""Maximum number of newest packets and failures that a recorder keeps: a run may have any number of
windows."""


class FailureLog(deque[str]):
    """The newest failures. The first one is also logged as a warning."""

    def __init__(self) -> None:
        super().__init__(maxlen=_MAX_REMEMBERED)

    def append(self, failure: str) -> None:
        if not self:
            warn(f"{failure} (training continues; further failures are in Recorder.failures)")
        super().append(failure)


class LostWindows:
    """Windows whose rows of this rank could not be written. Only the first failure is logged as it occurs."""

    def __init__(self) -> None:
        self._rank = self._first = self._last = self._count = 0

    def add(self, rank: int, number: int) -> None:
        """Count a window."""
        self._first = number if not self._count else self._first
        self._rank, self._last = rank, number
        self._count += 1

    def report(self) -> None:
        """Log how many there are, unless the log has named the only one."""
        if self._count > 1:
            warn(
                f"{self._count} windows of rank {self._rank} were lost in all, from window {self._first} to "
                f"window {self._last}: they could not be written"
            )


class GatherSink:
    """``PacketSink`` that gathers windows over a rank's group, or writes parts if there is no group.

    Args:
        max_pending: number of closed windows that may wait before the rows of one are dropped.
    """

    def __init__(self, max_pending: int) -> None:
        self.written: deque[Path] = deque(maxlen=_MAX_REMEMBERED)
        self.failures: deque[str] = FailureLog()
        self.mailbox = FileCaptureMailbox(self.failures)
        self._packet_writer = PacketWriter(self.failures)
        self._lost = LostWindows()
        self._max_pending = max_pending
        self._queue = WindowQueue()
        # Windows by number that no thread has claimed for writing.
        self._unclaimed: dict[int, tuple[JobRank, WindowBuffer]] = {}
        self._claims = threading.Condition()
        self._writing = 0
        self._thread = threading.Thread(target=self._run, name="sfapp-recorder", daemon=True)
        self._has_thread = start_or_note(self._thread, self.failures)

    @property
    def pending(self) -> int:
        """Number of windows that are not on disk yet."""
        with self._claims:
            return len(self._unclaimed) + self._writing

    def follow(self, places: PlaceSource) -> None:
        """Do nothing, because only a streamed job reports where its ranks are."""

    def begin_window(self, rank: JobRank, buffer: WindowBuffer) -> None:
        """Do nothing, because a window is gathered once it has ended."""

    def end_window(self, rank: JobRank, buffer: WindowBuffer, last: bool = False) -> bool:
        """Queue a closed window; return False if too many wait already and its rows are dropped.

        A dropped window keeps its place in the queue, without rows, so that all ranks gather in the same
        order. The ``last`` window is never dropped.

        If collectives must come from the training thread, this gathers at once and blocks. The last window is
        then written in parts, because training may have ended because another rank has.

        Where the system refuses the recorder a thread, this writes the rank's part.
        """
        group = group_of(rank)
        with self._claims:
            batch_size = 1 if group is None else group.batch_size
            kept = last or len(self._unclaimed) < self._max_pending + batch_size - 1
            if not kept:
                buffer = buffer.without_rows()
            self._unclaimed[buffer.number] = (rank, buffer)
        early = None
        if isinstance(rank, GatherRank) and group is not None and group.needs_training_thread:
            early = EarlyGather(part_reason=_LAST_IN_PARTS) if last else _gather_early(rank, group, buffer)
        closed = ClosedWindow(rank, buffer, early)
        self._has_thread = self._has_thread or start_or_note(self._thread, self.failures)
        if self._has_thread:
            self._queue.put(closed)
        else:
            self._store_here(closed)
        return kept

    def close(self, seconds: float) -> None:
        """Write the waiting windows and stop; after ``seconds``, write this rank's part of the rest."""
        try:
            self._queue.end()
            if self._has_thread:
                self._thread.join(seconds)
        finally:  # Ctrl-C ends the wait, not the rows.
            self.save_parts("the recorder was closed before the other ranks responded", seconds)
            self._packet_writer.close()

    def save_parts(self, reason: str, seconds: float) -> None:
        """Write this rank's part of every window that is not being written yet.

        Waits at most ``seconds`` for this and for windows that other threads write. Gathering then ends.
        """
        deadline = time.monotonic() + seconds
        with self._claims:
            left = list(self._unclaimed.values())
        if left:
            # On a thread that can be abandoned, because a file system may not respond.
            saving = threading.Thread(
                target=self._save, args=(left, reason), name="sfapp-save-parts", daemon=True
            )
            if start_or_note(saving, self.failures):
                saving.join(seconds)
            else:
                self._save(left, reason)
        with self._claims:
            self._claims.wait_for(lambda: not self._writing, max(0.0, deadline - time.monotonic()))
        self._lost.report()
        if pending := self.pending:  # The file system does not respond, and the process may end now.
            warn(f"windows that were not on disk yet when recording ended: {pending}")

    def _save(self, left: Sequence[tuple[JobRank, WindowBuffer]], reason: str) -> None:
        for rank, buffer in left:
            with self._claim(buffer) as is_ours:
                if is_ours:
                    self._write_part(rank, buffer, reason)
            if (group := group_of(rank)) is not None:
                group.give_up(reason)

    def _store_here(self, closed: ClosedWindow) -> None:
        """Store a window on the training thread without a gather, which could block for long."""
        try:
            if closed.early is None:
                self._save([(closed.rank, closed.buffer)], _NO_THREAD)
            else:
                self._store_early(closed.rank, closed.buffer, closed.early)
        except Exception as error:  # fail-open: the window is lost, the job is not
            self._note_failure(closed.buffer, error)

    # ---- the recorder's thread ------------------------------------------------------------------

    def _run(self) -> None:
        while batch := self._queue.next_batch():
            finished = len(batch)
            try:
                finished = self._store(batch)
            except Exception as error:  # fail-open: windows are lost, the job is not
                self._note_failure(batch[0].buffer, error)
            self._queue.remove(finished)

    def _store(self, batch: Sequence[ClosedWindow]) -> int:
        """Write windows to disk and return their number, from the first on. The others stay in the queue."""
        first = batch[0]
        if first.early is not None:
            self._store_early(first.rank, first.buffer, first.early)
            return 1
        rank = first.rank
        group = None
        if isinstance(rank, GatherRank):
            group = rank.group_for(first.buffer.number, first.buffer.train_ns)
        if not isinstance(rank, GatherRank) or group is None:
            self._write_parts(batch[:1], [rank.part_reason])
            return 1
        try:
            reasons = self._gather(rank, group, [closed.buffer for closed in batch])
            rank.confirm_group()
        except GatherRefused as refusal:
            reasons = [str(refusal)]
        except GatherFailed as failure:
            # After a failed collective the group's connections are in an unknown state: write parts.
            rank.drop_group(group, first.buffer.number, str(failure))
            reasons = [str(failure) for _ in batch]
        stored = [closed for closed, reason in zip(batch, reasons, strict=False) if not reason]
        with self._claims:
            for closed in stored:
                self._unclaimed.pop(closed.buffer.number, None)
        failed = [(closed, reason) for closed, reason in zip(batch, reasons, strict=False) if reason]
        self._write_parts([closed for closed, _ in failed], [reason for _, reason in failed])
        return len(reasons)

    def _store_early(self, rank: JobRank, buffer: WindowBuffer, early: EarlyGather) -> None:
        """Store a window that was gathered on the training thread.

        The other ranks do not learn whether rank 0 could write it; if it could not, their rows are lost.
        """
        reason = early.part_reason
        if early.result is not None:
            (reason,) = self._write_whole(rank, [buffer], [early.result], early.gather_ns)
        if reason:
            self._write_parts([ClosedWindow(rank, buffer, early)], [reason])
        else:
            with self._claims:
                self._unclaimed.pop(buffer.number, None)

    def _gather(self, rank: JobRank, group: TransportGroup, buffers: Sequence[WindowBuffer]) -> list[str]:
        """Gather windows and, on rank 0, write them.

        Returns:
            For each gathered window, why it is not on disk; empty if it is.
        """
        begin = time.perf_counter_ns()
        count, results = group.gather(buffers)
        gather_ns = (time.perf_counter_ns() - begin) // count
        reasons = self._write_whole(rank, buffers, results, gather_ns) if results else []
        return group.confirm(reasons, self._queue.batch_size(rank, buffers[0]))

    def _write_whole(
        self,
        rank: JobRank,
        buffers: Sequence[WindowBuffer],
        results: Sequence[GatherResult],
        gather_ns: int,
    ) -> list[str]:
        """Write whole windows, on rank 0; return for each why it was not written, empty if it was."""
        reasons = [result.objection for result in results]
        with ExitStack() as claims:
            packets: dict[int, tuple[WindowDraft, Path]] = {}
            for index, (buffer, result) in enumerate(zip(buffers, results, strict=False)):
                if reasons[index]:
                    continue
                if not claims.enter_context(self._claim(buffer)):
                    reasons[index] = "rank 0 had to end"
                    continue
                try:
                    buffer.faults |= result.faults
                    draft = result.draft(rank.job, buffer, gather_ns)
                    packets[index] = draft, _new_path(rank, draft, None)
                except Exception as error:  # fail-open: otherwise the others would wait for a response
                    reasons[index] = self._unclaim(rank, buffer, error)
            refusals = self._packet_writer.write([*packets.values()])
            for (index, (_, path)), refusal in zip(packets.items(), refusals, strict=True):
                if refusal is None:
                    self.written.append(path)
                else:
                    reasons[index] = self._unclaim(rank, buffers[index], refusal)
        return reasons

    def _unclaim(self, rank: JobRank, buffer: WindowBuffer, error: Exception) -> str:
        """Return a window that rank 0 could not write to the windows to be written as parts."""
        self._note_failure(buffer, error)
        with self._claims:
            self._unclaimed[buffer.number] = (rank, buffer)
        return f"rank 0 could not write the window: {describe_error(error)}"[:500]

    # ---- parts ----------------------------------------------------------------------------------

    def _write_parts(self, closed: Sequence[ClosedWindow], reasons: Sequence[str | None]) -> None:
        for window, reason in zip(closed, reasons, strict=True):
            with self._claim(window.buffer) as is_ours:
                if is_ours:
                    self._write_part(window.rank, window.buffer, reason)

    @contextmanager
    def _claim(self, buffer: WindowBuffer) -> Iterator[bool]:
        """Yield whether this thread may write the window; ``save_parts`` may have claimed it before."""
        with self._claims:
            is_ours = self._unclaimed.pop(buffer.number, None) is not None
            self._writing += is_ours
        try:
            yield is_ours
        finally:
            with self._claims:
                self._writing -= is_ours
                self._claims.notify_all()

    def _write_part(self, rank: JobRank, buffer: WindowBuffer, reason: str | None) -> None:
        """Write this rank's own rows; never raises."""
        if not buffer.filled:
            return
        identity = buffer.schema.identify(rank.identity)
        is_whole = rank.job.world_size == 1 and rank.job.process is None
        try:
            refusal: Exception | None = None
            if is_whole:
                draft = part_draft(rank.job, buffer, identity, None)
                path = _path(rank, draft, None)
                if not (is_taken := path.exists()):
                    (refusal,) = self._packet_writer.write([(draft, path)])
                    is_taken = refusal is not None and path.exists()
                if is_taken:  # As a part beside the other one, it is listed as a conflict.
                    is_whole, reason = False, _TAKEN
                    self.failures.append(f"window {buffer.number} is written as a part: {_TAKEN}")
            if not is_whole:
                draft = part_draft(rank.job, buffer, identity, reason)
                path = _new_path(rank, draft, identity.rank)
                refusal = self._packet_writer.write_here(draft, path)
            if refusal is not None:
                raise refusal
            self.written.append(path)
        except Exception as error:  # fail-open: the rows are lost, the job is not
            self._lost.add(identity.rank, buffer.number)
            self._note_failure(buffer, error)

    def _note_failure(self, buffer: WindowBuffer, error: Exception) -> None:
        self.failures.append(f"window {buffer.number}: {describe_error(error)}")


def _gather_early(rank: GatherRank, group: TransportGroup, buffer: WindowBuffer) -> EarlyGather:
    begin = time.perf_counter_ns()
    try:
        _, results = group.gather([buffer])
    except GatherRefused as refusal:
        return EarlyGather(part_reason=str(refusal))
    except GatherFailed as failure:
        rank.drop_group(group, buffer.number, str(failure))
        return EarlyGather(part_reason=str(failure))
    return EarlyGather(results[0] if results else None, time.perf_counter_ns() - begin)


def _new_path(rank: JobRank, draft: WindowDraft, part_rank: int | None) -> Path:
    """Return the path for a window.

    Raises:
        PacketError: it has a file, which must not be replaced: it holds another recorder's rows.
    """
    path = _path(rank, draft, part_rank)
    if path.exists():
        raise PacketError(_TAKEN, path=str(path))
    return path


def _path(rank: JobRank, draft: WindowDraft, part_rank: int | None) -> Path:
    return packet_path(rank.job.root, draft.run_id, draft.number, part_rank, rank.job.process)
