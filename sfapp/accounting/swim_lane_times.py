"""Where each rank is on the time axis of one step: its start, its stages, and its waiting in them.

Ranks are laid as the carry-over frontier lays them (accounting.md §10): one rank's durations end to end, all
ranks together where they synchronise. Waiting is what was measured (§15), else what the synchronisation
implies: a rank that enters a stage in which ranks wait does so until the last one has entered it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sfapp.accounting.carry_over import CarryOver, frontier_before
from sfapp.accounting.leaders import Flags, Floats, Ints
from sfapp.accounting.measures import Measures
from sfapp.accounting.own_time import split_steps
from sfapp.model.arrays import to_numpy

BLOCKED = 0.01
"""Waiting of less than this part of the step is not mentioned, and no arrow leads to it."""

CLEAR = 0.5
"""Part of the waiting in a stage that one rank must cause to be named for it."""

CARRIED_IN = 2.0
"""The mean step leaves the first step out if its ranks begin so many times as far apart as those of any other
step, and ``CARRIED_IN_PART`` of the step apart: they wait in it for what delayed a rank before the window."""

CARRIED_IN_PART = 0.1

_BLOCK_CELLS = 1 << 17
"""Cells of one plane worked on at a time, so that they stay in a core's cache."""

TimelineKey = tuple[int | None, int | None, tuple[int, ...]]
"""Position of the step or None for the mean, of the sync boundary's stage, and of the wait stages."""


@dataclass(frozen=True, slots=True)
class StageWait:
    """How ranks wait in one stage of the step.

    Attributes:
        stage: its position.
        late: position of the rank that most of the waiting is for; None if different ranks are last.
        mean_ns: mean waiting of the other ranks. least_ns: what even the last rank waits, such as a transfer.
        is_inferred: whether waiting was not measured, in some step at least.
    """

    stage: int
    late: int | None
    mean_ns: float
    least_ns: float
    is_inferred: bool


@dataclass(frozen=True, slots=True, eq=False)
class StepTimeline:
    """Every rank's step, ns; means over steps where the mean step is shown.

    Attributes:
        start_R: where each rank's step begins.
        duration_SR: by recorded stage. wait_SR: the waiting that they include.
        before_SR, before_wait_SR: the same of the stages after ``sync`` in the step before; no rows where
            there is none.
        inferred_S: whether the waiting of a stage was not measured, in some step at least.
        waits: the stages in which ranks wait, in order.
        sync: position of the stage at whose end ranks are laid together; None if that is not known.
        begin_ns, end_ns: of the exposed step.
        has_step_before: whether 0 is where ranks synchronised in the step before.
        is_carried_in: whether ranks wait in the window's first step for a delay before the window. The mean
            step then leaves that step out.
    """

    start_R: Floats
    duration_SR: Floats
    wait_SR: Floats
    before_SR: Floats
    before_wait_SR: Floats
    inferred_S: Flags
    waits: tuple[StageWait, ...]
    sync: int | None
    begin_ns: float
    end_ns: float
    has_step_before: bool
    is_carried_in: bool = False

    @property
    def exposed_ns(self) -> float:
        """How long the step is; at least 1."""
        return max(1.0, self.end_ns - self.begin_ns)

    @property
    def arrival_R(self) -> Floats:
        """Where each rank's own time before the synchronisation ends; without one, where its step ends."""
        end = len(self.duration_SR) if self.sync is None else self.sync + 1
        own_R: Floats = self.start_R + (self.duration_SR[:end] - self.wait_SR[:end]).sum(axis=0)
        return own_R


