"""Contexts outside the hot path: stages without a column, and micro-steps."""

from __future__ import annotations

from collections.abc import Callable, Collection
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sfapp.errors import RecorderError
from sfapp.model.stages import BETWEEN, RESIDUAL

if TYPE_CHECKING:
    from sfapp.recorder.timing.timers import StepState


class UncountedStage:
    """The context of a stage without a column, whose time stays in the residual."""

    __slots__ = ()

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


UNCOUNTED = UncountedStage()


def unknown_stage(
    name: object, known: Collection[str], strict: bool, on_fault: Callable[[str, str], None]
) -> UncountedStage:
    """Record a fault for a stage that the current micro-step does not have; the name may be any value.

    Raises:
        RecorderError: the recorder is strict.
    """
    is_text = isinstance(name, str)
    if is_text and name in (RESIDUAL, BETWEEN):  # Both are recorded automatically.
        return UNCOUNTED
    if strict and known:
        raise RecorderError(f"no stage is called {name!r}: the recorder's are {', '.join(known)}")
    if strict:
        raise RecorderError(
            f"stage {name!r} was entered in a micro-step that the recorder does not expect: "
            "give it accumulation=Accumulation(factor=…)"
        )
    where = "" if known else ", in an undeclared micro-step"
    on_fault("unknown_stage", f"{name if is_text else type(name).__name__}{where}")
    return UNCOUNTED


def refuse_stage(state: StepState, name: str) -> None:
    """Record a fault for a stage that was entered inside another one or outside a step; it is not timed.

    Raises:
        RecorderError: the recorder is strict.
    """
    if state.in_step and get_ident() != state.thread:
        state.foreign_stages += 1
        state.has_refused = True
        state.on_fault("stage_on_another_thread", name)
        return
    outer = state.open_stage if state.in_step else None
    if state.strict and outer is not None:
        raise RecorderError(
            f"stage {name!r} was entered inside stage {outer.name!r}: ordered stages do not nest; "
            "measure what lies within one with side_channel()"
        )
    if state.strict:
        raise RecorderError(f"stage {name!r} was entered outside a step")
    state.refused.append(state.clock())
    state.has_refused = True
    state.on_fault("nested_stages" if state.in_step else "stage_outside_step", name)


def leave_refused(state: StepState, end: int) -> bool:
    """Return whether the context that is being left was refused; contexts are left in reverse order."""
    if state.foreign_stages and get_ident() != state.thread:
        state.foreign_stages -= 1
    elif state.refused:
        try:
            begin = state.refused.pop()
        except IndexError:  # Another thread that steps this recorder has left its context meanwhile.
            begin = end
        state.nested_ns += max(0, end - begin) if state.in_step else 0
    else:
        return False
    state.has_refused = bool(state.refused or state.foreign_stages)
    return True


class MicroStep:
    """The context of one gradient-accumulation micro-step.

    Attributes:
        sync: whether its gradients are exchanged, None if the training loop does not state it.
    """

    __slots__ = ("_index", "_state", "sync")

    def __init__(self, state: StepState, index: int) -> None:
        self._state = state
        self._index = index
        self.sync: bool | None = None

    def declare(self, sync: Any) -> None:
        """State whether gradients are exchanged; what is neither true nor false states nothing."""
        try:
            self.sync = None if sync is None else bool(sync)
        except Exception:  # fail-open: the value may be anything, such as a tensor of several values
            self.sync = None

    def __enter__(self) -> None:
        state = self._state
        state.use_micro_step(self._index)
        if self.sync is not None:
            state.syncs.append(self.sync)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state.use_micro_step(0)
