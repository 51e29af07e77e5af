"""For jobs instrumented for nvidia-resiliency-ext's straggler detection: its sections, recorded by sfapp."""

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

_NOT_IN_A_CHANNEL = re.compile(r"[^A-Za-z0-9_.:\[\]/-]")


class Detector:
    """Stands where ``nvidia_resiliency_ext.straggler.Detector`` stood: the same calls, no reports of its own.

    >>> Detector = sfapp.recorder.integrations.nvrx.Detector(perf, stages={"fwd": "model.fwd_loss_cpu_wall"})
    >>> with Detector.detection_section("fwd", profile_cuda=True):
    ...     loss = model(batch)

    Sections may nest there, stages may not: sections that are mapped must follow one another. Kernels are not
    profiled.

    Args:
        perf: the recorder.
        stages: the stage that each section is; all others become side channels, in ms, of their names, in
            which what a channel's name may not hold is an underscore.
        step: the section that is a whole step; without one the loop says ``with perf.step()``.

    Raises:
        RecorderError: a stage that the recorder does not have.
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
        """Nothing to do: the recorder was made before."""

    def detection_section(
        self, name: str | None = None, profile_cuda: bool = True
    ) -> Step | Stage | RecordedChannel | UncountedStage:
        """Context of a section: the step, its stage or a side channel. One without a name is called after the
        line it is in: ``train.py:42``."""
        if name is None:
            caller = sys._getframe(1)
            name = f"{PurePath(caller.f_code.co_filename).name}:{caller.f_lineno}"
        if name == self._step:
            return self._perf.step()
        stage = self._stages.get(name)
        if stage is not None:
            return self._perf.stage(stage)
        return self._perf.side_channel(_NOT_IN_A_CHANNEL.sub("_", str(name))[:64])

    def wrap_callables(self, callable_ids: Iterable[Any], profile_cuda: bool = True) -> None:
        """Put a section round each callable, named ``object.callable`` as ``str(callable_id)`` says.

        Args:
            callable_ids: with ``obj`` and ``name``, the attribute that is the callable.
        """
        for callable_id in callable_ids:
            original = getattr(callable_id.obj, callable_id.name)
            self._wrapped.append((callable_id.obj, callable_id.name, original))
            setattr(callable_id.obj, callable_id.name, self._around(original, str(callable_id)))

    def _around(self, original: Any, name: str) -> Any:
        @functools.wraps(original)
        def section(*args: Any, **kwargs: Any) -> Any:
            with self.detection_section(name):
                return original(*args, **kwargs)

        return section

    def restore_original_callables(self) -> None:
        """Undo ``wrap_callables``."""
        while self._wrapped:
            place, name, original = self._wrapped.pop()
            setattr(place, name, original)

    def generate_report(self) -> None:
        """None, as on ranks that get no report: the packets hold what was measured."""

    def generate_report_if_interval_elapsed(self) -> None:
        """None: no interval elapses."""

    def is_interval_elapsed(self) -> bool:
        """False."""
        return False

    def shutdown(self) -> None:
        """Undo ``wrap_callables``. The caller that created the recorder closes it."""
        self.restore_original_callables()
