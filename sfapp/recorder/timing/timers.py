"""The hot path: the reusable timers behind ``step()``, ``stage()`` and ``micro_step()``.

Steps and stages are here in Python and in ``_timers.pyx`` once more, in C, for where the package was built
with a compiler (``sfapp.recorder.timing.timer_backend`` chooses); a test holds them to the same. What is rare
is here alone.

Two clock reads and an addition a stage; a step that ends leaves its row where it is. Whatever more is to be
done with rows is done for many at once, when one is ``due``. Contexts are made once per schema and entered
again and again; nothing is allocated, locked or logged here, and nothing a trainer does with them raises,
unless the recorder is strict. Shared by one training thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from contextlib import suppress
from threading import get_ident
from types import TracebackType

from sfapp.errors import RecorderError
from sfapp.model.stages import RESIDUAL

Clock = Callable[[], int]
"""Monotonic time in ns."""

Cells = MutableSequence[int]
"""ns, and step numbers."""

_Kind = type[BaseException] | None

VERSION = 1
"""Raise it when the fields of a state or of a row change, so that ``_timers.pyx`` is compiled again."""

STEP_COLUMN, WALL_COLUMN, FIRST_STAGE_COLUMN = 0, 1, 2
"""Columns of a row: step number, wall ns, then the stages in order."""

NEVER = 2**63 - 1
"""A step that does not come."""


_NO_ROW = suppress(IndexError)


class StepState:
    """The step under way on this rank, and the rows of those before it: what is done with them, wherever they
    are kept.

    Where several threads step one recorder at once, none of them may have turned the page yet: a step that
    finds no row leaves nothing.

    Attributes:
        cells: a page of rows, one after the other, without the residual: zeros where no step has been.
        base: where the row of the step under way begins; complete rows lie before it.
        width: cells of a row.
        number: of the step under way, or of the next one.
        due: the step before which ``on_due`` must be called.
        capture_due: the same for captures, written by another thread.
        tells_all: whether ``on_step`` is called for every step, not only where one has more than its row.
        open_stage: the stage being timed: one at a time; ``outside`` where there is no step.
        outside: stands for no step in ``open_stage``.
        refused: when each context was entered that was refused (nested, outside a step) and not yet left.
        odd: whether any context was refused and not yet left.
        nested_ns: time in nested stages: theirs was dropped, the outer one's holds it.
        held_ns: waited for the next step's batch so far; it is put before that step.
        moved_ns: the part of ``held_ns`` that was waited inside the step under way: not its own time.
        held_column: where the held time goes.
        stock: batches fetched and not yet consumed.
        syncs: per micro-step of the step whether gradients were exchanged, where the trainer says so.
        side: side-channel values of the step.
        strangers: stages entered on other threads than the step's and not yet left: refused.
        strict: raise where a stage is nested.
        thread: the one that entered the step.
        stages: per gradient-accumulation micro-step, the timers of its stages by name; a last, empty one
            for a micro-step that the accumulation does not have.
        by_name: those of the micro-step under way, by whatever name is asked for.
        on_step: called with the step's begin and end (clock) and whether its body ended without an error, in
            place of putting the step into its row, where that is not all, or there is none.
        on_due: called between steps.
        on_fault: called with a fault's code and what was seen.
    """

    __slots__ = ()

    def __init__(
        self,
        clock: Clock,
        on_step: Callable[[int, int, bool], None],
        on_due: Callable[[], None],
        on_fault: Callable[[str, str], None],
        strict: bool = False,
    ) -> None:
        self.by_name = StagesByName(on_fault, strict)
        self.clock = clock
        self.on_step = on_step
        self.on_due = on_due
        self.on_fault = on_fault
        self.number = 0
        self.due = self.capture_due = NEVER
        self.tells_all = False
        self.outside = self.new_stage("", STEP_COLUMN)
        self.open_stage: Stage | None = self.outside
        self.refused: list[int] = []
        self.nested_ns = 0
        self.held_ns = self.moved_ns = self.stock = 0
        self.strangers = 0
        self.odd = False
        self.thread = get_ident()
        self.held_column: int | None = None
        self.syncs: list[bool] = []
        self.side: dict[str, float] = {}
        self.strict = strict
        self.stages: list[dict[str, Stage]] = []
        self._made: list[dict[str, Stage]] = []
        self.use([{}], 0)

    def use(self, column_of: Sequence[Mapping[str, int]], columns: int) -> None:
        """From the next step on, time these stages: per micro-step, the column of each by name."""
        # Who has kept one of these times nothing: the step's number goes there.
        for gone in (*self._made, *self.stages):
            for stage in gone.values():
                stage.index = STEP_COLUMN
        self.width = FIRST_STAGE_COLUMN + columns
        self.next_page(1)
        self._made = [
            {name: self.new_stage(name, FIRST_STAGE_COLUMN + column) for name, column in names.items()}
            for names in (*column_of, {})
        ]
        self.choose(self._made)

    @property
    def in_step(self) -> bool:
        """Whether a step is under way."""
        return self.open_stage is not self.outside

    def next_page(self, rows: int) -> Cells:
        """Begin a page for so many steps, and one row that stays empty; between steps."""
        self.base = 0
        self.cells = self.new_cells((rows + 1) * self.width)
        return self.cells

    def new_cells(self, count: int) -> Cells:
        """So many zeros."""
        raise NotImplementedError

    def new_step(self) -> Step:
        """The context of its steps."""
        raise NotImplementedError

    def new_stage(self, name: str, index: int) -> Stage:
        """The context of a stage with this column."""
        raise NotImplementedError

    def spent(self) -> list[int]:
        """ns per explicit stage of the step under way so far."""
        return list(self.cells[self.base + FIRST_STAGE_COLUMN : self.base + self.width])

    def put(self, spent: Sequence[int]) -> None:
        """The step under way has spent this so far: zeros for one that is left out.

        Raises:
            TypeError, OverflowError: cells that hold nothing else were given no whole numbers of 64 bits.
        """
        with _NO_ROW:
            for place, ns in enumerate(spent, self.base + FIRST_STAGE_COLUMN):
                self.cells[place] = ns

    def leave_out(self) -> None:
        """The step under way gets no row."""
        self.put([0] * (self.width - FIRST_STAGE_COLUMN))

    def add_row(self, wall_ns: int) -> None:
        """The step under way has ended: its row is complete.

        Raises:
            IndexError: it has none.
        """
        try:
            self.cells[self.base + STEP_COLUMN] = self.number
            self.cells[self.base + WALL_COLUMN] = wall_ns
        except IndexError as error:
            raise IndexError("a step has no row: do several threads step this recorder?") from error
        self.base += self.width  # last: whoever reads on another thread finds complete rows before it

    def choose(self, stages: list[dict[str, Stage]]) -> None:
        """From now on, these are the stages' timers."""
        self.stages = stages
        self.turn_to(0)

    def turn_to(self, micro: int) -> None:
        """From now on, names mean the stages of this micro-step."""
        self._chosen = self.stages[micro]
        self.by_name.update(self._chosen)  # not emptied before: another thread may ask for a stage just now
        if len(self.by_name) > len(self._chosen):
            for gone in self.by_name.keys() - self._chosen.keys():
                del self.by_name[gone]

    def forget(self) -> None:
        """What only some steps have, before the next one."""
        self.refused.clear()
        self.strangers = 0
        self.odd = False
        self.side.clear()
        self.syncs.clear()

    def leave_refused(self, end: int) -> bool:
        """Whether what is left now is a context that was refused; timers are left in reverse order."""
        if self.strangers and get_ident() != self.thread:
            self.strangers -= 1
        elif self.refused:
            self.nested_ns += max(0, end - self.refused.pop()) if self.in_step else 0
        else:
            return False
        self.odd = bool(self.refused or self.strangers)
        return True

    def take_held(self) -> int:
        """What was waited for the batch of the step that begins, put into its data stage; where there is none
        it stays in the residual."""
        held, self.held_ns, self.moved_ns = self.held_ns, 0, 0
        if held and self.held_column is not None:
            with _NO_ROW:
                self.cells[self.base + FIRST_STAGE_COLUMN + self.held_column] = held
        return held

    def charge(self, name: str, micro: int, waited: int) -> None:
        """Time waited inside the step for its own batch; a stage that is open holds it already."""
        if self.open_stage is None:
            stage = self.stages[min(micro, len(self.stages) - 2)].get(name)
            if stage is not None:
                with _NO_ROW:
                    self.cells[self.base + stage.index] += waited

    def move_to_next_step(self, waited: int) -> None:
        """Time waited inside the step for the next one's batch: that one's, not this one's."""
        self.held_ns += waited
        self.moved_ns += waited
        if self.open_stage is not None:
            self.open_stage.begin += waited

    def refuse(self, name: str) -> None:
        """A stage inside another or outside a step: noted, not timed.

        Raises:
            RecorderError: the recorder is strict.
        """
        if self.in_step and get_ident() != self.thread:
            self.strangers += 1
            self.odd = True
            self.on_fault("stage_on_another_thread", name)
            return
        inside = self.open_stage if self.in_step else None
        if self.strict and inside is not None:
            raise RecorderError(
                f"stage {name!r} was entered inside stage {inside.name!r}: ordered stages do not nest; "
                "measure what lies within one with side_channel()"
            )
        if self.strict:
            raise RecorderError(f"stage {name!r} was entered outside a step")
        self.refused.append(self.clock())
        self.odd = True
        self.on_fault("nested_stages" if self.in_step else "stage_outside_step", name)


