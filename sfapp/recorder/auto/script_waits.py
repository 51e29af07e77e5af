"""Measure when the main thread of an unmodified script waits for other ranks (accounting.md §15).

Once the script uses a CUDA device, its waits over NCCL are also sampled there (``device_waits``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import ReferenceType, ref

from sfapp.recorder.auto.steps import Interval
from sfapp.recorder.side_channels.channels import CudaDevice, Device, EventSampler
from sfapp.recorder.side_channels.communication import COMMUNICATION
from sfapp.recorder.side_channels.device_waits import MAX_CALLS, DeviceCalls, NumberedSteps, SampledStep
from sfapp.recorder.side_channels.last_gradient import LastGradient, data_parallel_parts

_MAX_WAITS = 1 << 14
"""Maximum number of waits kept between two optimizer steps; further ones are dropped."""


class ScriptWaits:
    """Waits since the last step, from calls of torch.distributed and from gradients."""

    def __init__(
        self, thread: int, clock: Callable[[], int], steps: NumberedSteps, event_fraction: float
    ) -> None:
        """Keep the waits of a thread, once ``listen`` is called.

        Args:
            clock: monotonic ns.
            event_fraction: fraction of ``steps`` in which waits are timed on the device.
        """
        self._thread = thread
        self._clock = clock
        self._steps = steps
        self._fraction = event_fraction
        self._waits: list[Interval] = []
        self._gradients: dict[int, tuple[ReferenceType[Any], list[LastGradient]]] = {}  # by id of the module
        self._last_gradient = 0
        self._is_listening = False
        self._device: Device | None = CudaDevice() if event_fraction else None
        self._device_calls: DeviceCalls | None = None  # None until the script uses the device

    def listen(self) -> None:
        """Time calls of torch.distributed from now on."""
        self._find_device()
        self._is_listening = True
        COMMUNICATION.listen(self, self._thread, self._was_blocked, self._device_calls)

    def watch(self, module: Any) -> None:
        """Watch the gradients of a module in which DistributedDataParallel waits; once for each module."""
        watched = self._gradients.get(id(module))
        if watched is not None and watched[0]() is module:
            return
        self._remove_dropped()
        self._find_device()
        ready, calls = self._gradient_is_ready, self._device_calls
        gradients = [
            LastGradient(part, ready if calls is None else calls.gradient_hook(part, ready))
            for part in data_parallel_parts(module)
        ]
        self._gradients[id(module)] = ref(module), gradients

    def backward_ended(self, begin: int, end: int) -> None:
        """Add the time after the last gradient of a backward pass that exchanged gradients."""
        if begin <= self._last_gradient < end:
            self._add(self._last_gradient, end)

    def take(self) -> tuple[list[Interval], SampledStep | None]:
        """Return the waits of the step that ends, in order of time, and begin the next one.

        The second value is its calls on the device, whose places are their begins in ns; None if the step is
        not sampled.
        """
        for _, parts in self._gradients.values():
            for gradients in parts:
                gradients.end_step()
        found, self._waits = self._waits, []
        if self._device_calls is not None:
            return found, self._device_calls.take()
        self._find_device()
        return found, None

    def stop(self) -> None:
        """Remove all hooks; raises nothing."""
        with suppress(Exception):  # fail-open: also called where recording ends after an error
            self._is_listening = False
            self._device_calls = None
            COMMUNICATION.stop(self, self._thread)
            for _, parts in self._gradients.values():
                for gradients in parts:
                    gradients.close()
            self._gradients.clear()
            self._waits.clear()

    def _remove_dropped(self) -> None:
        """Remove the hooks of modules that the script has dropped: another one may have the same id."""
        for key, (module, parts) in [*self._gradients.items()]:
            if module() is None:
                for gradients in parts:
                    gradients.close()
                del self._gradients[key]

    def _find_device(self) -> None:
        """Time calls on the device from now on, if the script uses it."""
        if self._device is None or self._device_calls is not None:
            return
        try:
            is_used = self._device.is_ready()
        except Exception:  # fail-open: the sampler meets the same error, and the packet reports it
            is_used = True
        if is_used:
            sampler = EventSampler(self._fraction, self._device, MAX_CALLS)
            self._device_calls = DeviceCalls(sampler, self._steps, self._clock)
            if self._is_listening:
                COMMUNICATION.listen(self, self._thread, self._was_blocked, self._device_calls)

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
