"""Read where the training thread is, on another thread: no lock, and nothing is stored for it in a step."""

from __future__ import annotations

from time import perf_counter_ns

from sfapp.model.standstill import TrainingPlace
from sfapp.recorder.side_channels.communication import COMMUNICATION
from sfapp.recorder.timing.timers import NEVER, StepState


def place_of(state: StepState) -> TrainingPlace:
    """Return where the thread is that steps this state. It may have moved while this is read."""
    stage, step = state.open_stage, state.number
    since_ns: int | None = None
    name: str | None = ""
    if stage is state.outside:
        name, since_ns = None, None if state.ended == NEVER else state.ended
    elif stage is not None:
        name, since_ns = stage.name, stage.begin
    mark = step, name, since_ns, tuple(state.spent())
    is_comparable = state.clock is perf_counter_ns
    return with_call(step, name, since_ns if is_comparable else None, mark, state.thread)


def with_call(step: int, stage: str | None, since_ns: int | None, mark: object, thread: int) -> TrainingPlace:
    """Return a place with the call of torch.distributed that the thread is in, if calls are followed."""
    call = COMMUNICATION.current_call(thread)
    if call is None:
        return TrainingPlace(step, stage, since_ns, mark, thread)
    name, group, ranks, begin_ns = call
    return TrainingPlace(step, stage, begin_ns, (mark, begin_ns), thread, name, group, ranks)
