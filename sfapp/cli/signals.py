"""Commands that run until Ctrl-C or SIGTERM, and then end in order; and those that another command started
and that end with it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def until_told_to_stop(attached: bool = False) -> Iterator[threading.Event]:
    """An event that is set by Ctrl-C and by SIGTERM; afterwards both are as they were before.

    Args:
        attached: both are ignored: schedulers and terminals send them to every process of a job at once, and
            ``sfapp run`` says when what its ranks send last has come (``with_parent``).
    """
    stop = threading.Event()

    def told(*_: object) -> None:
        if not attached:
            stop.set()

    before = [signal.signal(number, told) for number in _SIGNALS]
    try:
        yield stop
    finally:
        for number, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(number, handler)


def with_parent(ended: Callable[[], None]) -> None:
    """Call this, on a thread, once the process that started this one has closed its end of our stdin: it
    wants us to end, or has died, however it died."""

    def wait() -> None:
        sys.stdin.buffer.read()
        ended()

    threading.Thread(target=wait, name="sfapp-attached", daemon=True).start()
