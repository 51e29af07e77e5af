"""What callbacks of training frameworks share: hooks that never raise, options checked before training."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

from sfapp.errors import RecorderError, describe_error
from sfapp.recorder.options import RECORDER_OPTIONS
from sfapp.recorder.timing.phases import Phases

Hook = TypeVar("Hook", bound=Callable[..., Any])

HOOK_FAILED = "hook_failed"
"""The telemetry fault of a hook that raised; its step may lack time in its stages."""


class Hooked(Protocol):
    """What has hooks: its phases are there while it is recording."""

    recording: bool
    phases: Phases


def never_raises(hook: Hook) -> Hook:
    """Around a hook of training: it does nothing while nothing is recorded, and an error in it is a fault in
    the packet."""

    @functools.wraps(hook)
    def guarded(self: Hooked, *args: Any, **kwargs: Any) -> None:
        if not self.recording:
            return
        try:
            hook(self, *args, **kwargs)
        except Exception as error:  # fail-open
            self.phases.fault(HOOK_FAILED, f"{hook.__name__}: {describe_error(error)}")

    return cast(Hook, guarded)


def begins_or_warns(begin: Hook) -> Hook:
    """Around a hook that makes the recorder: options that cannot work are refused, and any other error is a
    warning in the log and a training that is not recorded."""

    @functools.wraps(begin)
    def guarded(self: Hooked, *args: Any, **kwargs: Any) -> None:
        try:
            begin(self, *args, **kwargs)
        except RecorderError:
            raise
        except Exception as error:  # fail-open
            self.recording = False
            logging.getLogger("sfapp").warning("training is not recorded: %s", describe_error(error))

    return cast(Hook, guarded)


def check_options(options: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse at once what the recorder would refuse only when training begins.

    Args:
        options: of ``sfapp.Recorder``.
        known: those that the framework itself says.

    Raises:
        RecorderError: an option that does not exist, or is not to be given.
    """
    for name in options:
        if name in known:
            raise RecorderError(f"{name} is not to be given: it is taken from the training loop itself")
        if name not in RECORDER_OPTIONS:
            raise RecorderError(f"the recorder has no option {name!r}")
