"""Shared parts of the framework callbacks: hooks that never raise and a check of options before training."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

from sfapp.errors import RecorderError, describe_error
from sfapp.recorder.options import RECORDER_OPTIONS
from sfapp.recorder.recorder import Recorder
from sfapp.recorder.signal_errors import is_of_a_signal_handler
from sfapp.recorder.timing.phases import Phases

Hook = TypeVar("Hook", bound=Callable[..., Any])

HOOK_FAILED = "hook_failed"
"""Telemetry fault of a hook that raised; time may be missing from the stages of its step."""


class HookOwner(Protocol):
    """Object with hooks; ``phases`` is set while ``recording`` is true."""

    recording: bool
    phases: Phases


def never_raises(hook: Hook) -> Hook:
    """Wrap a hook: skip it while nothing is recorded, and turn an error in it into a fault in the packet.

    What a signal handler of training raises in it reaches training as well.
    """

    @functools.wraps(hook)
    def guarded(self: HookOwner, *args: Any, **kwargs: Any) -> None:
        if not self.recording:
            return
        try:
            hook(self, *args, **kwargs)
        except Exception as error:  # fail-open
            self.phases.fault(HOOK_FAILED, f"{hook.__name__}: {describe_error(error)}")
            if is_of_a_signal_handler(error):
                raise

    return cast(Hook, guarded)


def warns_if_it_fails(begin: Hook) -> Hook:
    """Wrap a hook that creates the recorder: log an error as a warning and train without recording.

    Raises:
        RecorderError: the recorder's options are invalid.
    """

    @functools.wraps(begin)
    def guarded(self: HookOwner, *args: Any, **kwargs: Any) -> None:
        try:
            begin(self, *args, **kwargs)
        except RecorderError:
            raise
        except Exception as error:  # fail-open
            self.recording = False
            logging.getLogger("sfapp").warning("training is not recorded: %s", describe_error(error))

    return cast(Hook, guarded)


def watch_waits_if_possible(recorder: Recorder, model: Any) -> None:
    """Measure waits (``Recorder.watch_waits``); log an error as a warning and record without them."""
    try:
        recorder.watch_waits(model)
    except Exception as error:  # fail-open
        logging.getLogger("sfapp").warning("waits are not measured: %s", describe_error(error))


def check_options(options: Mapping[str, Any], reserved: tuple[str, ...]) -> None:
    """Check the recorder's options now instead of when training begins.

    Args:
        options: options of ``sfapp.Recorder``.
        reserved: options that the integration sets itself.

    Raises:
        RecorderError: an option does not exist or is reserved.
    """
    for name in options:
        if name in reserved:
            raise RecorderError(f"{name} cannot be set: it is taken from the training loop")
        if name not in RECORDER_OPTIONS:
            raise RecorderError(f"the recorder has no option {name!r}")
