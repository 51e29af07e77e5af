"""Keep errors that signal handlers raise apart from the recorder's work.

Python calls the handler wherever the main thread is, so its error may be raised within the recorder.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_VARARGS
from types import FrameType


@contextmanager
def interrupted_afterwards() -> Iterator[None]:
    """Run the block to its end if Ctrl-C is pressed meanwhile, and raise ``KeyboardInterrupt`` after it.

    Pressed a second time, it ends the block, which may wait for other ranks. A handler of training's own
    stays in place, because it need not raise.
    """
    is_main = threading.get_ident() == threading.main_thread().ident
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    was_pressed = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal was_pressed
        if was_pressed:
            signal.default_int_handler(number, frame)
        was_pressed = True

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if was_pressed:
            raise KeyboardInterrupt


def is_of_a_signal_handler(error: BaseException) -> bool:
    """Return whether an error was raised within a function that was called with a frame, as handlers are."""
    place = error.__traceback__
    while place is not None:
        code, values = place.tb_frame.f_code, place.tb_frame.f_locals
        names = code.co_varnames[: code.co_argcount]
        if code.co_flags & CO_VARARGS:
            names += (code.co_varnames[code.co_argcount + code.co_kwonlyargcount],)
        for argument in map(values.get, names):
            passed = argument if isinstance(argument, tuple) else (argument,)
            if any(isinstance(each, FrameType) for each in passed):
                return True
        place = place.tb_next
    return False
