"""The hot path: the state of the current step and the reusable contexts behind ``step()`` and ``stage()``.

This file is the only source of the hot path. Where a C compiler is available, ``hatch_build.py`` compiles a
copy of it, with the C types of ``_timers.pxd``, to the module ``_timers``; ``timer_backend`` chooses.

A stage costs two clock reads and an addition; a step that ends leaves its row where it is. All else is done
for many rows at once, when a step is ``due``. Contexts are created once per schema. Nothing is allocated,
locked or logged here, and nothing raises into the training loop, unless the recorder is strict.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from time import perf_counter_ns, thread_time_ns
from types import TracebackType
from typing import Any

from sfapp.packets.window_rows import FIRST_STAGE_COLUMN, STEP_COLUMN, WALL_COLUMN
from sfapp.recorder.timing.batch_waits import take_held
from sfapp.recorder.timing.contexts import UncountedStage, leave_refused, refuse_stage, unknown_stage
from sfapp.recorder.timing.host_counters import HOST_CELLS, NOT_READ, read_host, set_host_row

Clock = Callable[[], int]
"""Monotonic time in ns."""

NEVER = 2**63 - 1
"""A step number or a time that does not come."""

EVIDENCE_NS, EVIDENCE_STEPS = 50_000_000, 4
"""Host evidence is read this long after the last reading, or this many steps: each costs 1 % of 2 ms."""

CPU_SLACK_NS = 5_000
"""Age up to which a reading of the CPU time is used again: boundaries that follow each other share one."""


class StepState:
    """The current step on this rank, and a page with the rows of the steps before it.

    Several threads may step one recorder, though it is made for one; a step without a row is not recorded.

    Attributes:
        page, cells: int64 array of rows without the residual, zeros where no step has been; for the hot path.
        base: index of the first cell of the current step's row; complete rows lie before it.
        between: cell of a row for the time since the previous step; ``STEP_COLUMN`` to not record it.
        ended: end of the previous step (clock); NEVER where there is none.
        width: number of cells of a row.
        clock: monotonic time in ns. The compiled module reads ``time.perf_counter_ns`` without calling it.
        number: number of the current step, or of the next one.
        due, capture_due: number of the step before which ``on_due`` must be called; another thread's.
        report_due: number of the step from which ``on_step`` is called for steps with nothing but a row.
        open_stage: the stage being timed, None between stages, ``outside`` where there is no step.
        refused, has_refused: when each refused context (nested, outside a step) that is not left was entered.
        nested_ns: time in nested stages; it counts for the outer stage alone.
        held_ns: time spent so far waiting for the next step's batch; it is put before that step.
        moved_ns: the part of ``held_ns`` that lies within the current step and is subtracted from it.
        held_column: stage column that receives ``held_ns``; None where there is no data stage.
        unused_batches: number of batches that were fetched and not used by a step.
        syncs: per micro-step of the step whether gradients were exchanged, where the training loop states it.
        side: side-channel values of the step.
        foreign_stages: number of stages entered on another thread than the step's and not left: refused.
        strict: whether a refused stage raises.
        thread: the thread that entered the step.
        stages: the timers by name, per micro-step; a last, empty entry serves any further micro-steps.
        on_step: called with the step's begin and end (clock) and whether its body ended without an error,
            instead of completing its row, where the step has more than a row, or no row.
        on_due, on_fault: called between steps; called with a fault's code and detail.
        cpu_clock: CPU time of the thread in ns; ``time.thread_time_ns`` is read as ``clock`` is.
        cpu_page, cpu_cells: CPU times if they are recorded, in cells of the same index as in ``page``.
        cpu_ns, cpu_read, cpu_slack: newest CPU time, when it was read (clock), for how long it is used again.
        cpu_ended, held_cpu, moved_cpu: CPU time at the last step's end, in ``held_ns`` and in ``moved_ns``.
        reads_host: whether counters of the thread are read at the end of steps.
        evidence_ns, evidence_steps: how long ago, and how many steps, the last evidence may be (EVIDENCE_NS).
        evidence_read, steps_since: when evidence was read last (clock), and the steps that have ended since.
        times_cpu: whether the current step's CPU time is recorded.
        host_page, host_cells: ``HOST_CELLS`` counters for each row of ``page``.
        gc_ns, schedstat, reads_usage: where they come from (``counters``).
        host_due: time (clock) from which ``on_host`` is called at the end of a step, with that time.
    """

    __slots__ = (
        "_current", "_made", "base", "between", "capture_due", "cells", "clock", "cpu_cells", "cpu_clock",
        "cpu_ended", "cpu_ns", "cpu_page", "cpu_read", "cpu_slack", "due", "ended", "evidence_ns",
        "evidence_read", "evidence_steps", "foreign_stages", "gc_ns", "has_refused", "held_column",
        "held_cpu", "held_ns", "host_cells", "host_due", "host_page", "moved_cpu", "moved_ns", "nested_ns",
        "number", "on_due", "on_fault", "on_host", "on_step", "open_stage", "outside", "page", "reads_cpu",
        "reads_host", "reads_perf_counter", "reads_thread_time", "reads_usage", "refused", "report_due",
        "schedstat", "side", "stages", "steps_since", "strict", "syncs", "thread", "times_cpu",
        "unused_batches", "width",
    )  # fmt: skip

    def __init__(
        self,
        clock: Clock,
        on_step: Callable[[int, int, bool], None],
        on_due: Callable[[], None],
        on_fault: Callable[[str, str], None],
        strict: bool = False,
    ) -> None:
        self.clock = clock
        self.reads_perf_counter = clock is perf_counter_ns
        self.on_step = on_step
        self.on_due = on_due
        self.on_fault = on_fault
        self.number = 0
        self.due = self.capture_due = self.report_due = self.ended = NEVER
        self.outside = Stage(self, "", STEP_COLUMN)
        self.open_stage: Stage | None = self.outside
        self.refused: list[int] = []
        self.nested_ns = self.held_ns = self.moved_ns = self.unused_batches = self.foreign_stages = 0
        self.has_refused = False
        self.thread = get_ident()
        self.held_column: int | None = None
        self.syncs: list[bool] = []
        self.side: dict[str, float] = {}
        self.strict = strict
        self.stages: list[dict[str, Stage]] = []
        self._made: list[dict[str, Stage]] = []
        self.record_cpu(None)
        self.cpu_ns = self.cpu_ended = self.held_cpu = self.moved_cpu = 0
        self.cpu_slack = CPU_SLACK_NS
        self.cpu_read = self.evidence_read = -NEVER // 2  # Differences from it fit an int64.
        self.reads_host = self.reads_usage = False
        self.evidence_ns, self.evidence_steps, self.steps_since = EVIDENCE_NS, EVIDENCE_STEPS, 0
        self.gc_ns = self.schedstat = NOT_READ
        self.host_due = NEVER
        self.on_host: Callable[[int], None] | None = None
        self.use([{}], 0)

    def record_cpu(self, clock: Clock | None) -> None:
        """Record the CPU time within stages by this clock from the next page on; None to not record it."""
        self.cpu_clock: Clock = thread_time_ns if clock is None else clock
        self.reads_cpu = self.times_cpu = clock is not None
        self.reads_thread_time = clock is thread_time_ns

    def use(self, column_of: Sequence[Mapping[str, int]], columns: int, between: int | None = None) -> None:
        """Time these stages from the next step on.

        Args:
            column_of: per micro-step, the column of each stage by name.
            columns: number of stage columns.
            between: stage column of the time between steps, None to not record it.
        """
        # A timer of the earlier stages that the training loop has kept must not write into another stage's
        # cell: it adds to the step number's cell, which is overwritten when the row is complete.
        for stage in (timer for timers in (*self._made, *self.stages) for timer in timers.values()):
            stage.index = STEP_COLUMN
        self.width = FIRST_STAGE_COLUMN + columns
        self.between = STEP_COLUMN if between is None else FIRST_STAGE_COLUMN + between
        self.next_page(1)
        self._made = [
            {name: Stage(self, name, FIRST_STAGE_COLUMN + column) for name, column in names.items()}
            for names in (*column_of, {})
        ]
        self.use_timers(self._made)

    def find_stage(self, name: Any) -> Stage | UncountedStage:
        """Return the context of a stage of the current micro-step; an unknown one is a fault and not timed.

        This is ``Recorder.stage``. Compiled, it has no Python frame: between a model's kernels one costs a
        microsecond or two.

        Raises:
            RecorderError: the stage is unknown and the recorder is strict.
        """
        try:
            stage = self._current.get(name)
        except TypeError:  # It cannot be looked up, as a list cannot: no stage has such a name.
            stage = None
        return unknown_stage(name, self._current, self.strict, self.on_fault) if stage is None else stage

    @property
    def in_step(self) -> bool:
        """Whether there is a current step."""
        return self.open_stage is not self.outside

    def next_page(self, rows: int) -> array[int]:
        """Start an empty page for so many steps, and return it; between steps."""
        self.base = 0
        cells = (rows + 1) * self.width  # The last row stays empty.
        self.page = array("q", bytes(8 * cells))
        self.cells = self.page
        self.cpu_page = array("q", bytes(8 * cells if self.reads_cpu else 8))
        self.cpu_cells = self.cpu_page
        self.host_page = array("q", [NOT_READ]) * (HOST_CELLS * (rows + 1) if self.reads_host else 1)
        self.host_cells = self.host_page
        return self.page

    def new_step(self) -> Step:
        """Return the context of this state's steps."""
        return Step(self)

    def spent(self) -> list[int]:
        """Return the ns of each explicit stage of the current step so far."""
        return list(self.page[self.base + FIRST_STAGE_COLUMN : self.base + self.width])

    def set_spent(self, spent: Sequence[int]) -> None:
        """Set the ns of each explicit stage of the current step; ignored where it has no row.

        Raises:
            TypeError, OverflowError: a value is no 64-bit integer.
        """
        begin = self.base + FIRST_STAGE_COLUMN
        if begin + len(spent) <= len(self.page):
            for offset, ns in enumerate(spent):
                self.page[begin + offset] = ns

    def clear_row(self) -> None:
        """Clear the current step's row: the step is not recorded."""
        self.set_spent([0] * (self.width - FIRST_STAGE_COLUMN))
        set_host_row(self, [0] * self.width, [NOT_READ] * HOST_CELLS)

    def cpu_now(self) -> int:
        """Return the CPU time of this thread in ns; 0 if this step's, or the next one's, is not recorded."""
        return self.cpu_clock() if self.times_cpu else 0

    def add_row(self, wall_ns: int) -> None:
        """Complete the row of the current step, which has ended.

        Raises:
            IndexError: it has none.
        """
        if self.base + WALL_COLUMN >= len(self.page):
            raise IndexError("a step has no row: do several threads step this recorder?")
        self.page[self.base + STEP_COLUMN] = self.number
        self.page[self.base + WALL_COLUMN] = wall_ns
        self.base += self.width  # Last, so that another thread finds complete rows before it.

    def use_timers(self, stages: list[dict[str, Stage]]) -> None:
        """Use these timers of the stages from now on, per micro-step."""
        self.stages = stages
        self.use_micro_step(0)

    def use_micro_step(self, micro: int) -> None:
        """Let names mean the stages of this micro-step from now on."""
        self._current = self.stages[micro]  # At once: another thread may look a stage up at any moment.

    def reset(self) -> None:
        """Clear what only some steps have, before the next one."""
        self.refused.clear()
        self.foreign_stages = 0
        self.has_refused = False
        self.side.clear()
        self.syncs.clear()