class InPython(StepState):
    """The same, kept in Python. Its cells are one list of Python's own integers: nothing that holds them
    otherwise is written to from Python as fast."""

    __slots__ = (
        "_chosen",
        "_made",
        "base",
        "by_name",
        "capture_due",
        "cells",
        "clock",
        "due",
        "held_column",
        "held_ns",
        "moved_ns",
        "nested_ns",
        "number",
        "odd",
        "on_due",
        "on_fault",
        "on_step",
        "open_stage",
        "outside",
        "refused",
        "side",
        "stages",
        "stock",
        "strangers",
        "strict",
        "syncs",
        "tells_all",
        "thread",
        "width",
    )

    def new_cells(self, count: int) -> Cells:
        return [0] * count

    def new_step(self) -> Step:
        return Step(self)

    def new_stage(self, name: str, index: int) -> Stage:
        return Stage(self, name, index)


class Step:
    """The context of one optimizer step."""

    __slots__ = ("_begin", "_state")

    def __init__(self, state: StepState) -> None:
        self._state = state
        self._begin = 0

    def __enter__(self) -> None:
        state = self._state
        if state.open_stage is not state.outside:  # in a step, or one was never left: the newest counts
            state.on_fault("nested_steps", "")
            state.leave_out()
        state.open_stage = None
        if state.odd or state.side or state.syncs:
            state.forget()
        state.thread = get_ident()
        if state._chosen is not state.stages[0]:
            state.turn_to(0)
        if state.held_ns or state.moved_ns:
            self._begin = state.clock() - state.take_held()
        else:
            self._begin = state.clock()

    def __exit__(self, kind: _Kind, value: BaseException | None, trace: TracebackType | None) -> None:
        state = self._state
        end = state.clock()
        if state.open_stage is state.outside:
            return
        state.open_stage = state.outside
        if state.stock:
            state.stock = max(0, state.stock - len(state.stages) + 1)
        wall = end - self._begin - state.moved_ns
        if kind is not None or wall < 0 or state.side or state.syncs or state.tells_all:
            state.on_step(self._begin + state.moved_ns, end, kind is None)
        else:  # as add_row: a call less
            cells, base = state.cells, state.base
            try:
                cells[base] = state.number
                cells[base + 1] = wall
            except IndexError:
                state.on_step(self._begin + state.moved_ns, end, True)
            else:
                state.base = base + state.width
                state.number += 1
        if state.number >= state.due or state.number >= state.capture_due:
            state.on_due()


