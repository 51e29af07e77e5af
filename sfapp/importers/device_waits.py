"""Find when a thread certainly waits for group communication on the device."""

from __future__ import annotations

import re

from sfapp.importers.spans import IntervalUnion

_DEVICE_WAIT = re.compile(
    r"(?:cuda|hip)(?:Stream|Device|Event)Synchronize(?:_\w+)?\Z|cu(?:Stream|Ctx|Event)Synchronize(?:_\w+)?\Z"
)


def is_device_wait(name: str) -> bool:
    """Return whether a runtime or driver call of this name returns only when the device has finished work."""
    return _DEVICE_WAIT.match(name) is not None


def waits_for_collectives(
    calls: IntervalUnion, collectives: IntervalUnion, other_work: IntervalUnion
) -> IntervalUnion:
    """Return when a thread is blocked in a call that waits for the device while the device runs only
    collectives, so that the call waits for them.

    Args:
        calls: when the thread is in such calls.
        collectives, other_work: when the device runs collectives, and kernels or copies of any other kind.
    """
    waiting = IntervalUnion.common((calls, collectives))
    # Only other work within these times matters; there may be millions of kernels.
    near = waiting.within(other_work.start_M, other_work.end_M) > 0
    others = IntervalUnion.of(other_work.start_M[near], other_work.end_M[near])
    return IntervalUnion.common((waiting,), (others,))