def cpu_at(state: StepState, now: int) -> int:
    """Return the CPU time of this thread at a time (clock), which has just been read."""
    if now - state.cpu_read >= state.cpu_slack:
        state.cpu_ns = state.cpu_clock()
        state.cpu_read = now
    return state.cpu_ns


class Step:
    """The context of one optimizer step."""

    __slots__ = ("_begin", "_cpu", "_state")

    def __init__(self, state: StepState) -> None:
        self._state = state
        self._begin = self._cpu = 0

    def __enter__(self) -> None:
        state = self._state
        if state.open_stage is not state.outside:  # A step inside a step, or one that was never left.
            state.on_fault("nested_steps", "")
            state.clear_row()
            state.ended = NEVER
        state.open_stage = None
        if state.has_refused or state.side or state.syncs:
            state.reset()
        state.thread = get_ident()
        if state._current is not state.stages[0]:
            state.use_micro_step(0)
        now = state.clock()
        self._begin = now
        if state.times_cpu:
            self._begin_cpu(now)
        if state.held_ns or state.moved_ns:
            now -= state.held_ns - state.moved_ns  # The wait for a batch is no time between steps.
            self._begin -= take_held(state)
        if state.between and state.ended < now:
            now -= state.ended
            self._begin -= now
            try:
                state.cells[state.base + state.between] = now
            except IndexError:  # The step has no row.
                return

    def _begin_cpu(self, now: int) -> None:
        """Note the CPU time at which the step begins, and record that of the time between steps."""
        state = self._state
        cpu = cpu_at(state, now)
        self._cpu = cpu - state.held_cpu
        if state.between and state.ended < now:
            spent = max(0, self._cpu + state.moved_cpu - state.cpu_ended)  # 0 on another thread.
            self._cpu -= spent
            try:
                state.cpu_cells[state.base + state.between] = spent
            except IndexError:  # The step has no row.
                return

    def _end_host(self, end: int) -> None:
        """Record the step's CPU time, and counters if they are due; then the next step's CPU time, too."""
        state = self._state
        state.steps_since += 1
        is_due = state.steps_since >= state.evidence_steps or end - state.evidence_read >= state.evidence_ns
        if is_due:
            state.steps_since, state.evidence_read = 0, end
        try:
            if state.times_cpu or (is_due and state.reads_cpu):
                state.cpu_ended = cpu_at(state, end)
            if state.times_cpu:
                state.cpu_cells[state.base + 1] = state.cpu_ended - self._cpu - state.moved_cpu
            elif state.reads_cpu:
                state.cpu_cells[state.base + 1] = NOT_READ
            state.times_cpu = is_due and state.reads_cpu
            if state.reads_host:
                read_host(state, is_due)
        except (IndexError, OSError, ValueError):  # The step has no row, or the system refuses.
            return
        if end >= state.host_due and state.on_host is not None:
            state.on_host(end)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        state = self._state
        end = state.clock()
        if state.open_stage is state.outside:
            return
        state.open_stage = state.outside
        state.ended = end
        if state.reads_cpu or state.reads_host or state.on_host is not None:
            self._end_host(end)
        if state.unused_batches:
            state.unused_batches = max(0, state.unused_batches - len(state.stages) + 1)
        begin = self._begin + state.moved_ns
        wall = end - begin
        has_more = state.side or state.syncs or state.number >= state.report_due
        if kind is not None or wall < 0 or has_more:
            state.on_step(begin, end, kind is None)
        else:  # The same as ``add_row``, without a call.
            base = state.base
            try:
                state.cells[base] = state.number
                state.cells[base + 1] = wall
            except IndexError:
                state.on_step(begin, end, True)
            else:
                state.base = base + state.width
                state.number += 1
        if state.number >= state.due or state.number >= state.capture_due:
            state.on_due()


class Stage:
    """The context of one stage. Inside another stage, or outside a step, it records a fault and no time.

    Attributes:
        index: cell of a row that its time is added to.
        begin, cpu_begin: when it was entered (clock), and the CPU time then.
    """

    __slots__ = ("_state", "begin", "cpu_begin", "index", "name")

    def __init__(self, state: StepState, name: str, index: int) -> None:
        self._state, self.name, self.index = state, name, index
        self.begin = self.cpu_begin = 0

    def __enter__(self) -> None:
        state = self._state
        if state.open_stage is None and get_ident() == state.thread:
            state.open_stage = self
            self.begin = state.clock()
            if state.times_cpu:
                self.cpu_begin = cpu_at(state, self.begin)
        else:
            refuse_stage(state, self.name)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        state = self._state
        end = state.clock()
        if state.has_refused and leave_refused(state, end):
            return
        if state.open_stage is self:
            state.open_stage = None
            if end < self.begin:
                state.on_fault("nonmonotonic_clock", self.name)
                return
            try:
                state.cells[state.base + self.index] += end - self.begin
                if state.times_cpu:
                    state.cpu_cells[state.base + self.index] += cpu_at(state, end) - self.cpu_begin
            except IndexError:  # The step has no row.
                return
