"""Say where the main thread of an unmodified script is, from the hooks' reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfapp.model.stages import BACKWARD, DATA, FORWARD, OPTIMIZER
from sfapp.model.standstill import TrainingPlace
from sfapp.recorder.auto.steps import Kind, TrainingEvent
from sfapp.recorder.training_place import with_call

_STAGE: Mapping[Kind, str] = {
    "data": DATA,
    "forward": FORWARD,
    "backward": BACKWARD,
    "optimizer": OPTIMIZER,
}


def script_place(
    step: int, inside: Kind | None, begin: int, events: Sequence[TrainingEvent], thread: int
) -> TrainingPlace:
    """Return where the thread is; it may move while this is read.

    Args:
        step: number of the step whose events are given.
        inside: the open section, if any. begin: when the newest section began, ns.
        events: sections that have ended since the last recorded step.
        thread: ``threading.get_ident`` of the thread.
    """
    last = events[-1] if events else None
    has_ended = last is not None and last.kind == "optimizer"
    number = step + has_ended
    if inside is not None:
        return with_call(number, _STAGE[inside], None, (number, inside, begin, len(events)), thread)
    between = "" if last is not None and not has_ended else None
    return with_call(
        number, between, None if last is None else last.end, (number, begin, len(events)), thread
    )
