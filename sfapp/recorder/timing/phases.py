"""Steps and stages told by calls, one after the other, for loops that offer hooks and no ``with`` blocks.

A hook says that something begins; what was under way ends there. What no hook tells apart is in no stage: it
stays in the residual.
"""

from __future__ import annotations

from collections.abc import Callable

from sfapp.recorder.timing.contexts import MicroStep, UncountedStage
from sfapp.recorder.timing.timers import Stage, Step, StepState


class Phases:
    """The step under way and its stage, moved on by calls. Made by ``Recorder.phases()``."""

    def __init__(
        self,
        state: StepState,
        step: Step,
        stage_of: Callable[[str], Stage | UncountedStage],
        micro_step_of: Callable[[int], MicroStep],
    ) -> None:
        self._state = state
        self._step = step
        self._stage_of = stage_of
        self._micro_step_of = micro_step_of
        self._stage: Stage | UncountedStage | None = None
        self._waiting_since: int | None = None

    @property
    def in_step(self) -> bool:
        """Whether a step is under way."""
        return self._state.in_step

    def begin_step(self) -> None:
        """A step begins, with what was waited for its data since ``wait`` as its data stage."""
        self.stop_waiting()
        self._step.__enter__()

    def micro_step(self, index: int) -> None:
        """A gradient-accumulation micro-step begins, counted from 0."""
        self.leave()
        self._micro_step_of(index).__enter__()

    def tell_sync(self, exchanged: bool) -> None:
        """Whether the gradients of the micro-step under way are exchanged."""
        self._state.syncs.append(exchanged)

    def enter(self, name: str) -> None:
        """A stage of the step begins, and the one before it ends."""
        self.leave()
        if self._state.in_step:
            self._stage = self._stage_of(name)
            self._stage.__enter__()

    def leave(self) -> None:
        """The stage under way ends; what follows is in none."""
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.__exit__(None, None, None)

    def end_step(self, completed: bool = True) -> None:
        """The step ends; one that was not completed keeps its number but is not recorded."""
        self.leave()
        if self._state.in_step:
            self._step.__exit__(None if completed else InterruptedError, None, None)

    def wait(self) -> None:
        """Between steps: from here on the next step's data is waited for. Again, to start over."""
        if not self._state.in_step:
            self._waiting_since = self._state.clock()

    def stop_waiting(self) -> None:
        """Between steps: what follows belongs to no step, such as validation. ``wait`` takes it up again."""
        since, self._waiting_since = self._waiting_since, None
        if since is not None:
            self._state.held_ns += max(0, self._state.clock() - since)

    def fault(self, code: str, detail: str) -> None:
        """Note a telemetry fault in the packet."""
        self._state.on_fault(code, detail)
