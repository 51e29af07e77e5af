"""Keep errors of the recording out of the training that is recorded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sfapp.errors import describe_error
from sfapp.recorder.signal_errors import is_of_a_signal_handler


class EndableRecording(Protocol):
    """What can be ended after an error."""

    def give_up(self, why: str) -> None:
        """Stop recording and report the reason."""


T = TypeVar("T", bound=EndableRecording)
P = ParamSpec("P")
R = TypeVar("R")


def fail_open(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R | None]:
    """Wrap a method so that its errors end the recording and not the training, which gets its own ones."""

    def guarded(self: T, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # fail-open
            self.give_up(f"recording stopped: {describe_error(error)}")
            if is_of_a_signal_handler(error):
                raise
            return None

    functools.update_wrapper(guarded, method)
    return guarded
