"""Give the aggregator a time of day that never goes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class SteadyTime:
    """Time of day that follows the clock, and goes on steadily if the clock is set back. Safe on any thread.

    Readers take the newest sample of each rank and node: samples from before a clock was set back would hide
    all that follow until the clock has caught up.

    Args:
        wall_ns: the time of day. monotonic_ns: a clock that is never set.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._lock = threading.Lock()
        self._newest_ns, self._read_at_ns = wall_ns(), monotonic_ns()

    def ns(self) -> int:
        """Return nanoseconds since 1970."""
        with self._lock:
            now_ns = self._monotonic_ns()
            self._newest_ns = max(self._wall_ns(), self._newest_ns + now_ns - self._read_at_ns)
            self._read_at_ns = now_ns
            return self._newest_ns

    def seconds(self) -> float:
        """Return seconds since 1970."""
        return self.ns() / 1e9


AGGREGATOR_TIME = SteadyTime()
"""Time of this process: samples of the aggregator and those of ranks, moved to its clock, share one axis."""
