"""Find when a thread waits for group communication on the device: only where a trace leaves no doubt."""

from __future__ import annotations

import re

from sfapp.importers.spans import IntervalUnion

_DEVICE_WAIT = re.compile(
    r"(?:cuda|hip)(?:Stream|Device|Event)Synchronize(?:_\w+)?\Z|cu(?:Stream|Ctx|Event)Synchronize(?:_\w+)?\Z"
)


def is_device_wait(name: str) -> bool:
    """Return whether a runtime or driver call of this name returns when the device has finished something."""
    return _DEVICE_WAIT.match(name) is not None


def waits_for_collectives(
    calls: IntervalUnion, collectives: IntervalUnion, other_work: IntervalUnion
) -> IntervalUnion:
    """Return when a thread is blocked in a call that waits for the device while the device runs collectives
    and nothing else: the call can wait for nothing but them.

    Args:
        calls: when the thread is in such calls.
        collectives, other_work: when the device runs collectives, and kernels or copies of any other kind.
    """
    waiting = IntervalUnion.common((calls, collectives))
    # Of the other work, which may be millions of kernels, only what lies in there matters.
    near = waiting.within(other_work.start_M, other_work.end_M) > 0
    beside = IntervalUnion.of(other_work.start_M[near], other_work.end_M[near])
    return IntervalUnion.common((waiting,), (beside,))
