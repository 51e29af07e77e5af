"""``torch.profiler`` over whole steps, started and stopped by the training's thread between two of them.

The profiler is of the thread that starts it (and of autograd's, to which that thread hands work), so both
happen there. What it saw is written elsewhere, later.
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
"""A step's range is named as the profiler's own are; every reader of its traces knows them."""

Yield = Callable[[str], None]


class CannotProfile(Exception):
    """The profiler cannot run now. Stays inside the recorder."""


def warm_up() -> None:
    """Load what the profiler's first start in a process would load, some seconds of it, on another thread."""
    with contextlib.suppress(ImportError):
        importlib.import_module("torch._inductor.config")


class MarkedStage(Stage):
    """A stage that the profiler sees too, as a range of its name."""

    __slots__ = ("_ranges",)

    def __init__(self, state: StepState, name: str, index: int) -> None:
        super().__init__(state, name, index)
        self._ranges: list[Any] = []  # one inside itself is refused, and left all the same

    def __enter__(self) -> None:
        from torch.autograd.profiler import record_function

        super().__enter__()
        named = record_function(self.name)
        named.__enter__()
        self._ranges.append(named)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, value, trace)
        if self._ranges:
            self._ranges.pop().__exit__(kind, value, trace)


class Profiling:
    """The profiler under way. All but ``export`` is called on one thread.

    Attributes:
        thread: that thread.
        window_of: the window of each step that is over, by its number, in order.
        step: the step that is being recorded.
        spent_ns: how long training stood still for the profiler's start and stop.
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

    def start(self, step: int, gives_way: Yield) -> None:
        """Start with this step, which has not begun.

        Args:
            gives_way: called when training is about to start a profiler of its own: this one must be stopped
                by the time it returns.

        Raises:
            CannotProfile: another profiler runs.
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
        self._guard = _Guard(gives_way)
        self._guard.put_up()
        self._open(step)
        self.spent_ns += time.perf_counter_ns() - begin

    def go_on(self, step: int) -> None:
        """The step under way is over, and this one follows."""
        self._close()
        self._open(step)

    def stop(self, about: dict[str, Any]) -> None:
        """Stop, with what the trace is to say of itself. Waits for the device, where there is one."""
        begin = time.perf_counter_ns()
        if self._guard is not None:
            self._guard.take_down()
        if self._plain is not None and self._state.stages is self._marked:
            self._state.use_timers(self._plain)
        self._close()
        try:
            self._profiler.add_metadata_json("sfapp", json.dumps(about))
        finally:
            self._profiler.stop()
        self.spent_ns += time.perf_counter_ns() - begin

    def export(self, path: str) -> None:
        """Write what was seen as a trace file, on any thread. torch keeps Python's lock meanwhile."""
        self._profiler.export_chrome_trace(path)
        self._profiler = None

    def _open(self, step: int) -> None:
        from torch.autograd.profiler import record_function

        self.step = step
        if self._state.stages is not self._marked:  # also where the schema has changed since
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
    """While our profiler runs, one that training starts itself goes first: torch would raise in training's
    own code. For those few steps the two methods by which profilers start are ours."""

    def __init__(self, gives_way: Yield) -> None:
        from torch.autograd import profiler as autograd_profiler

        self._home: Any = autograd_profiler.profile
        self._gives_way = gives_way
        self._thread = threading.get_ident()
        self._prepare = self._home._prepare_trace
        self._start = self._home._start_trace
        self._is_up = False

    def put_up(self) -> None:
        """From now on."""

        def prepare(theirs: Any) -> Any:
            self._let_by()
            return self._prepare(theirs)

        def start(theirs: Any) -> Any:
            if self._let_by():  # it was prepared before ours started, which undid that
                self._prepare(theirs)
            return self._start(theirs)

        self._home._prepare_trace, self._home._start_trace = prepare, start
        self._is_up = True

    def take_down(self) -> None:
        """As it was before."""
        if self._is_up:
            self._is_up = False
            self._home._prepare_trace, self._home._start_trace = self._prepare, self._start

    def _let_by(self) -> bool:
        """Whether ours had to stop: profilers of other threads are not in its way."""
        if not self._is_up or threading.get_ident() != self._thread:
            return False
        self._gives_way("training started a profiler of its own")
        self.take_down()
        return True
