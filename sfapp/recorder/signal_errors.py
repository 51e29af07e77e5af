"""Tell errors that a signal handler of training raised from those of the recorder.

Python calls the handler wherever the main thread is, so its error may pass through the recorder.
"""

from __future__ import annotations

from inspect import CO_VARARGS
from types import FrameType


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
