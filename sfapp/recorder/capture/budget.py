"""Limits that a recorder applies to every capture request."""

from __future__ import annotations

import math
from collections import deque

from sfapp.model.capture import CaptureLimits


class Budget:
    """What was captured, held against the limits. Times are of the monotonic clock."""

    def __init__(self, limits: CaptureLimits) -> None:
        self._limits = limits
        self._begun: deque[float] = deque()
        self._ended = -math.inf
        self._steps = 0
        self._bytes = 0

    def refusal(self, steps: int, now: float) -> str:
        """Why a capture of so many steps may not begin now; empty where it may."""
        limits = self._limits
        while self._begun and now - self._begun[0] > 3600:
            self._begun.popleft()
        if now - self._ended < limits.cooldown_seconds:
            left = limits.cooldown_seconds - (now - self._ended)
            return f"the capture before it ended too short a time ago: ask again in {math.ceil(left)} s"
        if len(self._begun) >= limits.per_hour:
            return f"{limits.per_hour} captures within an hour are the most"
        if self._steps + steps > limits.total_steps:
            return f"{self._steps} of the {limits.total_steps} steps that may be profiled have been"
        if self._bytes >= limits.total_bytes:
            return f"traces took {self._bytes:,} of the {limits.total_bytes:,} bytes that they may take"
        return ""

    def begin(self, steps: int, now: float) -> None:
        """A capture of so many steps begins."""
        self._begun.append(now)
        self._steps += steps

    def end(self, trace_bytes: int, now: float) -> None:
        """It is over, its trace took so many bytes."""
        self._ended = now
        self._bytes += trace_bytes
