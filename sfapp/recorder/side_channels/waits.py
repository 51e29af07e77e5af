"""How long this rank waits for others within each stage (accounting.md §15), only where asked for.

Two sources, whichever a stage has: time blocked in calls of torch.distributed; and, where
DistributedDataParallel exchanges gradients inside C++, the time from the last gradient until the stage ends.
Both are host time: with NCCL most waiting is on the device and shows in the stage that synchronises with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

from sfapp.packets.packet_layout import WAIT_PREFIX
from sfapp.packets.window_rows import FIRST_STAGE_COLUMN
from sfapp.recorder.side_channels.communication import COMMUNICATION
from sfapp.recorder.timing.timers import StepState

_LEARNING_STEPS = 3
"""Steps in which every gradient is watched, to find the parameter whose gradient comes last."""


class StageWaits:
    """Waits of the current step by stage column.

    A column appears once something was waited for in it and then in every step, 0 where nothing was.
    """

    def __init__(self, state: StepState, model: Any) -> None:
        """Measure waits on this thread from now on.

        Args:
            model: wrapped as it is trained; its gradients are watched where DistributedDataParallel is in it.
        """
        self._state = state
        self._thread = get_ident()
        self._blocked: dict[int, int] = {}
        self._gradients = [_LastGradient(state, part) for part in _data_parallel_parts(model)]
        COMMUNICATION.listen(self._thread, self._add)

    def finish_step(self, stages: Sequence[str], store: Callable[[str, float], None]) -> None:
        """Store the waits of the step that ends, ns.

        Args:
            stages: as recorded, in the order of their columns.
            store: takes a channel's name and value.
        """
        spent = self._state.spent()
        for gradients in self._gradients:
            for column, own in gradients.take().items():
                if column < len(spent) and own <= spent[column]:
                    self._blocked[column] = max(self._blocked.get(column, 0), spent[column] - own)
        for column, blocked in self._blocked.items():
            if column < len(spent):
                store(WAIT_PREFIX + stages[column], float(min(blocked, spent[column])))
                self._blocked[column] = 0

    def drop_step(self) -> None:
        """Forget the waits of a step that is not recorded."""
        self._blocked = dict.fromkeys(self._blocked, 0)

    def use_other_stages(self) -> None:
        """Forget the columns, which belong to other stages from now on."""
        self._blocked.clear()

    def close(self) -> None:
        """Remove all hooks."""
        COMMUNICATION.stop(self._thread)
        for gradients in self._gradients:
            gradients.close()
        self._gradients.clear()

    def _add(self, blocked: int) -> None:
        stage = self._state.open_stage
        if stage is not None and stage is not self._state.outside:
            column = stage.index - FIRST_STAGE_COLUMN
            self._blocked[column] = self._blocked.get(column, 0) + blocked


def _data_parallel_parts(model: Any) -> list[Any]:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    if not isinstance(model, torch.nn.Module):
        return []
    return [part for part in model.modules() if isinstance(part, DistributedDataParallel)]


class _LastGradient:
    """When a model's last gradient of a step was ready.

    Every gradient is watched for a few steps, then only the one that came last most often: one hook a step.
    """

    def __init__(self, state: StepState, model: Any) -> None:
        self._state = state
        self._own: dict[int, int] = {}
        self._last = -1
        self._counts: Counter[int] = Counter()
        self._steps = 0
        self._handles: dict[int, Any] = {}
        for place, parameter in enumerate(model.parameters()):
            if parameter.requires_grad:
                hook = self._hook_of(place)
                self._handles[place] = parameter.register_post_accumulate_grad_hook(hook)

    def _hook_of(self, place: int) -> Callable[[Any], None]:
        def ready(_: Any) -> None:
            state = self._state
            stage = state.open_stage
            if stage is None or stage is state.outside:
                return
            self._own[stage.index - FIRST_STAGE_COLUMN] = state.clock() - stage.begin
            self._last = place

        return ready

    def take(self) -> dict[int, int]:
        """Return by column the own time of the stages in which gradients came, ns; begins the next step."""
        found, self._own = self._own, {}
        if self._last >= 0 and len(self._handles) > 1:
            self._counts[self._last] += 1
            self._steps += 1
            if self._steps == _LEARNING_STEPS:
                (chosen, _), *_ = self._counts.most_common(1)
                for place in [place for place in self._handles if place != chosen]:
                    self._handles.pop(place).remove()
        self._last = -1
        return found

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()
