"""Detect when the last gradient of a DistributedDataParallel model is ready: from then to its end, backward
only waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import ReferenceType, ref

_LEARNING_STEPS = 3
"""Number of steps in which every gradient is watched, to find the parameter whose gradient comes last."""


@dataclass(frozen=True, slots=True)
class DataParallelPart:
    """A module inside DistributedDataParallel, if only the module is known and not its wrapper."""

    module: Any


def data_parallel_parts(model: Any) -> list[Any]:
    """Return the DistributedDataParallel modules in a model, itself included."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    if isinstance(model, DataParallelPart):
        return [model.module]
    if not isinstance(model, torch.nn.Module):
        return []
    return [part for part in model.modules() if isinstance(part, DistributedDataParallel)]


class LastGradient:
    """Hooks that report gradients when they are ready; the last report of a step counts.

    Every gradient is watched for a few steps, then only the one that most often came last, with one hook per
    step.
    """

    def __init__(self, model: Any, ready: Callable[[Any], None]) -> None:
        """Watch a model's gradients from now on.

        Args:
            ready: called with a parameter once its gradient is accumulated, on the thread that computes it.
        """
        self._ready = ready
        self._last = -1
        self._counts: Counter[int] = Counter()
        self._handles: dict[int, Any] = {}
        # Weak, because training may drop the model before its last gradient is known.
        self._parameters: dict[int, ReferenceType[Any]] = {}
        for place, parameter in enumerate(model.parameters()):
            if parameter.requires_grad:
                self._parameters[place] = ref(parameter)
                self._handles[place] = parameter.register_post_accumulate_grad_hook(self._hook_of(place))

    def _hook_of(self, place: int) -> Callable[[Any], None]:
        def hook(parameter: Any) -> None:
            self._last = place
            self._ready(parameter)

        return hook

    @property
    def is_learning(self) -> bool:
        """Whether ``end_step`` must be called because the last gradient is not known yet."""
        return bool(self._parameters)

    def end_step(self) -> None:
        """End a step: after a few of them, watch only the parameter whose gradient came last."""
        last, self._last = self._last, -1
        if last < 0 or not self._parameters:
            return
        self._counts[last] += 1
        if self._counts.total() == _LEARNING_STEPS:
            ((chosen, _),) = self._counts.most_common(1)
            parameter = self._parameters[chosen]()
            self.close()
            if parameter is not None:
                self._handles[chosen] = parameter.register_post_accumulate_grad_hook(self._ready)

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()
        self._parameters.clear()
