"""When the last gradient of a DistributedDataParallel model is ready: from there to its end, backward only
waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_LEARNING_STEPS = 3
"""Steps in which every gradient is watched, to find the parameter whose gradient comes last."""


@dataclass(frozen=True, slots=True)
class DataParallelPart:
    """A module inside of DistributedDataParallel, where only the module is known and not its wrapper."""

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
    """Hooks that report gradients as they are ready; the last report of a step is the one that counts.

    Every gradient is watched for a few steps, then only the one that came last most often: one hook a step.
    """

    def __init__(
        self, model: Any, ready: Callable[[], None], exchanged: Callable[[], None] | None = None
    ) -> None:
        """Watch a model's gradients from now on.

        Args:
            ready: called on the thread that computes a gradient, once it is accumulated.
            exchanged: called when the backward pass ends, after gradients were exchanged.
        """
        self._last = -1
        self._counts: Counter[int] = Counter()
        self._handles: dict[int, Any] = {}
        for place, parameter in enumerate(model.parameters()):
            if parameter.requires_grad:
                hook = self._hook_of(place, ready, exchanged)
                self._handles[place] = parameter.register_post_accumulate_grad_hook(hook)

    def _hook_of(
        self, place: int, ready: Callable[[], None], exchanged: Callable[[], None] | None
    ) -> Callable[[Any], None]:
        import torch

        engine: Any = torch.autograd.Variable._execution_engine

        def hook(_: Any) -> None:
            self._last = place
            ready()
            if exchanged is not None:
                # DistributedDataParallel ends the exchange in a callback of its own, queued after this one.
                engine.queue_callback(lambda: engine.queue_callback(exchanged))

        return hook

    def end_step(self) -> None:
        """End a step: after a few of them, watch only the parameter whose gradient came last."""
        last, self._last = self._last, -1
        if last < 0 or len(self._handles) < 2:
            return
        self._counts[last] += 1
        if self._counts.total() == _LEARNING_STEPS:
            ((chosen, _),) = self._counts.most_common(1)
            for place in [place for place in self._handles if place != chosen]:
                self._handles.pop(place).remove()

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()
