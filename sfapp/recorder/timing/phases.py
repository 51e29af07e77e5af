"""Steps and stages as calls, for loops that offer hooks instead of ``with`` blocks.

A hook marks the beginning of a stage and ends the open one. Time that no hook separates belongs to no stage
and stays in the residual.
"""

from __future__ import annotations

from collections.abc import Callable

from sfapp.recorder.timing.batch_waits import hold
from sfapp.recorder.timing.contexts import MicroStep, UncountedStage
from sfapp.recorder.timing.timers import Stage, Step, StepState


class Phases:
    """The current step and its stage, driven by calls; see ``Recorder.phases()``."""

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
        self._waiting_since: tuple[int, int] | None = None

    @property
    def in_step(self) -> bool:
        """Whether there is a current step."""
        return self._state.in_step

    def begin_step(self) -> None:
        """Begin a step; the time since ``wait`` counts as its data stage."""
        self.stop_waiting()
        self._step.__enter__()

    def micro_step(self, index: int) -> None:
        """Begin a gradient-accumulation micro-step, counted from 0."""
        self.leave()
        self._micro_step_of(index).__enter__()

    def set_sync(self, exchanged: bool) -> None:
        """Set whether the gradients of the current micro-step are exchanged."""
        self._state.syncs.append(exchanged)

    def enter(self, name: str) -> None:
        """Begin a stage of the step and end the one before it."""
        self.leave()
        if self._state.in_step:
            self._stage = self._stage_of(name)
            self._stage.__enter__()

    def leave(self) -> None:
        """End the open stage; the following time belongs to no stage."""
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.__exit__(None, None, None)

    def end_step(self, completed: bool = True) -> None:
        """End the step; an incomplete step keeps its number but is not recorded."""
        self.leave()
        if self._state.in_step:
            self._step.__exit__(None if completed else InterruptedError, None, None)

    def wait(self) -> None:
        """Between steps, start or restart measuring the wait for the next step's data."""
        if not self._state.in_step:
            self._waiting_since = self._state.clock(), self._state.cpu_now()

    def stop_waiting(self) -> None:
        """Between steps, stop measuring the wait; following work, such as validation, is time between
        steps."""
        since, self._waiting_since = self._waiting_since, None
        if since is not None:
            state = self._state
            hold(state, max(0, state.clock() - since[0]), max(0, state.cpu_now() - since[1]))

    def fault(self, code: str, detail: str) -> None:
        """Record a telemetry fault in the packet."""
        self._state.on_fault(code, detail)
