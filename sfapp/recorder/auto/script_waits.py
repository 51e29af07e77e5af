"""Measure when the main thread of an unmodified script waits for other ranks (accounting.md §15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sfapp.recorder.auto.steps import Interval
from sfapp.recorder.side_channels.communication import COMMUNICATION
from sfapp.recorder.side_channels.last_gradient import LastGradient, data_parallel_parts

_MAX_WAITS = 1 << 14
"""Maximum number of waits kept between two optimizer steps; further ones are dropped."""


class ScriptWaits:
    """Waits since the last step, from calls of torch.distributed and from gradients."""

    def __init__(self, thread: int, clock: Callable[[], int]) -> None:
        """Keep the waits of a thread, once ``listen`` is called.

        Args:
            clock: monotonic ns.
        """
        self._thread = thread
        self._clock = clock
        self._waits: list[Interval] = []
        self._gradients: dict[int, list[LastGradient]] = {}  # by id of the module
        self._last_gradient = 0

    def listen(self) -> None:
        """Time calls of torch.distributed from now on."""
        COMMUNICATION.listen(self._thread, self._was_blocked)

    def watch(self, module: Any) -> None:
        """Watch the gradients of a module in which DistributedDataParallel waits; once for each module."""
        if id(module) not in self._gradients:
            parts = data_parallel_parts(module)
            self._gradients[id(module)] = [LastGradient(part, self._gradient_is_ready) for part in parts]

    def backward_ended(self, begin: int, end: int) -> None:
        """Add the time after the last gradient of a backward pass that exchanged gradients."""
        if begin <= self._last_gradient < end:
            self._add(self._last_gradient, end)

    def take(self) -> list[Interval]:
        """Return the waits of the step that ends, in order of time, and begin the next one."""
        for parts in self._gradients.values():
            for gradients in parts:
                gradients.end_step()
        found, self._waits = self._waits, []
        return found

    def stop(self) -> None:
        """Remove all hooks."""
        COMMUNICATION.stop(self._thread)
        for parts in self._gradients.values():
            for gradients in parts:
                gradients.close()
        self._gradients.clear()
        self._waits.clear()

    def _was_blocked(self, blocked: int) -> None:
        now = self._clock()
        self._add(now - blocked, now)

    def _gradient_is_ready(self, _: Any) -> None:
        self._last_gradient = self._clock()

    def _add(self, begin: int, end: int) -> None:
        """Add a wait, replacing waits inside it."""
        while self._waits and self._waits[-1][0] >= begin:
            self._waits.pop()
        if len(self._waits) < _MAX_WAITS:
            self._waits.append((begin, end))
