"""How long this rank waits for others within each stage (accounting.md §15), only where asked for.

Two sources, whichever a stage has: time blocked in calls of torch.distributed; and, where
DistributedDataParallel exchanges gradients inside C++, the time from the last gradient until backward ends.
Both are host time: with NCCL most waiting is on the device and shows in the stage that synchronises with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

from sfapp.packets.packet_layout import WAIT_PREFIX
from sfapp.packets.window_rows import FIRST_STAGE_COLUMN
from sfapp.recorder.side_channels.communication import COMMUNICATION
from sfapp.recorder.side_channels.last_gradient import LastGradient, data_parallel_parts
from sfapp.recorder.timing.timers import StepState


class StageWaits:
    """Waits of the current step by stage column.

    A column appears once something was waited for in it and then in every step, 0 where nothing was.
    """

    def __init__(self, state: StepState) -> None:
        self._state = state
        self._blocked: dict[int, int] = {}

    def add(self, column: int, blocked: int) -> None:
        """Add ns to the wait in a column of the current step."""
        self._blocked[column] = self._blocked.get(column, 0) + blocked

    def finish_step(self, stages: Sequence[str], store: Callable[[str, float], None]) -> None:
        """Store the waits of the step that ends, ns.

        Args:
            stages: as recorded, in the order of their columns.
            store: takes a channel's name and value.
        """
        spent = self._state.spent()
        self._add_last(spent)
        for column, blocked in self._blocked.items():
            if column < len(spent):
                store(WAIT_PREFIX + stages[column], float(max(0, min(blocked, spent[column]))))
                self._blocked[column] = 0

    def drop_step(self) -> None:
        """Forget the waits of a step that is not recorded."""
        self._blocked = dict.fromkeys(self._blocked, 0)

    def use_other_stages(self) -> None:
        """Forget the columns, which belong to other stages from now on."""
        self._blocked.clear()

    def close(self) -> None:
        """Remove all hooks."""

    def _add_last(self, spent: Sequence[int]) -> None:
        """Add what is known only at the end of a step.

        Args:
            spent: ns of each stage in the step.
        """


class WatchedWaits(StageWaits):
    """Waits of the stages that are timed on this thread."""

    def __init__(self, state: StepState, model: Any) -> None:
        """Measure waits on this thread from now on.

        Args:
            model: wrapped as it is trained; its gradients are watched where DistributedDataParallel is in it.
        """
        super().__init__(state)
        self._thread = get_ident()
        self._own: dict[
            int, int
        ] = {}  # in the stage up to the last gradient, but for what blocked; by column
        self._exchanged: dict[int, int] = {}  # and to the end of the backward pass
        self._gradients = [
            LastGradient(part, self._gradient_is_ready, self._gradients_are_exchanged)
            for part in data_parallel_parts(model)
        ]
        COMMUNICATION.listen(self._thread, self._was_blocked)

    def drop_step(self) -> None:
        super().drop_step()
        self._own.clear()
        self._exchanged.clear()

    def close(self) -> None:
        COMMUNICATION.stop(self._thread)
        for gradients in self._gradients:
            gradients.close()
        self._gradients.clear()

    def _add_last(self, spent: Sequence[int]) -> None:
        own, self._own = self._own, {}
        exchanged, self._exchanged = self._exchanged, {}
        for column, own_ns in own.items():
            if column < len(spent):
                blocked = exchanged.get(column, spent[column]) - own_ns
                self._blocked[column] = max(self._blocked.get(column, 0), blocked)
        for gradients in self._gradients:
            gradients.end_step()

    def _open_column(self) -> int | None:
        stage = self._state.open_stage
        if stage is None or stage is self._state.outside:
            return None
        return int(stage.index) - FIRST_STAGE_COLUMN

    def _was_blocked(self, blocked: int) -> None:
        column = self._open_column()
        if column is not None:
            self.add(column, blocked)

    def _gradient_is_ready(self) -> None:
        column = self._open_column()
        if column is not None:
            # Calls may have blocked before, also within an earlier entry of the stage.
            self._own[column] = self._elapsed(column) - self._blocked.get(column, 0)

    def _gradients_are_exchanged(self) -> None:
        column = self._open_column()
        if column is not None:
            self._exchanged[column] = self._elapsed(column)

    def _elapsed(self, column: int) -> int:
        """Return ns in this step of the stage that is open, its earlier entries included."""
        stage = self._state.open_stage
        assert stage is not None
        return int(self._state.spent()[column] + self._state.clock() - stage.begin)
