"""Contexts outside the hot path: stages without a column, and micro-steps; and the stages by name."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sfapp.errors import RecorderError
from sfapp.model.stages import BETWEEN, RESIDUAL

if TYPE_CHECKING:
    from sfapp.recorder.timing.timers import StepState


class UncountedStage:
    """The context of a stage that has no column: its time stays in the residual."""

    __slots__ = ()

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


UNCOUNTED = UncountedStage()


class StagesByName(dict[str, Any]):
    """The current timers of the stages by name.

    One object serves a recorder for its whole life, so that its C-level lookup can be ``Recorder.stage``:
    between a model's kernels every Python frame costs a microsecond or two.
    """

    __slots__ = ("_on_fault", "_strict")

    def __init__(self, on_fault: Callable[[str, str], None], strict: bool) -> None:
        super().__init__()
        self._on_fault = on_fault
        self._strict = strict

    def __missing__(self, name: str) -> UncountedStage:
        if name in (RESIDUAL, BETWEEN):  # Both are recorded without a context.
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


class MicroStep:
    """The context of one gradient-accumulation micro-step.

    Attributes:
        sync: whether its gradients are exchanged, None where the training loop does not state it.
    """

    __slots__ = ("_index", "_state", "sync")

    def __init__(self, state: StepState, index: int) -> None:
        self._state = state
        self._index = index
        self.sync: bool | None = None

    def __enter__(self) -> None:
        state = self._state
        state.use_micro_step(self._index)
        if self.sync is not None:
            state.syncs.append(self.sync)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state.use_micro_step(0)
