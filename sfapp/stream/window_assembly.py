"""On the aggregator: rows from many ranks become windows, and windows become packets on disk.

A window is written when all ranks have closed it, or after a timeout without those that are missing; rows
that come later are put into the packet that is there. Rows that fit no packet (of a rank that died in the
middle of its window, or that has other steps than most) are written as that rank's part, which readers put
together.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sfapp.errors import PacketError
from sfapp.model.window import Window
from sfapp.packets import Draft, Packet, assemble, packet_path, read_packet, write_packet
from sfapp.packets.compose import part_draft, whole_draft
from sfapp.packets.job import JobInfo
from sfapp.packets.paths import part_path
from sfapp.packets.window_rows import STEP_COLUMN, WindowBuffer
from sfapp.stream.messages import StreamHello, WindowClosed, WindowOpened
from sfapp.stream.window_buffer import NOT_CLOSED, PendingWindow, RankRows, Rows

DIFFERENT = "the rank's steps or stages are not those of the others"
_TRY_AGAIN_SECONDS = 1.0


@dataclass(slots=True)
class AssemblyCounts:
    """What was put together so far.

    Attributes:
        windows: packets written for the first time; ``rewritten`` with ranks that came later.
        parts: rows of one rank written as its part.
        incomplete: packets that were written without a rank.
        twice: windows of a rank that were on disk already.
        failed: attempts at writing that failed; they are repeated.
        refused: windows of a rank whose rows no packet can hold.
    """

    windows: int = 0
    rewritten: int = 0
    parts: int = 0
    incomplete: int = 0
    twice: int = 0
    failed: int = 0
    refused: int = 0


class WindowAssembler:
    """The windows under way, and the packet directory that they go to.

    Args:
        root: the packet directory.
        close_after: seconds that a window waits for its last ranks once one has closed it.
        late_after: seconds that later ranks are collected before a packet is written anew.
        clock: monotonic seconds.
    """

    def __init__(self, root: Path, close_after: float, late_after: float, clock: Callable[[], float]) -> None:
        self.counts = AssemblyCounts()
        self.failures: list[str] = []
        self.size = 0
        self.is_stuck = False  # whether the newest attempt at writing failed
        self._root = root
        self._close_after = close_after
        self._late_after = late_after
        self._clock = clock
        self._pending: dict[tuple[str, int], PendingWindow] = {}

    def open(self, hello: StreamHello, opened: WindowOpened, number: int) -> RankRows:
        """A rank begins a window."""
        rows = RankRows(hello, opened, number)
        ranks = self._window(hello.run_id, number).ranks
        before = ranks.pop(hello.rank, None)  # of the same rank, taken for dead meanwhile
        self.size -= before.size if before is not None else 0
        ranks[hello.rank] = rows
        return rows

    def add(self, rows: RankRows, row_NC: Rows) -> None:
        """More steps of a rank's window."""
        rows.add(row_NC)
        self.size += row_NC.nbytes

    def close(self, rows: RankRows, closed: WindowClosed | None, end: int) -> None:
        """A rank ends its window; ``closed`` is None where its end was discarded."""
        size = rows.size
        rows.close(closed or _closed_by_a_gap(rows, end), end)
        self.size += rows.size - size
        pending = self._window(rows.hello.run_id, rows.number)
        wait = self._late_after if pending.is_late else self._close_after
        pending.due = min(pending.due or float("inf"), self._clock() + wait)

    def hurry(self, rows: Iterable[RankRows], seconds: float) -> None:
        """Somebody waits for these windows to be on disk."""
        for each in rows:
            pending = self._pending.get((each.hello.run_id, each.number))
            if pending is not None and each.closed is not None:
                pending.due = min(pending.due or float("inf"), self._clock() + seconds)

    def abandon(self, rows: RankRows) -> bool:
        """No more will come of this rank's window: what there is becomes its part.

        Returns:
            False where it could not be written, to be tried again.
        """
        pending = self._pending.get((rows.hello.run_id, rows.number))
        if pending is None or pending.ranks.get(rows.hello.rank) is not rows or rows.closed is not None:
            return True
        try:
            if rows.steps:
                self._write_part(rows, NOT_CLOSED)
        except PacketError as error:
            self._note_failure(error)
            return False
        self._forget(pending, [rows])
        return True

    def write_due(self, most_bytes: int, everything: bool = False) -> int:
        """Write what is complete, what has waited long enough, and the oldest beyond ``most_bytes``.

        Returns:
            How many windows were tried.
        """
        now = self._clock()
        due = [
            pending
            for pending in self._pending.values()
            if everything or pending.is_complete or (pending.due is not None and pending.due <= now)
        ]
        if not due and self.size > most_bytes:
            due = [next(iter(self._pending.values()))]
        for pending in due:
            self._write(pending)
        return len(due)

    @property
    def newest(self) -> dict[str, int]:
        """Per run, the highest number of a window under way."""
        found: dict[str, int] = {}
        for run_id, number in self._pending:
            found[run_id] = max(number, found.get(run_id, 0))
        return found

    # ---- inside ---------------------------------------------------------------------------------

    def _window(self, run_id: str, number: int) -> PendingWindow:
        key = run_id, number
        if key not in self._pending:
            is_late = os.path.exists(packet_path(self._root, run_id, number))
            self._pending[key] = PendingWindow(run_id, number, is_late)
        return self._pending[key]

    def _forget(self, pending: PendingWindow, gone: Iterable[RankRows]) -> None:
        for rows in gone:
            if pending.ranks.get(rows.hello.rank) is rows:
                del pending.ranks[rows.hello.rank]
                self.size -= rows.size
        if not pending.ranks:
            self._pending.pop((pending.run_id, pending.number), None)

    def _write(self, pending: PendingWindow) -> None:
        """Put what is closed on disk. Rows are durable only after that; a failure is tried again."""
        closed = [rows for rows in pending.ranks.values() if rows.closed is not None]
        try:
            self._write_closed(pending, sorted(closed, key=lambda rows: rows.hello.rank))
        except (PacketError, OSError) as error:
            self._note_failure(error)
            pending.due = self._clock() + _TRY_AGAIN_SECONDS
            return
        pending.due, self.is_stuck = None, False
        pending.is_late = pending.is_late or bool(closed)
        self._forget(pending, closed)
        for rows in closed:
            rows.is_durable = True
            rows.chunks.clear()

    def _note_failure(self, error: PacketError | OSError) -> None:
        self.failures.append(str(error))
        self.counts.failed += 1
        self.is_stuck = True

    def _write_closed(self, pending: PendingWindow, closed: Sequence[RankRows]) -> None:
        """Write the window's packet, or add to it, and as parts what does not fit in.

        Raises:
            PacketError: the disk refuses.
        """
        fresh = [rows for rows in closed if rows.steps]
        try:
            self._write_together(pending, fresh)
        except PacketError as error:
            if isinstance(error.__cause__, OSError):
                raise
            self.failures.append(str(error))  # some rank's rows cannot be in a packet: the others' can
            for rows in fresh:
                self._write_part(rows, DIFFERENT)

    def _write_together(self, pending: PendingWindow, fresh: list[RankRows]) -> None:
        path = packet_path(self._root, pending.run_id, pending.number)
        there = read_packet(path) if path.exists() else None
        if there is not None:
            present = set(there.window.ranks.rank)
            self.counts.twice += sum(rows.hello.rank in present for rows in fresh)
            fresh = [rows for rows in fresh if rows.hello.rank not in present]
        if not fresh:
            return
        alike, odd = _majority(fresh)
        whole = _whole(alike)
        if there is None:
            write_packet(whole, path)
            self.counts.windows += 1
            self.counts.incomplete += bool(whole.manifest.missing_ranks)
        elif _fits(there.window, whole):
            write_packet(_joined(there, whole, path), path)
            self.counts.rewritten += 1
        else:
            alike, odd = [], fresh
        _remove(part_path(path, rows.hello.rank) for rows in alike)  # what was sent before it was cut off
        for rows in odd:
            self._write_part(rows, DIFFERENT)

    def _write_part(self, rows: RankRows, why: str) -> None:
        buffer = rows.buffer()
        try:
            write_packet(
                part_draft(_job(self._root, rows), buffer, rows.identity, why), self._part_path(rows)
            )
            self.counts.parts += 1
        except PacketError as error:
            if isinstance(error.__cause__, OSError):
                raise
            self.counts.refused += 1
            self.failures.append(f"rank {rows.hello.rank}, window {rows.number}: {error}")

    def _part_path(self, rows: RankRows) -> Path:
        return packet_path(self._root, rows.hello.run_id, rows.number, rows.hello.rank)


