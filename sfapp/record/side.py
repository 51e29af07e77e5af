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

from sfapp.record.contexts import StepState

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


def cuda_events() -> tuple[Callable[[], Event] | None, str]:
    """How timing events are made on this machine, or None and why not."""
    import torch

    if not torch.cuda.is_available():
        return None, "no CUDA device"
    return lambda: torch.cuda.Event(enable_timing=True), ""


class EventSampler:
    """Two timing events round a region in a fixed fraction of the steps, the same ones on every rank.

    Nothing is ever waited for: whether an event has happened is asked at later steps, and one that has not by
    the end of its window stays sampled and not ready.
    """

    MAX_PAIRS = 64
    """Most pairs under way; beyond, nothing is sampled."""

    def __init__(self, state: StepState, fraction: float, make: Callable[[], Event]) -> None:
        """Sample ``fraction`` (0 to 1) of the steps with events from ``make``."""
        self._state = state
        self._fraction = fraction
        self._make = make
        self._free: list[tuple[Event, Event]] = []
        self._pairs = 0
        self._waiting: deque[tuple[Event, Event, Values, int]] = deque()

    def samples(self, step: int) -> bool:
        """Whether a step is sampled: evenly spread, and the same on every rank."""
        return int((step + 1) * self._fraction) > int(step * self._fraction)

    def begin(self) -> tuple[Event, Event] | None:
        """A pair whose first event has been recorded; None where too many are under way."""
        if self._free:
            pair = self._free.pop()
        elif self._pairs < self.MAX_PAIRS:
            pair = (self._make(), self._make())
            self._pairs += 1
        else:
            return None
        pair[0].record()
        return pair

    def end(self, pair: tuple[Event, Event], values: Values, row: int) -> None:
        """The region is over; its time goes into the row once it is known."""
        pair[1].record()
        self._waiting.append((*pair, values, row))

    def poll(self) -> None:
        """Take in what has happened since, without waiting."""
        while self._waiting and self._waiting[0][1].query():
            begin, end, values, row = self._waiting.popleft()
            spent = begin.elapsed_time(end)
            values[row] = spent if np.isnan(values[row]) else values[row] + spent
            self._free.append((begin, end))

    def forget(self) -> None:
        """The window is over: what is still under way goes nowhere. The events are used again."""
        self.poll()
        kept = [(begin, end) for begin, end, _, _ in self._waiting]
        self._waiting.clear()
        self._free.extend(kept)


class EventSample:
    """The context of a device event channel."""

    __slots__ = ("_name", "_pair", "_sampler", "_values_of")

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

    def __enter__(self) -> None:
        self._pair = self._sampler.begin()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        pair, self._pair = self._pair, None
        if pair is None:
            return
        values, row = self._values_of(self._name)
        if not is_sampled(values[row : row + 1].view(np.int64))[0]:
            values[row] = np.nan
        self._sampler.end(pair, values, row)
