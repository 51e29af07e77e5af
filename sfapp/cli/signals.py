"""End long-running commands in order: on Ctrl-C or SIGTERM, or together with the process that started
them."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def wait_for_stop_signal(attached: bool = False) -> Iterator[threading.Event]:
    """Provide an event that Ctrl-C and SIGTERM set; the previous handlers are restored on exit.

    Args:
        attached: ignore both signals. Schedulers and terminals send them to every process of a job at once,
            and ``sfapp run`` ends its services only after the ranks' last messages
            (``call_when_parent_ends``).
    """
    stop = threading.Event()

    def handle(*_: object) -> None:
        if not attached:
            stop.set()

    before = [signal.signal(number, handle) for number in _SIGNALS]
    try:
        yield stop
    finally:
        for number, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def cancelled_by_signals() -> Iterator[threading.Event]:
    """Set an event at the first Ctrl-C or SIGTERM; the second one ends the process as usual."""
    cancel = threading.Event()
    previous = {int(number): signal.getsignal(number) for number in _SIGNALS}

    def stop(number: int, _: FrameType | None) -> None:
        cancel.set()
        signal.signal(number, previous[number])

    for number in previous:
        signal.signal(number, stop)
    try:
        yield cancel
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def call_when_parent_ends(callback: Callable[[], None]) -> None:
    """Call ``callback`` on a thread once the parent process has closed this process's stdin.

    The parent closes it to end this process, and the system closes it if the parent dies.
    """

    def wait() -> None:
        sys.stdin.buffer.read()
        callback()

    threading.Thread(target=wait, name="sfapp-attached", daemon=True).start()
