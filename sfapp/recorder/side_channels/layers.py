"""Time per layer as side channels, on request only.

This is host time: on a GPU the time of launching kernels, not of running them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfapp.errors import RecorderError
from sfapp.recorder.side_channels.channels import MS
from sfapp.recorder.timing.model_hooks import ModelHook
from sfapp.recorder.timing.timers import StepState
from sfapp.recorder.wrapper import wrapper_of


def layers_of(model: Any) -> dict[str, Any]:
    """Return the layers of a model by name: its children, or their children if a child is only a list.

    Raises:
        RecorderError: the model is sharded or compiled, so that hooks on its layers would change how it runs.
    """
    import torch

    kind = wrapper_of(model)
    if kind in ("fsdp1", "fsdp2"):
        raise RecorderError(
            f"layers are not timed under {kind}: hooks on them would run between gathering and computing; "
            "time them in an unsharded run"
        )
    inside = model.module if kind == "ddp" and hasattr(model, "module") else model
    if hasattr(inside, "_orig_mod"):
        raise RecorderError("layers are not timed in a compiled model: hooks would break its graph")
    found: dict[str, Any] = {}
    for name, child in inside.named_children():
        if isinstance(child, (torch.nn.ModuleList, torch.nn.Sequential)):
            found.update({f"{name}.{place}": layer for place, layer in child.named_children()})
        else:
            found[name] = child
    return found


def channels_of(layer: str) -> tuple[str, str]:
    """Return the side channels of a layer: forward and backward, in ms."""
    return f"layer.{layer}.forward_ms", f"layer.{layer}.backward_ms"


class LayerTimes:
    """Hooks that add up each layer's time over a step."""

    def __init__(self, state: StepState, layers: Mapping[str, Any]) -> None:
        """Time these layers from now on."""
        import torch

        self._handles: list[Any] = []
        for name, layer in layers.items():
            times = _Layer(state, *channels_of(name))
            self._handles.append(layer.register_forward_pre_hook(ModelHook(times.forward_begins)))
            self._handles.append(layer.register_forward_hook(ModelHook(times.forward_ends)))
            trained = [parameter for parameter in layer.parameters() if parameter.requires_grad]
            if trained:
                hook = torch.autograd.graph.register_multi_grad_hook(trained, times.parameters_done)
                self._handles.append(hook)

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class _Layer:
    """One layer's hooks.

    Its backward pass lasts from its output's gradient to its inputs' gradients, or to its parameters' if no
    input needs one.
    """

    def __init__(self, state: StepState, forward: str, backward: str) -> None:
        self._state = state
        self._forward = forward
        self._backward = backward
        self._until_parameters = False
        self._forward_since = 0
        self._backward_since: int | None = None

    def forward_begins(self, module: Any, args: Any) -> None:
        self._forward_since = self._state.clock()

    def forward_ends(self, module: Any, args: Any, output: Any) -> None:
        state = self._state
        if not state.in_step:
            return
        side = state.side
        side[self._forward] = side.get(self._forward, 0.0) + (state.clock() - self._forward_since) * MS
        try:
            self._watch_backward(args, output)
        except Exception as error:  # fail-open
            state.on_fault("hook_failed", f"{self._backward}: {type(error).__name__}")

    def _watch_backward(self, args: Any, output: Any) -> None:
        import torch

        outputs: list[Any] = [
            value for value in _flat(output) if isinstance(value, torch.Tensor) and value.requires_grad
        ]
        if not outputs:
            return
        self._backward_since = None
        for value in outputs:
            value.register_hook(self._backward_begins)
        inputs = [value for value in _flat(args) if isinstance(value, torch.Tensor) and value.requires_grad]
        self._until_parameters = not inputs
        if inputs:
            torch.autograd.graph.register_multi_grad_hook(inputs, self._backward_ends)

    def parameters_done(self, gradients: Any) -> None:
        """End the backward pass if it ends with the parameters' gradients, which are complete now."""
        if self._until_parameters:
            self._backward_ends(gradients)

    def _backward_begins(self, gradient: Any) -> None:
        if self._backward_since is None:
            self._backward_since = self._state.clock()

    def _backward_ends(self, gradients: Any) -> None:
        state, since = self._state, self._backward_since
        if since is not None and state.in_step:
            side = state.side
            side[self._backward] = side.get(self._backward, 0.0) + (state.clock() - since) * MS
        self._backward_since = None


def _flat(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (tuple, list)) else [values]
