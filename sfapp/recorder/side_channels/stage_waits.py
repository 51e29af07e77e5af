"""Measure how long this rank waits for others within each stage (accounting.md §15), on request only.

There are two sources: time blocked in calls of torch.distributed and, if DistributedDataParallel exchanges
gradients inside C++, the time from the last gradient to the end of backward. Both are host time. With NCCL
most waiting is on the device, where ``device_waits`` samples it.

Waits are stored in a page parallel to the step timers' page of rows, in cells of the same index. They are
converted to side channels in batches when rows are copied. During a step they are only added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import get_ident
from typing import Any

import numpy as np

from sfapp.errors import describe_error
from sfapp.packets.packet_layout import WAIT_PREFIX
from sfapp.packets.window_rows import FIRST_STAGE_COLUMN, Rows, Values, unsampled
from sfapp.recorder.side_channels.communication import COMMUNICATION
from sfapp.recorder.side_channels.device_waits import DeviceCalls
from sfapp.recorder.side_channels.last_gradient import LastGradient, data_parallel_parts
from sfapp.recorder.timing.timer_backend import new_wait_page
from sfapp.recorder.timing.timers import StepState


class StageWaits:
    """Waits by stage column.

    A column appears once there was a wait in it, and then in every step, with 0 for steps without a wait.
    """

    def __init__(
        self, state: StepState, may_store: Callable[[str], bool], failed: Callable[[str], None]
    ) -> None:
        """Record waits of the steps of a state.

        Args:
            may_store: returns whether a channel of this name is allowed.
            failed: called with the reason if waits can no longer be recorded.
        """
        self._state = state
        self._may_store = may_store
        self._failed = failed
        self._known: set[int] = set()
        self._page = new_wait_page(state)

    def next_page(self, cells: int) -> None:
        """Start an empty page with this many cells."""
        self._page.clear(cells)

    def add(self, column: int, blocked: int) -> None:
        """Add ns to the wait in a stage column of the current step."""
        self._add_cell(FIRST_STAGE_COLUMN + column, blocked)

    def take(self, begin: int, row_MC: Rows, stages: Sequence[str]) -> Iterable[tuple[str, Values]]:
        """Return the waits of complete rows, ns by channel (``RowChannels.take``)."""
        try:
            return list(self._take(begin, row_MC, stages))
        except Exception as error:  # fail-open: these rows have no waits
            self._failed(describe_error(error))
            return []

    def end_step(self) -> None:
        """End a step; needed only while ``is_learning``."""

    @property
    def is_learning(self) -> bool:
        """Whether ``end_step`` must be called."""
        return False

    def drop_step(self) -> None:
        """Discard the waits of a step that is not recorded."""
        begin, width = self._state.base, self._state.width
        for page in (self._page.blocked, self._page.own, self._page.exchanged):
            for cell in range(begin, min(begin + width, len(page))):
                page[cell] = 0

    def use_other_stages(self) -> None:
        """Reset the columns, whose stages change from now on."""
        self._known.clear()

    def close(self) -> None:
        """Remove all hooks."""

    def _add_cell(self, index: int, blocked: int) -> None:
        try:
            self._page.blocked[self._state.base + index] += blocked
        except IndexError:  # The step has no row.
            return

    def _take(self, begin: int, row_MC: Rows, stages: Sequence[str]) -> Iterator[tuple[str, Values]]:
        blocked_MC, own_MC, exchanged_MC = (
            np.frombuffer(page[begin : begin + row_MC.size], np.int64).reshape(row_MC.shape)
            for page in (self._page.blocked, self._page.own, self._page.exchanged)
        )
        # Own time is known up to the last gradient; the rest of the backward pass is a wait.
        end_MC = np.where(exchanged_MC > 0, exchanged_MC, row_MC)
        after_MC = np.where(own_MC > 0, end_MC - own_MC, 0)
        wait_MC = np.maximum(blocked_MC, after_MC).clip(0, np.maximum(row_MC, 0))
        seen_MC = (blocked_MC != 0) | (own_MC != 0)
        seen = set(np.flatnonzero(seen_MC.any(axis=0)).tolist())
        for index in sorted(seen | self._known):
            column = index - FIRST_STAGE_COLUMN
            if column < 0:  # outside the steps
                continue
            name = WAIT_PREFIX + stages[column]
            if not self._may_store(name):
                continue
            values = wait_MC[:, index].astype(np.float64)
            if index not in self._known:
                first = int(seen_MC[:, index].argmax())
                values[:first] = unsampled(first)
                self._known.add(index)
            yield name, values


class WatchedWaits(StageWaits):
    """Waits of the stages that are timed on this thread."""

    def __init__(
        self,
        state: StepState,
        model: Any,
        may_store: Callable[[str], bool],
        failed: Callable[[str], None],
        device: DeviceCalls | None,
    ) -> None:
        """Measure waits on this thread from now on.

        Args:
            model: with its wrapper; its gradients are watched if it contains DistributedDataParallel.
            device: samples the same waits on the device.
        """
        super().__init__(state, may_store, failed)
        self._thread = get_ident()
        ready, parts = self._page.gradient_is_ready, data_parallel_parts(model)
        if parts:
            self._page.mark_end_of_backward(_queue_callback())
        self._gradients = [
            LastGradient(part, ready if device is None else device.gradient_hook(part, ready))
            for part in parts
        ]
        COMMUNICATION.listen(self, self._thread, self._page.was_blocked, device)

    @property
    def is_learning(self) -> bool:
        return any(gradients.is_learning for gradients in self._gradients)

    def end_step(self) -> None:
        for gradients in self._gradients:
            gradients.end_step()

    def close(self) -> None:
        COMMUNICATION.stop(self, self._thread)
        for gradients in self._gradients:
            gradients.close()
        self._gradients.clear()


def _queue_callback() -> Callable[[Callable[[], None]], None]:
    """Return the function that queues a callback for the end of the current backward pass."""
    import torch

    engine: Any = torch.autograd.Variable._execution_engine
    queue: Callable[[Callable[[], None]], None] = engine.queue_callback
    return queue
