"""Charge the wait for a batch to the step that uses the batch (accounting.md §9).

A loop fetches its batch before the step or within it; a prefetcher fetches the next step's batch within a
step. In all three cases the wait counts as the data stage of the step that uses the batch. A step's wait for
its successor's batch is subtracted from its stage and wall time and added before the next step. If the step
of a batch cannot be known, the window has the fault ``prefetch_unaligned``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from sfapp.recorder.timing.batch_waits import charge, hold, move_to_next_step
from sfapp.recorder.timing.timers import StepState

Batch = TypeVar("Batch")

UNALIGNED = "prefetch_unaligned"


class Batches(Generic[Batch]):
    """A loader whose waits are recorded. It can be iterated as often as the original loader."""

    def __init__(
        self, loader: Iterable[Batch], state: StepState, per_step: Callable[[], int], stage: str
    ) -> None:
        """Wrap a loader.

        Args:
            per_step: returns the current number of batches per step.
            stage: the data stage.
        """
        self._loader = loader
        self._state = state
        self._per_step = per_step
        self._stage = stage

    def __iter__(self) -> Iterator[Batch]:
        return _Fetch(iter(self._loader), self._state, self._per_step, self._stage)

    def __len__(self) -> int:
        loader: Any = self._loader
        return len(loader)  # TypeError where the loader has no length


class _Fetch(Generic[Batch]):
    """One pass over a loader."""

    def __init__(
        self, batches: Iterator[Batch], state: StepState, per_step: Callable[[], int], stage: str
    ) -> None:
        self._batches = batches
        self._state = state
        self._per_step = per_step
        self._stage = stage
        self._thread = threading.get_ident()
        state.unused_batches = 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        state = self._state
        if threading.get_ident() != self._thread:  # Another thread's wait is not the step's.
            state.on_fault(UNALIGNED, "batches were fetched on another thread")
            return next(self._batches)
        cpu, begin = state.cpu_now(), state.clock()
        batch = next(self._batches)
        self._charge(max(0, state.clock() - begin), max(0, state.cpu_now() - cpu))
        return batch

    def _charge(self, waited: int, cpu: int) -> None:
        state, per_step = self._state, self._per_step()
        state.unused_batches += 1
        ahead = state.unused_batches > per_step
        if not state.in_step:
            hold(state, waited, cpu)
            if ahead:
                state.on_fault(UNALIGNED, "more batches were fetched before a step than it uses")
        elif not ahead:
            charge(state, self._stage, state.unused_batches - 1, waited, cpu)
        else:
            move_to_next_step(state, waited, cpu)
            if state.unused_batches > 2 * per_step:
                state.on_fault(UNALIGNED, "batches were fetched more than a step ahead")
