"""End long-running commands in order: on Ctrl-C or SIGTERM, or together with the process that started
them."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from sfapp.files import temporary_directory

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_LONGEST_REQUEST_S = 5.0
"""Seconds that a cancelled command waits for a request."""

_LOOK_EVERY_S = 0.5


def _closed_terminal() -> tuple[signal.Signals, ...]:
    """Return the signal that says that the terminal was closed, unless it is ignored, as under ``nohup``."""
    return () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)


@contextmanager
def _handled(
    numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Have a function handle signals within the block."""
    before = [(number, signal.signal(number, handler)) for number in numbers]
    try:
        yield
    finally:
        for number, usual in before:
            signal.signal(number, usual)


@contextmanager
def ends_after_block() -> Iterator[threading.Event]:
    """Provide an event that Ctrl-C, SIGTERM and SIGHUP set; the last two end the process after the block."""
    stop = threading.Event()
    came: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        came.append(number)
        stop.set()

    try:
        with _handled((*_SIGNALS, *_closed_terminal()), handle):
            yield stop
    finally:
        for last in came:
            if last != signal.SIGINT:
                signal.raise_signal(last)


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

    with _handled(_SIGNALS, handle):
        yield stop


@contextmanager
def cancelled_by_signals() -> Iterator[threading.Event]:
    """Set an event at the first Ctrl-C, SIGTERM or SIGHUP; the second one ends the process as usual.

    So does the first one where a bucket's server is silent: the event is looked at between requests only.
    """
    from sfapp.storage import waited_s  # Slow to load; commands that are cancelled need it anyway.

    cancel, is_over = threading.Event(), threading.Event()
    previous = {int(number): signal.getsignal(number) for number in (*_SIGNALS, *_closed_terminal())}
    came: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        came.append(number)
        cancel.set()
        signal.signal(number, previous[number])

    def repeat() -> None:
        while not is_over.wait(_LOOK_EVERY_S):
            if came and waited_s() > _LONGEST_REQUEST_S:
                signal.pthread_kill(threading.main_thread().ident or 0, came[0])
                return

    for number in previous:
        signal.signal(number, stop)
    with suppress(RuntimeError):  # There is no thread left.
        threading.Thread(target=repeat, name="sfapp-cancel", daemon=True).start()
    try:
        yield cancel
    finally:
        is_over.set()
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Provide a temporary folder that is removed on exit, and by a SIGTERM or SIGHUP that ends the process.

    The signals' handler removes it, and raises nothing: an exception amid the import of a compiled module
    would abort the process. Handlers that are installed within the block take precedence until they are
    removed.

    Raises:
        TemporaryFolderError: there is no room or place for it.
    """
    wanted = (signal.SIGTERM, *_closed_terminal())
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, wanted)  # until the folder has a handler
    try:
        temporary = temporary_directory(prefix)

        def remove(number: int, _: FrameType | None) -> None:
            shutil.rmtree(temporary.name, ignore_errors=True)
            signal.signal(number, previous[number])
            signal.raise_signal(number)

        previous = {int(each): signal.signal(each, remove) for each in wanted}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    with temporary as folder:
        try:
            yield Path(folder)
        finally:
            for each, handler in previous.items():
                signal.signal(each, handler)


def call_when_parent_ends(callback: Callable[[], None]) -> None:
    """Call ``callback`` on a thread once the parent process has closed this process's stdin.

    The parent closes it to end this process, and the system closes it if the parent dies.
    """

    def wait() -> None:
        sys.stdin.buffer.read()
        callback()

    threading.Thread(target=wait, name="sfapp-attached", daemon=True).start()
