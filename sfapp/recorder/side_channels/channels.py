"""Side channels: measured beside the ordered stages, never part of a prefix (packet.md, ``side.*``).

Values are in whatever unit a channel's name says; what the recorder times itself is in milliseconds.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sfapp.recorder.timing.timers import StepState

Values = npt.NDArray[np.float64]

MAX_CHANNELS = 24
"""Most side channels of one recorder."""

NAME = re.compile(r"[A-Za-z0-9_.:\[\]/-]{1,64}")
"""What a channel may be called: it becomes a column of the packet."""

MS = 1e-6  # milliseconds in a nanosecond

_NOT_SAMPLED = 0x7FF8_0000_0000_5AFE
"""Bits of a NaN that no arithmetic makes: nothing was asked for there. Other NaNs were asked for and are not
there yet."""


def unsampled(steps: int) -> Values:
    """A channel's values before anything was sampled."""
    return np.full(steps, _NOT_SAMPLED, dtype=np.int64).view(np.float64)


def is_sampled(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Where something was asked for, by the bits of the values."""
    return bits != _NOT_SAMPLED


class SideChannel:
    """The context of a side channel: the time inside it, added up over a step. May lie inside a stage, or
    round several; inside itself it counts once."""

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


class Event(Protocol):
    """What is used of ``torch.cuda.Event``."""

    def record(self) -> object: ...

    def query(self) -> bool: ...

    def elapsed_time(self, end: Any) -> float: ...


class Device(Protocol):
    """Where timing events come from."""

    def event(self) -> Event:
        """A new one."""

    def is_ready(self) -> bool:
        """Whether events may be recorded and asked now."""


class CudaDevice:
    """The CUDA devices of this process."""

    def __init__(self) -> None:
        import torch

        self._cuda: Any = torch.cuda

    def event(self) -> Event:
        event: Event = self._cuda.Event(enable_timing=True)
        return event

    def is_ready(self) -> bool:
        """Not before training has started CUDA, which would take memory on a device that it may not use; and
        not while a graph is captured: an event would become part of it, and asking for one would end it."""
        return bool(self._cuda.is_initialized()) and not self._cuda.is_current_stream_capturing()


def cuda_device() -> tuple[Device | None, str]:
    """Where timing events come from on this machine, or None and why not."""
    import torch

    if not torch.cuda.is_available():
        return None, "no CUDA device"
    return CudaDevice(), ""


class EventSampler:
    """Two timing events round a region in a fixed fraction of the steps, the same ones on every rank.

    Nothing is ever waited for: whether an event has happened is asked at later steps, and one that has not by
    the end of its window stays sampled and not ready. Once the device refuses, nothing more is sampled.

    Attributes:
        refused: what the device said when it refused.
    """

    MAX_PAIRS = 64
    """Most pairs under way; beyond, nothing is sampled."""

    def __init__(self, fraction: float, device: Device) -> None:
        """Sample ``fraction`` (0 to 1) of the steps with events of ``device``."""
        self.refused = ""
        self._fraction = fraction
        self._device = device
        self._free: list[tuple[Event, Event]] = []
        self._pairs = 0
        self._waiting: deque[tuple[Event, Event, Values, int]] = deque()

    def samples(self, step: int) -> bool:
        """Whether a step is sampled: evenly spread, and the same on every rank."""
        return int((step + 1) * self._fraction) > int(step * self._fraction)

    def begin(self) -> tuple[Event, Event] | None:
        """A pair whose first event has been recorded; None where too many are under way, or none may be."""
        try:
            if self.refused or not self._device.is_ready():
                return None
            if self._free:
                pair = self._free.pop()
            elif self._pairs < self.MAX_PAIRS:
                pair = (self._device.event(), self._device.event())
                self._pairs += 1
            else:
                return None
            pair[0].record()
        except Exception as error:  # fail-open: a device in trouble, or another one than the event is of
            self._refuse(error)
            return None
        return pair

    def end(self, pair: tuple[Event, Event], values: Values, row: int) -> None:
        """The region is over; its time goes into the row once it is known."""
        try:
            pair[1].record()
        except Exception as error:  # fail-open
            self._refuse(error)
            return
        self._waiting.append((*pair, values, row))

    def poll(self) -> None:
        """Take in what has happened since, without waiting."""
        try:
            if not self._waiting or not self._device.is_ready():
                return
            # The first event too: on another stream than the second, it may be the later one.
            while self._waiting and self._waiting[0][1].query() and self._waiting[0][0].query():
                begin, end, values, row = self._waiting.popleft()
                spent = begin.elapsed_time(end)
                values[row] = spent if np.isnan(values[row]) else values[row] + spent
                self._free.append((begin, end))
        except Exception as error:  # fail-open: what a failed kernel left behind is told by any call
            self._refuse(error)

    def forget(self) -> None:
        """The window is over: what is still under way goes nowhere. The events are used again."""
        self.poll()
        kept = [(begin, end) for begin, end, _, _ in self._waiting]
        self._waiting.clear()
        self._free.extend(kept)

    def _refuse(self, error: Exception) -> None:
        self.refused = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
        self._waiting.clear()
        self._free.clear()


class EventSample:
    """The context of a device event channel. Inside itself it counts once."""

    __slots__ = ("_depth", "_name", "_pair", "_sampler", "_values_of")

    def __init__(
        self, sampler: EventSampler, name: str, values_of: Callable[[str], tuple[Values, int]]
    ) -> None:
        """Of a channel.

        Args:
            values_of: a channel's values in the window under way, and the row of the step under way.
        """
        self._sampler = sampler
        self._name = name
        self._values_of = values_of
        self._pair: tuple[Event, Event] | None = None
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
