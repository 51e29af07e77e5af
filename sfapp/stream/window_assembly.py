"""Assemble the rows of many ranks into windows, and write windows as packets.

A window is written when all ranks have closed it, or after a timeout without the missing ranks; rows that
arrive later are merged into the packet on disk. Rows that fit no packet (of a rank that died within its
window, or whose steps differ from most ranks') are written as that rank's part, which readers merge.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sfapp.errors import PacketError
from sfapp.files import sync_folder
from sfapp.model.window import Window
from sfapp.packets import Packet, WindowDraft, assemble, create_packet, packet_path, read_packet, write_packet
from sfapp.packets.compose import part_draft, whole_draft
from sfapp.packets.job import JobInfo
from sfapp.packets.output import PacketOutput
from sfapp.packets.paths import name_in_path, part_path
from sfapp.packets.window_rows import STEP_COLUMN, WindowBuffer
from sfapp.stream.messages import StreamHello, WindowClosed, WindowOpened
from sfapp.stream.window_buffer import NOT_CLOSED, PendingWindow, RankRows, Rows, WindowKey, are_few

LATE = "the packet had been uploaded when the rank's rows arrived"
FEW = "so few ranks closed the window in time that the list of the others would be most of its packet"
DIFFERENT = "the rank's steps or stages differ from those of the other ranks"
OTHER_ATTEMPT = "another attempt at the run has a window of this number"
_RETRY_SECONDS = 1.0
_ROUND_SECONDS = 1.0
"""Seconds after which messages are taken again although further windows are due."""


@dataclass(slots=True)
class AssemblyCounts:
    """Counts of written windows and parts.

    Attributes:
        windows: packets written for the first time. rewritten: packets to which later ranks were added.
        parts: rows of one rank written as its part.
        incomplete: packets written without some rank.
        duplicates: windows of a rank that were already on disk.
        failed: failed writes, which are repeated.
        refused: windows of a rank whose rows cannot be in any packet.
    """

    windows: int = 0
    rewritten: int = 0
    parts: int = 0
    incomplete: int = 0
    duplicates: int = 0
    failed: int = 0
    refused: int = 0


class WindowAssembler:
    """Windows that are not on disk yet, and their packet directory.

    Args:
        root: the packet directory, or what uploads its packets.
        close_after: seconds that a window waits for its last ranks once one has closed it.
        late_after: seconds to wait for further late ranks before a packet is rewritten.
        clock: monotonic seconds.
    """

    def __init__(
        self, root: Path | PacketOutput, close_after: float, late_after: float, clock: Callable[[], float]
    ) -> None:
        self.counts = AssemblyCounts()
        self.failures: list[str] = []
        self.size = 0
        self.failing: set[str] = set()  # runs whose newest write failed
        self._output = PacketOutput.of(root)
        self._root = self._output.folder
        self._close_after = close_after
        self._late_after = late_after
        self._clock = clock
        self._pending: dict[WindowKey, PendingWindow] = {}

    def open(self, hello: StreamHello, opened: WindowOpened, number: int, attempt: str) -> RankRows | None:
        """Add a window that a rank has opened; return None if rows of that rank are held for it already."""
        rows = RankRows(hello, opened, number, attempt)
        ranks = self._window(rows).ranks
        if hello.rank in ranks:
            return None
        self.size += rows.size
        ranks[hello.rank] = rows
        return rows

    def add(self, rows: RankRows, row_NC: Rows) -> None:
        """Append steps to a rank's window."""
        rows.add(row_NC)
        self.size += row_NC.nbytes

    def close(self, rows: RankRows, closed: WindowClosed | None, end: int, hello: StreamHello) -> None:
        """Close a rank's window; ``closed`` is None if the rank discarded the end of it."""
        size = rows.size
        rows.take_hello(hello)
        rows.close(closed or _closed_by_gap(rows, end), end)
        self.size += rows.size - size
        pending = self._window(rows)
        wait = self._late_after if pending.is_late else self._close_after
        pending.due = min(pending.due or float("inf"), self._clock() + wait)

    def write_within(self, rows: Iterable[RankRows], seconds: float) -> None:
        """Write these windows within ``seconds``, because their rank has left."""
        for each in rows:
            pending = self._pending.get(each.key)
            if pending is not None and each.closed is not None:
                pending.due = min(pending.due or float("inf"), self._clock() + seconds)

    def abandon(self, rows: RankRows) -> bool:
        """Write the rows of an unfinished window as the rank's part, and drop them.

        Returns:
            False if that failed and must be tried again.
        """
        pending = self._pending.get(rows.key)
        if pending is None or pending.ranks.get(rows.hello.rank) is not rows or rows.closed is not None:
            return True
        try:
            if rows.steps:
                self._write_part(rows, NOT_CLOSED)
        except PacketError as error:
            self._note_failure(pending, error)
            return False
        self._remove_rows(pending, [rows])
        return True

    def write_due(self, most_bytes: int, everything: bool = False) -> int:
        """Write windows that are complete or have waited long enough, and the oldest above ``most_bytes``.

        Only what ranks have closed can be written. Of many, the next call writes the rest: ranks that are not
        answered meanwhile would take the aggregator for lost. So it does of a run after a failed write.

        Returns:
            Number of windows that were written.
        """
        now = self._clock()
        due = [pending for pending in self._pending.values() if everything or pending.is_due(now)]
        written, refused = 0, set[str]()
        for pending in sorted(due, key=lambda each: (each.retry_at, each.due or 0.0)):  # Repeated ones last.
            if pending.run_id in refused and not everything:
                continue
            if self._write(pending):
                written += 1
            else:
                refused.add(pending.run_id)
            if not everything and self._clock() - now >= _ROUND_SECONDS:
                break
        return written + self._write_oldest(most_bytes)

    def _write_oldest(self, most_bytes: int) -> int:
        """Write the oldest windows that a rank has closed until at most ``most_bytes`` are in memory."""
        written = 0
        for pending in list(self._pending.values()):
            if self.size <= most_bytes:
                break
            if pending.run_id not in self.failing and any(rows.closed for rows in pending.ranks.values()):
                written += self._write(pending)
        return written

    @property
    def newest(self) -> dict[str, int]:
        """Highest number of a window in memory, by run."""
        found: dict[str, int] = {}
        for run_id, number, _ in self._pending:
            found[run_id] = max(number, found.get(run_id, 0))
        return found

    # ---- inside ---------------------------------------------------------------------------------

    def _window(self, rows: RankRows) -> PendingWindow:
        pending = self._pending.get(rows.key)
        if pending is None:
            path = packet_path(self._root, rows.hello.run_id, rows.number)
            is_late = os.path.exists(path) or self._output.has_claimed(path)
            pending = self._pending[rows.key] = PendingWindow(rows.key, is_late)
        return pending

    def _remove_rows(self, pending: PendingWindow, done: Iterable[RankRows]) -> None:
        self.failing.discard(pending.run_id)
        for rows in done:
            if pending.ranks.get(rows.hello.rank) is rows:
                del pending.ranks[rows.hello.rank]
                self.size -= rows.size
        if not pending.ranks:
            self._pending.pop(pending.key, None)

    def _write(self, pending: PendingWindow) -> bool:
        """Write the closed rows of a window and mark them durable; return False if it has to be repeated."""
        closed = [rows for rows in pending.ranks.values() if rows.closed is not None]
        try:
            self._output.check_room()
            self._write_closed(pending, sorted(closed, key=lambda rows: rows.hello.rank))
            if closed:  # Ranks discard acknowledged rows: a power failure must not undo the rename.
                sync_folder(packet_path(self._root, pending.run_id, pending.number).parent)
        except (PacketError, OSError) as error:
            self._note_failure(pending, error)
            pending.due = pending.retry_at = self._clock() + _RETRY_SECONDS
            return False
        pending.due = None
        pending.is_late = pending.is_late or bool(closed)
        self._remove_rows(pending, closed)
        for rows in closed:
            rows.is_durable = True
            rows.chunks.clear()
        return True

    def _note_failure(self, pending: PendingWindow, error: PacketError | OSError) -> None:
        self.failures.append(str(error))
        self.counts.failed += 1
        self.failing.add(pending.run_id)

    def _write_closed(self, pending: PendingWindow, closed: Sequence[RankRows]) -> None:
        """Write the window's packet or add ranks to it, and write rows that do not fit as parts.

        Raises:
            PacketError: the file system refused.
        """
        fresh = [rows for rows in closed if rows.steps]
        folder = packet_path(self._root, pending.run_id, pending.number).parent
        try:
            with self._output.replacing, self._output.locked(folder):
                self._write_together(pending, fresh)
        except PacketError as error:
            if isinstance(error.__cause__, OSError):
                raise
            self.failures.append(str(error))  # one rank's rows are invalid; the others' are saved as parts
            for rows in fresh:
                self._write_part(rows, DIFFERENT)

    def _write_together(self, pending: PendingWindow, fresh: list[RankRows]) -> None:
        path = packet_path(self._root, pending.run_id, pending.number)
        existing = read_packet(path) if path.exists() else None
        if existing is not None and fresh and existing.window.manifest.attempt != fresh[0].attempt:
            # Several jobs may have the name of the run, or a process may outlive the next attempt.
            for rows in fresh:
                self._write_own_part(rows)
            return
        if existing is not None:
            present = set(existing.window.ranks.rank)
            self.counts.duplicates += sum(rows.hello.rank in present for rows in fresh)
            fresh = [rows for rows in fresh if rows.hello.rank not in present]
        elif (is_late := self._output.has_claimed(path)) or are_few(fresh):
            for rows in fresh:
                self._write_part(rows, LATE if is_late else FEW)
            return
        if not fresh:
            return
        matching, other = _majority(fresh)
        draft = _merged_draft(matching)
        if existing is None:
            if not create_packet(draft, path):  # A job that gathers has written one since: it takes no lock.
                self._write_together(pending, fresh)
                return
            self.counts.windows += 1
            self.counts.incomplete += bool(draft.manifest.missing_ranks)
        elif _fits(existing.window, draft):
            write_packet(_with_late_ranks(existing, draft, path), path)
            self.counts.rewritten += 1
        else:
            matching, other = [], fresh
        # This process may have been silent and left a part; the packet has all of its rows.
        _remove(
            part
            for rows in matching
            if os.path.exists(part := part_path(path, rows.hello.rank)) and _is_of(part, rows.attempt)
        )
        for rows in other:
            self._write_part(rows, DIFFERENT)

    def _write_part(self, rows: RankRows, reason: str) -> None:
        path = packet_path(self._root, rows.hello.run_id, rows.number, rows.hello.rank)
        if os.path.exists(path) and not _is_of(path, None, rows.attempt):
            self._write_own_part(rows)
        else:
            self._write_rows(rows, path, reason)

    def _write_own_part(self, rows: RankRows) -> None:
        """Write rows beside those of another attempt: readers list them as a conflict."""
        hello = rows.hello
        # Not the name of the part that the process itself may write, perhaps into the same folder.
        process = name_in_path(f"{hello.incarnation} here")
        self._write_rows(
            rows, packet_path(self._root, hello.run_id, rows.number, hello.rank, process), OTHER_ATTEMPT
        )
        self.failures.append(f"rank {hello.rank}, window {rows.number}: written as a part: {OTHER_ATTEMPT}")

    def _write_rows(self, rows: RankRows, path: Path, reason: str) -> None:
        try:
            write_packet(part_draft(_job(self._root, rows), rows.buffer(), rows.identity, reason), path)
            self.counts.parts += 1
        except PacketError as error:
            if isinstance(error.__cause__, OSError):
                raise
            self.counts.refused += 1
            self.failures.append(f"rank {rows.hello.rank}, window {rows.number}: {error}")


