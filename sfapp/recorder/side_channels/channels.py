"""Side channels: measured in addition to the ordered stages, in no prefix (packet.md, ``side.*``).

A channel's name states its unit; times measured by the recorder are in milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, MutableSequence
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from sfapp.packets.window_rows import Values, is_sampled
from sfapp.recorder.timing.timers import StepState

MS = 1e-6  # Milliseconds in a nanosecond.


class RecordedChannel:
    """The context of a side channel, which adds up the time within it over a step.

    It may lie within a stage or span several. If it is nested in itself, the time counts once.
    """

    __slots__ = ("_begin", "_depth", "_name", "_state")

    def __init__(self, state: StepState, name: str) -> None:
        self._state = state
        self._name = name
        self._begin = self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._begin = self._state.clock()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        state = self._state
        self._depth -= 1
        if not self._depth and state.in_step:
            side = state.side
            side[self._name] = side.get(self._name, 0.0) + (state.clock() - self._begin) * MS


class DeviceEvent(Protocol):
    """The used part of ``torch.cuda.Event``."""

    def record(self) -> object: ...

    def query(self) -> bool: ...

    def elapsed_time(self, end: Any) -> float: ...


class Device(Protocol):
    """Source of timing events."""

    def event(self) -> DeviceEvent:
        """Return a new event."""

    def is_ready(self) -> bool:
        """Return whether events may be recorded and queried now."""


class CudaDevice:
    """The CUDA devices of this process."""

    def __init__(self) -> None:
        import torch

        self._cuda: Any = torch.cuda

    def event(self) -> DeviceEvent:
        event: DeviceEvent = self._cuda.Event(enable_timing=True)
        return event

    def is_ready(self) -> bool:
        """Return whether training has initialised CUDA and captures no graph.

        Initialising CUDA here would use memory on a device that training may not use. While a graph is
        captured, an event would become part of it, and a query would end the capture.
        """
        return bool(self._cuda.is_initialized()) and not self._cuda.is_current_stream_capturing()


def cuda_device() -> tuple[Device | None, str]:
    """Return the source of timing events on this machine, or None and the reason."""
    import torch

    if not torch.cuda.is_available():
        return None, "no CUDA device"
    return CudaDevice(), ""


class EventSampler:
    """Sampler that times a region with two device events in a fixed fraction of the steps, the same on every
    rank.

    Nothing waits for the device: events are queried at later steps. An event that has not happened by the end
    of its window remains sampled and not ready. After an error of the device, sampling ends.

    Attributes:
        fraction: fraction of the steps that are sampled.
        error: the device's error; empty while there is none.
        ended_pairs: number of pairs that were ended so far.
    """

    MAX_PAIRS = 64
    """Default maximum number of pairs in use; beyond it, nothing is sampled."""

    def __init__(self, fraction: float, device: Device, max_pairs: int = MAX_PAIRS) -> None:
        """Sample ``fraction`` (0 to 1) of the steps with events of ``device``."""
        self.error = ""
        self.ended_pairs = 0
        self._max_pairs = max_pairs
        self.fraction = fraction
        self._device = device
        self._free: list[tuple[DeviceEvent, DeviceEvent]] = []
        self._pairs = 0
        self._waiting: deque[tuple[DeviceEvent, DeviceEvent, MutableSequence[float] | Values, int]] = deque()

    def samples(self, step: int) -> bool:
        """Return whether a step is sampled: evenly spread, and the same on every rank."""
        return int((step + 1) * self.fraction) > int(step * self.fraction)

    def next_sample(self, step: int) -> int:
        """Return the number of the first step from this one on that is sampled; the fraction is above 0."""
        found = max(step, int((int(step * self.fraction) + 1) / self.fraction) - 2)
        while not self.samples(found):
            found += 1
        return found

    def begin(self) -> tuple[DeviceEvent, DeviceEvent] | None:
        """Record and return a pair's first event; None if too many are in use, or none may be recorded."""
        try:
            if self.error or not self._device.is_ready():
                return None
            if not self._free and self._pairs == self._max_pairs:
                self.poll()
            if self._free:
                pair = self._free.pop()
            elif self._pairs < self._max_pairs:
                pair = (self._device.event(), self._device.event())
                self._pairs += 1
            else:
                return None
            pair[0].record()
        except Exception as error:  # fail-open: the device failed, or the event belongs to another one
            self._note_error(error)
            return None
        return pair

    def end(
        self, pair: tuple[DeviceEvent, DeviceEvent], values: MutableSequence[float] | Values, row: int
    ) -> None:
        """Record a pair's second event; the time goes into the row once it is known."""
        try:
            pair[1].record()
        except Exception as error:  # fail-open
            self._note_error(error)
            return
        self.ended_pairs += 1
        self._waiting.append((*pair, values, row))

    def begin_again(self, pair: tuple[DeviceEvent, DeviceEvent]) -> None:
        """Record the first event of an open pair again; the last time counts."""
        try:
            if not self.error and self._device.is_ready():
                pair[0].record()
        except Exception as error:  # fail-open
            self._note_error(error)

    def give_back(self, pair: tuple[DeviceEvent, DeviceEvent]) -> None:
        """Discard a pair that will not be ended."""
        if not self.error:
            self._free.append(pair)

    @property
    def waiting_pairs(self) -> int:
        """Number of ended pairs whose time is not known yet."""
        return len(self._waiting)

    def poll(self) -> None:
        """Store the times of events that have happened, without waiting."""
        try:
            if not self._waiting or not self._device.is_ready():
                return
            # Both events are queried: on different streams the first may be the later one.
            while self._waiting and self._waiting[0][1].query() and self._waiting[0][0].query():
                begin, end, values, row = self._waiting.popleft()
                spent = begin.elapsed_time(end)
                values[row] = spent if np.isnan(values[row]) else values[row] + spent
                self._free.append((begin, end))
        except Exception as error:  # fail-open: any call reports the error of an earlier kernel
            self._note_error(error)

    def drop(self, ended: int | None = None) -> None:
        """End the window: pairs still in use are not stored, and their events are reused.

        Args:
            ended: number of pairs, in the order in which they were ended, that belong to the window; None for
                all.
        """
        self.poll()
        ended = self.ended_pairs if ended is None else ended
        while self._waiting and self.ended_pairs - len(self._waiting) < ended:
            begin, end, _, _ = self._waiting.popleft()
            self._free.append((begin, end))

    def _note_error(self, error: Exception) -> None:
        self.error = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
        self._waiting.clear()
        self._free.clear()


class EventSample:
    """The context of a device event channel. If it is nested in itself, the time counts once."""

    __slots__ = ("_depth", "_name", "_pair", "_sampler", "_values_of")

    def __init__(
        self, sampler: EventSampler, name: str, values_of: Callable[[str], tuple[Values, int]]
    ) -> None:
        """Create the context of a channel.

        Args:
            values_of: returns a channel's values in the current window, and the row of the current step.
        """
        self._sampler = sampler
        self._name = name
        self._values_of = values_of
        self._pair: tuple[DeviceEvent, DeviceEvent] | None = None
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._pair = self._sampler.begin()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth or self._pair is None:
            return
        pair, self._pair = self._pair, None
        values, row = self._values_of(self._name)
        if not is_sampled(values[row : row + 1].view(np.int64))[0]:
            values[row] = np.nan
        self._sampler.end(pair, values, row)
