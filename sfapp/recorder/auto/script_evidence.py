"""Record host evidence of the main thread of an unmodified script, before a recorder may exist."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from sfapp.recorder.auto.script_waits import ScriptWaits
from sfapp.recorder.auto.steps import PreviousStep, TimedStep, TrainingEvent, read_step
from sfapp.recorder.side_channels.host_evidence import VARIABLE, HostEvidence, chosen_kinds
from sfapp.recorder.timing.host_counters import StepEvidence, counters
from sfapp.recorder.timing.timer_backend import new_state


class ScriptEvidence:
    """CPU times and counters of the steps of this thread. Its methods raise nothing."""

    def __init__(self) -> None:
        self._state = new_state(lambda: 0, lambda *step: None, lambda: None, lambda *fault: None)
        kinds = chosen_kinds(True, os.environ.get(VARIABLE, ""))
        self._evidence = HostEvidence(self._state, kinds, lambda name, value: None)
        self._previous = PreviousStep()
        self._counted: tuple[int, ...] = ()

    def cpu(self) -> int:
        """Return the CPU time of this thread in ns; 0 if it is not recorded."""
        return self._state.cpu_now()

    def take(self, events: Sequence[TrainingEvent], step: TimedStep | None) -> StepEvidence | None:
        """Return the evidence of the step that these events form; None if it is not known.

        The stages' CPU times follow from the events as their durations do.
        """
        if not self._state.reads_cpu:
            return None if step is None else StepEvidence(0, (), self._counted)
        before, end = self._previous, events[-1].cpu_end
        cpu_events = [TrainingEvent(e.kind, e.cpu_begin, e.cpu_end, e.key, e.mark) for e in events]
        spent = None if step is None else read_step(cpu_events, before)
        if step is None or spent is None:
            lost = 0 if before.end is None else end - before.end + before.held_ns
            self._previous = PreviousStep(end, between_ns=before.between_ns + lost)
            return None
        self._previous = spent.after
        if len(spent.micro_steps) != len(step.micro_steps):  # Events at the same CPU time.
            return None
        return StepEvidence(spent.wall_ns, spent.micro_steps, self._counted)

    def read_counters(self) -> None:
        """Read the thread's counters at the end of what may be a step; the last reading before ``take``
        counts."""
        state = self._state
        if state.reads_host:
            with suppress(OSError, ValueError):
                self._counted = counters(state.gc_ns, state.schedstat, state.reads_usage)

    def end_own(self, begin: int, between: bool) -> None:
        """Leave out the recorder's own CPU time since ``begin``, as a part of the time between steps if that
        is recorded."""
        own, previous = self.cpu() - begin, self._previous
        if previous.end is not None:
            previous.end += own
        previous.between_ns = previous.between_ns + own if between else 0

    def reset(self) -> PreviousStep:
        """Begin anew, and return the state before a first step."""
        self._previous = PreviousStep()
        return PreviousStep()

    def close(self) -> None:
        """Stop recording."""
        self._evidence.close()


def stop_all(waits: ScriptWaits, evidence: ScriptEvidence) -> None:
    """Stop measuring beside the stages."""
    waits.stop()
    evidence.close()