def _is_of(path: Path, *attempts: str | None) -> bool:
    """Return whether a packet names one of these attempts (None: no attempt). It may not be readable."""
    try:
        return read_packet(path).window.manifest.attempt in attempts
    except PacketError:
        return False


def _remove(paths: Iterable[Path]) -> None:
    """Remove files that may not exist, with one system call each: there may be a thousand."""
    for path in paths:
        path.unlink(missing_ok=True)


def _closed_by_gap(rows: RankRows, end: int) -> WindowClosed:
    """Return a substitute for the end of a window that the rank discarded."""
    opened = rows.opened
    return WindowClosed(
        v=opened.v,
        rank=opened.rank,
        incarnation=opened.incarnation,
        sequence=end - 1,
        window=opened.window,
        steps=rows.steps,
    )


def _job(root: Path, rows: RankRows) -> JobInfo:
    hello = rows.hello
    return JobInfo(
        root=root,
        run_id=hello.run_id,
        world_size=hello.world_size,
        wrapper=hello.wrapper,
        parallelism=hello.parallelism,
        prefetch=hello.prefetch,
        model_fit=hello.model_fit,
        recorder=hello.recorder,
        extra=hello.extra,
        attempt=rows.attempt,
    )


def _majority(ranks: Sequence[RankRows]) -> tuple[list[RankRows], list[RankRows]]:
    """Split ranks into those with the commonest schema and steps (ties: the lowest rank's) and the rest."""

    def key(rows: RankRows) -> Hashable:
        steps = rows.row_NC[:, STEP_COLUMN].tobytes()
        return rows.opened.stages, rows.opened.accumulation, rows.hello.world_size, steps

    keys = [key(rows) for rows in ranks]
    (chosen, _), *_ = Counter(keys).most_common(1)
    matching = [rows for rows, each in zip(ranks, keys, strict=True) if each == chosen]
    return matching, [rows for rows, each in zip(ranks, keys, strict=True) if each != chosen]


