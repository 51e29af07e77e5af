"""Stand-ins for CUDA's events where there is no device: their times are those of the host's clock."""

from __future__ import annotations

import time


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
