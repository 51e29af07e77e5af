"""The hot path: the reusable contexts behind ``step()``, ``stage()`` and ``micro_step()``.

Two clock reads and an addition a stage. Contexts are made once per schema and entered again and again;
nothing is allocated, locked or logged here, and nothing a trainer does with them raises, unless the
recorder is strict. Shared by one training thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from types import TracebackType

from sfapp.errors import RecorderError
from sfapp.model.stages import RESIDUAL

Clock = Callable[[], int]
"""Monotonic time in ns."""

_Kind = type[BaseException] | None


class StepState:
    """The step under way on this rank.

    Attributes:
        spent: ns per explicit stage so far.
        zeros: what ``spent`` starts each step with.
        open_stage: the stage being timed: one at a time.
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
        stages: per gradient-accumulation micro-step, the contexts of its stages by name; a last, empty one
            for a micro-step that the accumulation does not have.
        by_name: those of the micro-step under way, by whatever name is asked for.
        on_step: called with the step's begin and end (clock) and whether its body ended without an error.
        on_fault: called with a fault's code and what was seen.
    """

    __slots__ = (
        "_chosen",
        "by_name",
        "clock",
        "held_column",
        "held_ns",
        "in_step",
        "moved_ns",
        "nested_ns",
        "odd",
        "on_fault",
        "on_step",
        "open_stage",
        "refused",
        "side",
        "spent",
        "stages",
        "stock",
        "strangers",
        "strict",
        "syncs",
        "thread",
        "zeros",
    )

    def __init__(
        self,
        clock: Clock,
        on_step: Callable[[int, int, bool], None],
        on_fault: Callable[[str, str], None],
        strict: bool = False,
    ) -> None:
        self.by_name = StagesByName(on_fault)
        self.clock = clock
        self.on_step = on_step
        self.on_fault = on_fault
        self.in_step = False
        self.open_stage: Stage | None = None
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
        self.use([{}], 0)

    def use(self, column_of: Sequence[Mapping[str, int]], columns: int) -> None:
        """From the next step on, time these stages: per micro-step, the column of each by name."""
        self.zeros = [0] * columns
        self.spent = [0] * columns
        self.choose(
            [
                {name: Stage(self, name, column) for name, column in names.items()}
                for names in (*column_of, {})
            ]
        )

    def choose(self, stages: list[dict[str, Stage]]) -> None:
        """From now on, these are the stages' contexts."""
        self.stages = stages
        self.turn_to(0)

    def turn_to(self, micro: int) -> None:
        """From now on, names mean the stages of this micro-step."""
        self._chosen = self.stages[micro]
        self.by_name.clear()
        self.by_name.update(self._chosen)

    def forget(self) -> None:
        """What only some steps have, before the next one."""
        self.refused.clear()
        self.strangers = 0
        self.odd = False
        self.side.clear()
        self.syncs.clear()

    def leave_refused(self, end: int) -> bool:
        """Whether what is left now is a context that was refused; contexts are left in reverse order."""
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
            self.spent[self.held_column] = held
        return held

    def charge(self, name: str, micro: int, waited: int) -> None:
        """Time waited inside the step for its own batch; a stage that is open holds it already."""
        if self.open_stage is None:
            stage = self.stages[min(micro, len(self.stages) - 2)].get(name)
            if stage is not None:
                self.spent[stage.index] += waited

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
        inside = self.open_stage
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


class Step:
    """The context of one optimizer step."""

    __slots__ = ("_begin", "_state")

    def __init__(self, state: StepState) -> None:
        self._state = state
        self._begin = 0

    def __enter__(self) -> None:
        state = self._state
        if state.in_step:  # a step inside a step, or one that was never left: the newest counts
            state.on_fault("nested_steps", "")
        state.in_step = True
        state.open_stage = None
        if state.odd or state.side or state.syncs:
            state.forget()
        state.thread = get_ident()
        if state._chosen is not state.stages[0]:
            state.turn_to(0)
        state.spent[:] = state.zeros
        if state.held_ns or state.moved_ns:
            self._begin = state.clock() - state.take_held()
        else:
            self._begin = state.clock()

    def __exit__(self, kind: _Kind, value: BaseException | None, trace: TracebackType | None) -> None:
        state = self._state
        end = state.clock()
        if state.in_step:
            state.in_step = False
            if state.stock:
                state.stock = max(0, state.stock - len(state.stages) + 1)
            state.on_step(self._begin + state.moved_ns, end, kind is None)


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
        if state.open_stage is None and state.in_step and get_ident() == state.thread:
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
            if end >= self.begin:
                state.spent[self.index] += end - self.begin
            else:
                state.on_fault("nonmonotonic_clock", self.name)


class StagesByName(dict[str, Stage]):
    """What stages' names mean now. One object for the recorder's life, so that its own lookup can be
    ``Recorder.stage``: between a model's kernels every frame of Python's costs a microsecond or two."""

    __slots__ = ("_on_fault",)

    def __init__(self, on_fault: Callable[[str, str], None]) -> None:
        super().__init__()
        self._on_fault = on_fault

    def __missing__(self, name: str) -> Uncounted:
        if name != RESIDUAL:
            self._on_fault("unknown_stage", name)
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


def measure_stage_cost(rounds: int = 200) -> int:
    """What entering and leaving one stage costs on this machine now, in ns: the overhead no clock sees."""
    state = StepState(time.perf_counter_ns, lambda begin, end, completed: None, lambda code, detail: None)
    state.use([{"stage": 0}], 1)
    state.in_step = True
    begin = time.perf_counter_ns()
    for _ in range(rounds):
        with state.by_name["stage"]:
            pass
    return (time.perf_counter_ns() - begin) // rounds