def _merged_draft(ranks: Sequence[RankRows]) -> WindowDraft:
    """Return one window of ranks that share schema and steps, ascending; its manifest lists missing ranks."""
    buffers = [rows.buffer() for rows in ranks]
    channels = sorted({name for buffer in buffers for name in buffer.side})
    first = buffers[0]
    first.faults = _faults(ranks, buffers)
    row_RNC = np.stack([buffer.packed(channels) for buffer in buffers])
    identities = [rows.identity for rows in ranks]
    draft = whole_draft(_job(Path(), ranks[0]), first, row_RNC, channels, identities, 0)
    present = set(draft.ranks.rank)
    missing = tuple(rank for rank in range(draft.manifest.world_size) if rank not in present)
    error = f"{len(missing)} ranks did not close the window in time" if missing else None
    manifest = replace(draft.manifest, missing_ranks=missing, gather_ok=not missing, gather_error=error)
    return replace(draft, manifest=manifest)


def _faults(ranks: Sequence[RankRows], buffers: Sequence[WindowBuffer]) -> dict[str, str]:
    """Return the faults of all ranks by code, each with the first rank that reported it."""
    found: defaultdict[str, str] = defaultdict(str)
    for rows, buffer in zip(ranks, buffers, strict=True):
        for code, detail in buffer.faults.items():
            if code not in found:
                found[code] = f"rank {rows.hello.rank}: {detail}" if detail else f"rank {rows.hello.rank}"
    return dict(found)


def _fits(existing: Window, late: WindowDraft) -> bool:
    """Return whether later ranks can be merged into a packet without losing a step."""
    both = existing.manifest, late.manifest
    ours, theirs = ((each.stages, each.world_size, each.accumulation) for each in both)
    return ours == theirs and existing.step_N.tolist() == late.step_N.tolist()


def _with_late_ranks(existing: Packet, late: WindowDraft, path: Path) -> Window:
    """Return the packet on disk with later ranks merged in; once complete, it is marked as gathered."""
    window = assemble([existing, Packet(late.window(), path, 0, "", None, 0)])
    if window.manifest.missing_ranks:
        return window
    return replace(window, manifest=replace(window.manifest, gather_ok=True, gather_error=None))