def timeline_of(measures: Measures, key: TimelineKey) -> StepTimeline:
    """Return the timeline of one step or of the mean step.

    Without a sync boundary, ranks are laid together at the end of the last stage with measured waits. Without
    these, or where ranks cannot be followed from step to step, every rank begins at 0. The mean step leaves
    out a first step in which ranks wait for a delay before the window (``CARRIED_IN``).
    """
    index, sync, fitted = key
    if measures.steps == 1:
        index = 0
    span = slice(0, measures.steps) if index is None else slice(index, index + 1)
    split_SN = split_steps(measures.window)
    recorded = np.flatnonzero(split_SN[:, span].any(axis=1)).tolist()
    if sync is None or not measures.has_all_rows:
        sync = recorded[-1] if recorded else None
    carry = measures.carry(sync) if sync is not None and measures.has_all_rows else None
    inferred = () if carry is None or sync is None else (*fitted, sync)
    pass_ = _Pass(measures, carry, split_SN, sync, frozenset(recorded), frozenset(inferred))
    is_carried_in = not index and carry is not None and pass_.is_carried_in()
    if index is None and is_carried_in:
        span = slice(1, measures.steps)
    shown = pass_.over(span)
    if carry is None or sync is None:
        begin = 0.0
        end = float(measures.makespan_N[span].mean()) if sync is None else shown.latest_end_ns
        none_SR: Floats = np.zeros((0, len(shown.start_R)))
        return StepTimeline(
            shown.start_R, shown.duration_SR, shown.wait_SR, none_SR, none_SR, shown.inferred_S, shown.waits,
            sync, begin, end, False,
        )  # fmt: skip
    exposed = float(carry.advance_SN[:, span].sum(axis=0).mean())
    has_step_before = index is None or index > 0
    before = shown if index is None or index == 0 else pass_.over(slice(index - 1, index))
    rest = slice(sync + 1, None) if has_step_before else slice(0, 0)
    tail_SR, tail_wait_SR = before.duration_SR[rest], before.wait_SR[rest]
    origin = float((shown.start_R - tail_SR.sum(axis=0)).max()) if has_step_before else 0.0
    return StepTimeline(
        shown.start_R - origin, shown.duration_SR, shown.wait_SR, tail_SR, tail_wait_SR,
        shown.inferred_S | before.inferred_S, shown.waits, sync, -origin, exposed - origin, has_step_before,
        is_carried_in,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Shown:
    """Means over some steps; fields as those of ``StepTimeline``, 0 being where the slowest step begins.
    ``latest_end_ns`` is where the last rank ends its step, NaN with a carry-over, which has its own end."""

    start_R: Floats
    duration_SR: Floats
    wait_SR: Floats
    inferred_S: Flags
    waits: tuple[StageWait, ...]
    latest_end_ns: float


@dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    """One pass over the matrix, ranks in blocks.

    Attributes:
        recorded: stages with measured waits. inferred: stages whose waiting is inferred where it was not
            measured.
    """

    measures: Measures
    carry: CarryOver | None
    split_SN: Flags
    sync: int | None
    recorded: frozenset[int]
    inferred: frozenset[int]

    def over(self, span: slice) -> _Shown:
        """Return the means over the steps of a slice."""
        window = self.measures.window
        stages, _, ranks = window.duration_SNR.shape
        steps = span.stop - span.start
        start_R = np.zeros(ranks)
        duration_SR, wait_SR = np.zeros((stages, ranks)), np.zeros((stages, ranks))
        seen = {stage: _Seen.of(steps) for stage in sorted(self.recorded | self.inferred)}
        latest_N = np.full(steps, np.iinfo(np.int64).min)
        # Positions count up to the last stage in which ranks wait; without a carry-over, to the step's end.
        placed = stages if self.carry is None else max(seen, default=-1)
        for block in _rank_blocks(steps, ranks):
            at_NR = self._start(span, block)
            start_R[block] = at_NR.sum(axis=0) / steps
            for stage in range(stages):
                spent_NR = to_numpy(window.duration_SNR[stage, span, block])
                duration_SR[stage, block] = spent_NR.sum(axis=0) / steps
                if stage in seen:
                    waited_NR = self._waited(stage, span, block, at_NR, spent_NR)
                    wait_SR[stage, block] = waited_NR.sum(axis=0) / steps
                    known_N = self.split_SN[stage, span]
                    arrived_NR = at_NR
                    if known_N.any():
                        arrived_NR = at_NR + np.where(known_N[:, None], spent_NR - waited_NR, 0)
                    seen[stage].add(block.start, arrived_NR, waited_NR)
                if stage < placed:
                    at_NR += spent_NR
            if self.carry is None:
                latest_N = np.maximum(latest_N, at_NR.max(axis=1))
        inferred_S = np.zeros(stages, dtype=bool)
        for stage in seen:
            inferred_S[stage] = not self.split_SN[stage, span].all()
        waits = (found.wait(stage, ranks, bool(inferred_S[stage])) for stage, found in seen.items())
        return _Shown(
            start_R, duration_SR, wait_SR, inferred_S, tuple(wait for wait in waits if wait is not None),
            float(latest_N.mean()) if self.carry is None else np.nan,
        )  # fmt: skip

    def is_carried_in(self) -> bool:
        """Return whether ranks begin the first step of the window far apart, and no other step."""
        window = self.measures.window
        _, steps, ranks = window.duration_SNR.shape
        if self.carry is None or steps < 3:
            return False
        first_N = np.full(steps, np.iinfo(np.int64).max)
        last_N = np.full(steps, np.iinfo(np.int64).min)
        for block in _rank_blocks(steps, ranks):
            at_NR = self._start(slice(0, steps), block)
            first_N = np.minimum(first_N, at_NR.min(axis=1))
            last_N = np.maximum(last_N, at_NR.max(axis=1))
        apart_N = last_N - first_N
        least = CARRIED_IN_PART * float(self.carry.advance_SN.sum(axis=0).mean())
        return bool(apart_N[0] >= max(least, CARRIED_IN * float(apart_N[1:].max())))

    def _start(self, span: slice, block: slice) -> Ints:
        """Return where ranks begin their steps, int64 ns [N, R] from where the slowest one does."""
        measures = self.measures
        if self.carry is not None:
            front_N = frontier_before(self.carry.frontier_SN, self.carry.start)[0, span]
            before_NR = to_numpy(measures.before_NR[span, block])
            start_NR: Ints = before_NR - self.carry.offset_R[block] - front_N[:, None]
            return start_NR
        if self.sync is None:
            width = block.stop - block.start
            return np.zeros((span.stop - span.start, width), dtype=np.int64)
        until_NR = to_numpy(measures.window.duration_SNR[: self.sync + 1, span].sum(axis=0))
        found: Ints = until_NR.max(axis=1)[:, None] - until_NR[:, block]
        return found

    def _waited(self, stage: int, span: slice, block: slice, at_NR: Ints, spent_NR: Ints) -> Ints:
        """Return the waiting in a stage, int64 ns [N, R].

        Args:
            at_NR: where ranks enter the stage. spent_NR: what they spend in it.
        """
        waited_NR: Ints
        if stage in self.inferred and self.carry is not None:
            frontier_SN = self.carry.frontier_SN
            begin_N = frontier_before(frontier_SN, self.carry.start)[0, span]
            front_N = begin_N if stage == 0 else frontier_SN[stage - 1, span]
            waited_NR = np.minimum((front_N - begin_N)[:, None] - at_NR, spent_NR)
        else:
            waited_NR = np.zeros_like(spent_NR)
        if stage in self.recorded:
            window = self.measures.window
            known_NR = to_numpy(window.waits[window.stages[stage]][span, block])
            known_N = self.split_SN[stage, span]
            waited_NR = np.where(known_N[:, None], np.minimum(known_NR, spent_NR), waited_NR)
        return waited_NR


@dataclass(slots=True, eq=False)
class _Seen:
    """Who arrives last in a stage, and how long the others wait, by step."""

    last_N: Ints
    late_N: Ints
    late_wait_N: Ints
    least_N: Ints
    sum_N: Ints

    @classmethod
    def of(cls, steps: int) -> _Seen:
        info = np.iinfo(np.int64)
        zero = np.zeros(steps, dtype=np.int64)
        return cls(np.full(steps, info.min), zero, zero.copy(), np.full(steps, info.max), zero.copy())

    def add(self, first: int, arrived_NR: Ints, waited_NR: Ints) -> None:
        """Add a block of ranks, from position ``first`` on."""
        rows = np.arange(len(arrived_NR))
        late_N = arrived_NR.argmax(axis=1)
        is_later_N = arrived_NR[rows, late_N] > self.last_N
        self.late_N = np.where(is_later_N, late_N + first, self.late_N)
        self.late_wait_N = np.where(is_later_N, waited_NR[rows, late_N], self.late_wait_N)
        self.last_N = np.where(is_later_N, arrived_NR[rows, late_N], self.last_N)
        self.least_N = np.minimum(self.least_N, waited_NR.min(axis=1))
        self.sum_N = self.sum_N + waited_NR.sum(axis=1)

    def wait(self, stage: int, ranks: int, is_inferred: bool) -> StageWait | None:
        """Return what was seen; None if there is one rank only."""
        if ranks < 2:
            return None
        others_N = (self.sum_N - self.late_wait_N) / (ranks - 1)
        caused_R = np.bincount(self.late_N, weights=np.maximum(0.0, others_N - self.least_N), minlength=ranks)
        late = int(caused_R.argmax())
        is_clear = caused_R[late] > 0 and caused_R[late] >= CLEAR * caused_R.sum()
        return StageWait(
            stage, late if is_clear else None, float(others_N.mean()), float(self.least_N.mean()), is_inferred
        )


def _rank_blocks(steps: int, ranks: int) -> Iterator[slice]:
    width = max(64, _BLOCK_CELLS // max(1, steps))
    for begin in range(0, ranks, width):
        yield slice(begin, min(ranks, begin + width))
