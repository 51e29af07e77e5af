"""Hooks of training beside the timers: waits within stages, and garbage collections.

Where a C compiler is available, ``hatch_build.py`` compiles a copy of this file to the module ``_hooks``;
``timer_backend`` chooses. Compiled, the hooks need no bytecode between a model's kernels. They raise nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from functools import partial
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfapp.recorder.timing.timers import StepState


class WaitPage:
    """Waits within the stages of this thread, in cells of the same index as in a page of rows (§15).

    A step may have no row, and its waits are then not recorded.

    Attributes:
        blocked: ns blocked in calls.
        own: ns from the stage's begin to the last gradient, without blocked time.
        exchanged: ns from the stage's begin to the end of the backward pass.
    """

    __slots__ = (
        "_blocked_cells", "_exchanged_cells", "_own_cells", "_queue", "_queue_last", "_state", "blocked",
        "exchanged", "own",
    )  # fmt: skip

    def __init__(self, state: StepState, cells: int) -> None:
        """Create an empty page of so many cells."""
        self._state = state
        self._queue: Callable[[Callable[[], None]], None] | None = None
        self.clear(cells)

    def clear(self, cells: int) -> None:
        """Start an empty page with this many cells."""
        empty = bytes(8 * cells or 8)
        self.blocked, self.own, self.exchanged = array("q", empty), array("q", empty), array("q", empty)
        self._blocked_cells, self._own_cells = self.blocked, self.own
        self._exchanged_cells = self.exchanged

    def mark_end_of_backward(self, queue: Callable[[Callable[[], None]], None]) -> None:
        """Note when backward passes end, too.

        Args:
            queue: queues a callback for the end of the current backward pass.
        """
        # DistributedDataParallel ends the exchange in a callback of its own, queued after a gradient's hooks.
        self._queue_last = partial(queue, self.backward_has_ended)
        self._queue = queue

    def was_blocked(self, ns: int) -> None:
        """Add the time of a call in the open stage."""
        state = self._state
        stage = state.open_stage
        if stage is not None:
            try:  # Outside a step, this is the cell of the step's number, which is no stage.
                self._blocked_cells[state.base + stage.index] += ns
            except IndexError:
                return

    def gradient_is_ready(self, parameter: Any) -> None:
        """Note that a parameter's gradient has been accumulated; the last one of a step counts."""
        state = self._state
        stage = state.open_stage
        if stage is not None:
            now = state.clock()
            try:  # The row includes earlier entries of the stage, and calls may have blocked in it.
                cell = state.base + stage.index
                self._own_cells[cell] = state.page[cell] + now - stage.begin - self._blocked_cells[cell]
            except IndexError:
                return
        if self._queue is not None:
            self._queue(self._queue_last)

    def backward_has_ended(self) -> None:
        """Note the end of a backward pass, after gradients were exchanged."""
        state = self._state
        stage = state.open_stage
        if stage is not None:
            now = state.clock()
            try:
                cell = state.base + stage.index
                self._exchanged_cells[cell] = state.page[cell] + now - stage.begin
            except IndexError:
                return


class CollectionTimer:
    """Adds garbage collections on the thread of the steps to ``StepState.gc_ns``."""

    __slots__ = ("_begin", "_state")

    def __init__(self, state: StepState) -> None:
        self._state = state
        self._begin = 0

    def time_collection(self, phase: str, info: Mapping[str, Any]) -> None:
        """Time a collection, as a callback of ``gc.callbacks``.

        In bytecode there, Python would raise, and ignore, the KeyboardInterrupt of a signal that arrived
        during the collection.
        """
        if get_ident() != self._state.thread:
            return
        if phase == "start":
            self._begin = perf_counter_ns()
        elif self._begin:
            self._state.gc_ns += perf_counter_ns() - self._begin
            self._begin = 0