class Stage:
    """The context of one stage. Inside another stage, or outside a step, it records a fault and no time."""

    __slots__ = ("_state", "begin", "index", "name")

    def __init__(self, state: StepState, name: str, index: int) -> None:
        self._state = state
        self.name = name
        self.index = index
        self.begin = 0

    def __enter__(self) -> None:
        state = self._state
        if state.open_stage is None and get_ident() == state.thread:
            state.open_stage = self
            self.begin = state.clock()
        else:
            state.refuse(self.name)

    def __exit__(self, kind: _Kind, value: BaseException | None, trace: TracebackType | None) -> None:
        state = self._state
        end = state.clock()
        if state.odd and state.leave_refused(end):
            return
        if state.open_stage is self:
            state.open_stage = None
            if end < self.begin:
                state.on_fault("nonmonotonic_clock", self.name)
                return
            try:
                state.cells[state.base + self.index] += end - self.begin
            except IndexError:  # no row
                return


class StagesByName(dict[str, Stage]):
    """What stages' names mean now. One object for the recorder's life, so that its own lookup can be
    ``Recorder.stage``: between a model's kernels every frame of Python's costs a microsecond or two."""

    __slots__ = ("_on_fault", "_strict")

    def __init__(self, on_fault: Callable[[str, str], None], strict: bool) -> None:
        super().__init__()
        self._on_fault = on_fault
        self._strict = strict

    def __missing__(self, name: str) -> Uncounted:
        if name == RESIDUAL:
            return UNCOUNTED
        if self._strict and self:
            raise RecorderError(f"no stage is called {name!r}: the recorder's are {', '.join(self)}")
        if self._strict:
            raise RecorderError(
                f"stage {name!r} was entered in a micro-step that the recorder does not expect: "
                "give it accumulation=Accumulation(factor=…)"
            )
        where = "" if self else ", in an undeclared micro-step"
        self._on_fault("unknown_stage", f"{name}{where}")
        return UNCOUNTED


class Uncounted:
    """The context of a stage that has no column: its time stays in the residual."""

    __slots__ = ()

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: _Kind, value: BaseException | None, trace: TracebackType | None) -> None:
        return


UNCOUNTED = Uncounted()


class MicroStep:
    """The context of one gradient-accumulation micro-step.

    Attributes:
        sync: whether its gradients are exchanged, None where the trainer does not say.
    """

    __slots__ = ("_index", "_state", "sync")

    def __init__(self, state: StepState, index: int) -> None:
        self._state = state
        self._index = index
        self.sync: bool | None = None

    def __enter__(self) -> None:
        state = self._state
        state.turn_to(self._index)
        if self.sync is not None:
            state.syncs.append(self.sync)

    def __exit__(self, kind: _Kind, value: BaseException | None, trace: TracebackType | None) -> None:
        self._state.turn_to(0)
