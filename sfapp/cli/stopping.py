"""Commands that run until Ctrl-C or SIGTERM, and then end in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def until_told_to_stop() -> Iterator[threading.Event]:
    """An event that is set by Ctrl-C and by SIGTERM; afterwards both are as they were before."""
    stop = threading.Event()
    before = [signal.signal(number, lambda *_: stop.set()) for number in _SIGNALS]
    try:
        yield stop
    finally:
        for number, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(number, handler)
