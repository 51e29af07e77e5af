"""Stand-ins for CUDA's events where there is no device, and for what holds up a device's stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel


class HostEvent:
    """A stand-in for ``torch.cuda.Event`` on a device that does everything at once."""

    def __init__(self) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: HostEvent) -> float:
        return (end.at - self.at) * 1e3


class HostDevice:
    """A source of such events."""

    def event(self) -> HostEvent:
        return HostEvent()

    def is_ready(self) -> bool:
        return True


class Event:
    """A stand-in for ``torch.cuda.Event`` that the test completes, at the time of a clock in ms."""

    now = 0.0

    def __init__(self) -> None:
        self.at, self.happened = 0.0, False

    def record(self) -> None:
        self.at, self.happened = Event.now, False

    def query(self) -> bool:
        return self.happened

    def elapsed_time(self, end: Event) -> float:
        return end.at - self.at


class DeviceStandIn:
    """A stand-in for a CUDA device, which can be busy with a graph, or broken."""

    def __init__(self) -> None:
        self.capturing, self.broken = False, False

    def event(self) -> Event:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return Event()

    def is_ready(self) -> bool:
        return not self.capturing


class PromptEvent(Event):
    """An event that has happened as soon as it is recorded."""

    def query(self) -> bool:
        return True


class PromptDevice(DeviceStandIn):
    """A stand-in for a CUDA device on which every event has happened."""

    def event(self) -> Event:
        super().event()
        return PromptEvent()


class Held:
    """An object that holds up the stream while a collective takes it."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def __reduce__(self) -> tuple[Any, ...]:
        Event.now += self.ms
        return float, (self.ms,)


def collective(ms: float, **options: Any) -> Callable[[], None]:
    """Return a collective that holds up the stream for so long."""
    return lambda: dist.broadcast_object_list([Held(ms)], **options)


class Gradient(torch.autograd.Function):
    """Identity whose gradient takes 30 ms of the stream to compute."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        Event.now += 30.0
        return gradients[0]


slow_gradient: Callable[[torch.Tensor], torch.Tensor] = Gradient.apply


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = slow_gradient(layer(x))
        return x


def data_parallel() -> DistributedDataParallel:
    """Return a model for whose buckets the stream waits 4 ms at the end of a backward pass."""
    model = DistributedDataParallel(Layers())

    def reduce(state: None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()

        def arrive() -> None:
            Event.now += 4.0
            future.set_result(bucket.buffer())

        threading.Timer(0.005, arrive).start()
        return future

    # As objects: the reducer does not take them as text.
    reduce.__annotations__ |= {
        "bucket": GradBucket,
        "return": torch.futures.Future[torch.Tensor],
    }
    model.register_comm_hook(None, reduce)
    return model
