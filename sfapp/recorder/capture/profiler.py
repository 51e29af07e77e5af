"""Run ``torch.profiler`` over whole steps, started and stopped by the training thread between steps.

The profiler covers the thread that starts it and the autograd threads to which it delegates work, so start
and stop happen on the training thread. The trace is written later on another thread.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from sfapp.recorder.timing.timers import Stage, StepState

STEP_NAME = "ProfilerStep#"
"""Name of a step's range, as in the profiler's own step ranges, which all trace readers know."""

StopCallback = Callable[[str], None]


class CannotProfile(Exception):
    """The profiler cannot run now. Never leaves the recorder."""


def warm_up() -> None:
    """Load the modules that the profiler's first start would import, which takes seconds, on this thread."""
    with contextlib.suppress(ImportError):
        importlib.import_module("torch._inductor.config")


class MarkedStage(Stage):
    """Stage that also appears in the profiler's trace, as a range of its name."""

    __slots__ = ("_ranges",)

    def __init__(self, state: StepState, name: str, index: int) -> None:
        super().__init__(state, name, index)
        self._ranges: list[Any] = []  # A nested enter is refused but its exit is still called.

    def __enter__(self) -> None:
        from torch.autograd.profiler import record_function

        super().__enter__()
        profiled_range = record_function(self.name)
        profiled_range.__enter__()
        self._ranges.append(profiled_range)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, value, trace)
        if self._ranges:
            self._ranges.pop().__exit__(kind, value, trace)


class Profiling:
    """One run of the profiler. All methods except ``export`` are called on one thread.

    Attributes:
        thread: id of that thread.
        window_of: window by number of each completed step, in order.
        step: step that is being profiled.
        spent_ns: time for which the profiler's start and stop have blocked training.
    """

    def __init__(self, state: StepState) -> None:
        self.thread = threading.get_ident()
        self.window_of: dict[int, int] = {}
        self.step = -1
        self.spent_ns = 0
        self._state = state
        self._profiler: Any = None
        self._range: Any = None
        self._plain: Any = None
        self._marked: Any = None
        self._guard: _Guard | None = None

    def start(self, step: int, on_conflict: StopCallback) -> None:
        """Start the profiler before this step begins.

        Args:
            on_conflict: called when training is about to start its own profiler; must stop this one before it
                returns.

        Raises:
            CannotProfile: another profiler is running.
        """
        import torch
        from torch.autograd import profiler as autograd_profiler

        begin = time.perf_counter_ns()
        if autograd_profiler._is_profiler_enabled or torch._C._autograd._profiler_enabled():
            raise CannotProfile("another profiler is running")
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=activities)
        self._profiler.start()
        self._guard = _Guard(on_conflict)
        self._guard.install()
        self._open(step)
        self.spent_ns += time.perf_counter_ns() - begin

    def next_step(self, step: int) -> None:
        """End the current step and begin this one."""
        self._close()
        self._open(step)

    def stop(self, metadata: dict[str, Any]) -> None:
        """Stop the profiler and add metadata to its trace. Waits for the device, if there is one."""
        begin = time.perf_counter_ns()
        if self._guard is not None:
            self._guard.remove()
        if self._plain is not None and self._state.stages is self._marked:
            self._state.use_timers(self._plain)
        self._close()
        try:
            self._profiler.add_metadata_json("sfapp", json.dumps(metadata))
        finally:
            self._profiler.stop()
        self.spent_ns += time.perf_counter_ns() - begin

    def export(self, path: str) -> None:
        """Write the trace file, on any thread. torch holds Python's global lock meanwhile."""
        self._profiler.export_chrome_trace(path)
        self._profiler = None

    def _open(self, step: int) -> None:
        from torch.autograd.profiler import record_function

        self.step = step
        if self._state.stages is not self._marked:  # The stages may also have been reconfigured.
            self._plain = self._state.stages
            self._marked = [
                {name: MarkedStage(self._state, name, stage.index) for name, stage in stages.items()}
                for stages in self._plain
            ]
            self._state.use_timers(self._marked)
        self._range = record_function(f"{STEP_NAME}{step}")
        self._range.__enter__()

    def _close(self) -> None:
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None


class _Guard:
    """Replacement of the methods that start profilers, so that training's own profiler stops ours first.

    Otherwise torch would raise in training's own code.
    """

    def __init__(self, on_conflict: StopCallback) -> None:
        from torch.autograd import profiler as autograd_profiler

        self._profiler_class: Any = autograd_profiler.profile
        self._on_conflict = on_conflict
        self._thread = threading.get_ident()
        self._prepare: Any = self._profiler_class._prepare_trace
        self._start: Any = self._profiler_class._start_trace
        self._is_installed = False

    def install(self) -> None:
        """Replace the methods."""

        def prepare(profiler: Any) -> Any:
            self._stop_own_profiler()
            return self._prepare(profiler)

        def start(profiler: Any) -> Any:
            if self._stop_own_profiler():  # Our start has undone its preparation.
                self._prepare(profiler)
            return self._start(profiler)

        self._profiler_class._prepare_trace, self._profiler_class._start_trace = prepare, start
        self._is_installed = True

    def remove(self) -> None:
        """Restore the methods."""
        if self._is_installed:
            self._is_installed = False
            self._profiler_class._prepare_trace, self._profiler_class._start_trace = (
                self._prepare,
                self._start,
            )

    def _stop_own_profiler(self) -> bool:
        """Stop our profiler if it runs on this thread, and return whether it did."""
        if not self._is_installed or threading.get_ident() != self._thread:
            return False
        self._on_conflict("training started a profiler of its own")
        self.remove()
        return True