def _remove(paths: Iterable[Path]) -> None:
    """Of a thousand ranks hardly one has left a part: nothing is asked of them that need not be."""
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _closed_by_a_gap(rows: RankRows, end: int) -> WindowClosed:
    """What stands for the end of a window that was discarded on the rank."""
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
    )


def _majority(ranks: Sequence[RankRows]) -> tuple[list[RankRows], list[RankRows]]:
    """The ranks that share schema and steps with most others (ties: the lowest rank's), and the rest."""

    def key(rows: RankRows) -> Hashable:
        steps = rows.row_NC[:, STEP_COLUMN].tobytes()
        return rows.opened.stages, rows.opened.accumulation, rows.hello.world_size, steps

    keys = [key(rows) for rows in ranks]
    (chosen, _), *_ = Counter(keys).most_common(1)
    alike = [rows for rows, of in zip(ranks, keys, strict=True) if of == chosen]
    return alike, [rows for rows, of in zip(ranks, keys, strict=True) if of != chosen]


def _whole(ranks: Sequence[RankRows]) -> Draft:
    """One window of ranks, ascending, that share schema and steps; the manifest says who is missing."""
    buffers = [rows.buffer() for rows in ranks]
    channels = sorted({name for buffer in buffers for name in buffer.side})
    first = buffers[0]
    first.faults = _faults(ranks, buffers)
    row_RNC = np.stack([buffer.packed(channels) for buffer in buffers])
    identities = [rows.identity for rows in ranks]
    draft = whole_draft(_job(Path(), ranks[0]), first, row_RNC, channels, identities, 0)
    present = set(draft.ranks.rank)
    missing = tuple(rank for rank in range(draft.manifest.world_size) if rank not in present)
    error = f"{len(missing)} ranks had not closed the window in time" if missing else None
    manifest = replace(draft.manifest, missing_ranks=missing, gather_ok=not missing, gather_error=error)
    return replace(draft, manifest=manifest)


def _faults(ranks: Sequence[RankRows], buffers: Sequence[WindowBuffer]) -> dict[str, str]:
    """Any rank's faults by code, with the rank that saw it first."""
    found: defaultdict[str, str] = defaultdict(str)
    for rows, buffer in zip(ranks, buffers, strict=True):
        for code, detail in buffer.faults.items():
            if code not in found:
                found[code] = f"rank {rows.hello.rank}: {detail}" if detail else f"rank {rows.hello.rank}"
    return dict(found)


def _fits(there: Window, late: Draft) -> bool:
    """Whether later ranks can be put into a packet without leaving out a step."""
    one, other = there.manifest, late.manifest
    return (one.stages, one.world_size, one.accumulation) == (
        other.stages,
        other.world_size,
        other.accumulation,
    ) and there.step_N.tolist() == late.step_N.tolist()


def _joined(there: Packet, late: Draft, path: Path) -> Window:
    """The packet on disk with later ranks in it; complete, nothing is left of why it was not."""
    window = assemble([there, Packet(late.window(), path, 0, "", None, 0)])
    if window.manifest.missing_ranks:
        return window
    return replace(window, manifest=replace(window.manifest, gather_ok=True, gather_error=None))
