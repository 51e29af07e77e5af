"""Common part of the callbacks that record a framework's training by its events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sfapp.model.manifest import Accumulation
from sfapp.recorder.integrations.safe_hooks import check_options, watch_waits_if_possible
from sfapp.recorder.recorder import Recorder
from sfapp.recorder.timing.phases import Phases


class RecordingCallback:
    """Callback with a recorder from the beginning of training to its end.

    Args:
        output: folder for packets.
        watch_waits: measure how long this rank waits for others within each stage
            (``Recorder.watch_waits``).
        options: options of ``sfapp.Recorder`` except ``stages``, ``accumulation`` and ``first_step``.

    Raises:
        RecorderError: the recorder has no such option.
    """

    phases: Phases

    def __init__(self, output: str | Path, *, watch_waits: bool = True, **options: Any) -> None:
        check_options(options, ("stages", "accumulation", "first_step"))
        self._output = output
        self._watch_waits = watch_waits
        self._options = options
        self._recorder: Recorder | None = None
        self.recording = False

    def _begin(
        self, stages: Sequence[str], accumulation: Accumulation, first_step: int, model: Any, **found: Any
    ) -> None:
        """Create the recorder.

        Args:
            model: whose waits are measured, if they are. found: options that the user's replace.
        """
        self._recorder = Recorder(
            self._output,
            stages=stages,
            accumulation=accumulation,
            first_step=first_step,
            **{**found, **self._options},
        )
        if self._watch_waits:
            watch_waits_if_possible(self._recorder, model)
        self.phases = self._recorder.phases()
        self.recording = True

    def _close(self, error: BaseException | None = None) -> None:
        """Close the recorder; after an error without waiting long, because the process may be failing."""
        recorder, self._recorder, self.recording = self._recorder, None, False
        if recorder is not None:
            recorder.__exit__(None if error is None else type(error), error, None)
