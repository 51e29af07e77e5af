"""Record the sections of jobs that are instrumented for nvidia-resiliency-ext's straggler detection."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from sfapp.errors import RecorderError
from sfapp.recorder.recorder import Recorder
from sfapp.recorder.side_channels.channels import RecordedChannel
from sfapp.recorder.timing.contexts import UncountedStage
from sfapp.recorder.timing.timers import Stage, Step

_INVALID_IN_CHANNEL_NAME = re.compile(r"[^A-Za-z0-9_.:\[\]/-]")


class Detector:
    """Replacement for ``nvidia_resiliency_ext.straggler.Detector`` that records instead of reporting.

    >>> Detector = sfapp.recorder.integrations.nvrx.Detector(perf, stages={"fwd": "model.fwd_loss_cpu_wall"})
    >>> with Detector.detection_section("fwd", profile_cuda=True):
    ...     loss = model(batch)

    Sections may nest, stages may not: sections that are mapped to stages must follow one another. Kernels are
    not profiled.

    Args:
        perf: the recorder.
        stages: stage by section name. All other sections become side channels of their names, in ms;
            characters that a channel's name must not hold are replaced by underscores.
        step: name of the section that is a whole step; without one the loop calls ``with perf.step()``.

    Raises:
        RecorderError: the recorder does not have a stage.
    """

    def __init__(self, perf: Recorder, stages: Mapping[str, str], step: str | None = None) -> None:
        unknown = sorted(set(stages.values()) - set(perf.stages))
        if unknown:
            raise RecorderError(f"the recorder has no stages {unknown}, only {list(perf.stages)}")
        self._perf = perf
        self._stages = dict(stages)
        self._step = step
        self._wrapped: list[tuple[Any, str, Any]] = []

    def initialize(self, *args: Any, **options: Any) -> None:
        """Do nothing: the recorder already exists."""

    def detection_section(
        self, name: str | None = None, profile_cuda: bool = True
    ) -> Step | Stage | RecordedChannel | UncountedStage:
        """Return the context of a section: the step, a stage or a side channel.

        A section without a name is named after its source line, such as ``train.py:42``.
        """
        if name is None:
            caller = sys._getframe(1)
            name = f"{PurePath(caller.f_code.co_filename).name}:{caller.f_lineno}"
        if name == self._step:
            return self._perf.step()
        stage = self._stages.get(name)
        if stage is not None:
            return self._perf.stage(stage)
        return self._perf.side_channel(_INVALID_IN_CHANNEL_NAME.sub("_", str(name))[:64])

    def wrap_callables(self, callable_ids: Iterable[Any], profile_cuda: bool = True) -> None:
        """Wrap each callable in a section that is named ``str(callable_id)``.

        Args:
            callable_ids: objects with ``obj`` and ``name``, the callable's owner and attribute.
        """
        for callable_id in callable_ids:
            original = getattr(callable_id.obj, callable_id.name)
            self._wrapped.append((callable_id.obj, callable_id.name, original))
            setattr(callable_id.obj, callable_id.name, self._wrap(original, str(callable_id)))

    def _wrap(self, original: Any, name: str) -> Any:
        @functools.wraps(original)
        def section(*args: Any, **kwargs: Any) -> Any:
            with self.detection_section(name):
                return original(*args, **kwargs)

        return section

    def restore_original_callables(self) -> None:
        """Undo ``wrap_callables``."""
        while self._wrapped:
            owner, name, original = self._wrapped.pop()
            setattr(owner, name, original)

    def generate_report(self) -> None:
        """Return None, as on ranks without a report: the packets hold the measurements."""

    def generate_report_if_interval_elapsed(self) -> None:
        """Return None: no interval elapses."""

    def is_interval_elapsed(self) -> bool:
        """Return False."""
        return False

    def shutdown(self) -> None:
        """Undo ``wrap_callables``. The recorder stays open; its creator closes it."""
        self.restore_original_callables()
