"""Limits that a recorder applies to every capture request."""

from __future__ import annotations

import math
from collections import deque

from sfapp.model.capture import CaptureLimits


class CaptureBudget:
    """Counts of past captures, checked against the limits. Times are seconds of the monotonic clock."""

    def __init__(self, limits: CaptureLimits) -> None:
        self._limits = limits
        self._begin_times: deque[float] = deque()
        self._last_end = -math.inf
        self._steps = 0
        self._bytes = 0

    def refusal(self, steps: int, now: float) -> str:
        """Return why a capture of this many steps may not begin now; empty if it may."""
        limits = self._limits
        while self._begin_times and now - self._begin_times[0] > 3600:
            self._begin_times.popleft()
        if now - self._last_end < limits.cooldown_seconds:
            left = limits.cooldown_seconds - (now - self._last_end)
            return f"the previous capture ended too recently: request again in {math.ceil(left)} s"
        if len(self._begin_times) >= limits.per_hour:
            return f"the limit of {limits.per_hour} captures per hour is reached"
        if self._steps + steps > limits.total_steps:
            return f"{self._steps} of at most {limits.total_steps} steps have been profiled"
        if self._bytes >= limits.total_bytes:
            return f"traces have taken {self._bytes:,} of at most {limits.total_bytes:,} bytes"
        return ""

    def begin(self, steps: int, now: float) -> None:
        """Count a capture of this many steps that begins."""
        self._begin_times.append(now)
        self._steps += steps

    def end(self, trace_bytes: int, now: float) -> None:
        """Count the end of a capture and the size of its trace."""
        self._last_end = now
        self._bytes += trace_bytes
