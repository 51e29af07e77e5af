"""A clock that is set while a job runs: no time goes back, no rate is absurd, no newer sample is hidden."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.model.manifest import Accumulation
from sfapp.packets import window_rows
from sfapp.packets.window_rows import WindowBuffer, WindowSchema
from sfapp.stream.steady_time import SteadyTime

DAY_NS = 24 * 3600 * 10**9


class SetClock:
    """A machine's clocks: the time of day is set by ``jumps_ns`` from what it was."""

    def __init__(self) -> None:
        self.elapsed_ns = self.jumps_ns = 0

    def wall_ns(self) -> int:
        return 1_700_000_000 * 10**9 + self.elapsed_ns + self.jumps_ns

    def monotonic_ns(self) -> int:
        return self.elapsed_ns


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(-2 * DAY_NS, 2 * DAY_NS)), max_size=20))
def test_a_steady_time_never_goes_back_and_never_stands_still(turns: list[tuple[int, int]]) -> None:
    clock = SetClock()
    steady = SteadyTime(clock.wall_ns, clock.monotonic_ns)
    before = steady.ns()
    for elapsed_ns, jump_ns in turns:
        clock.elapsed_ns += elapsed_ns
        clock.jumps_ns += jump_ns
        now = steady.ns()
        assert now - before >= elapsed_ns
        assert now == max(before + elapsed_ns, clock.wall_ns())
        before = now


@pytest.mark.parametrize("jump", [timedelta(days=-1), timedelta(seconds=-1), timedelta(days=1)])
def test_a_window_lasts_as_long_as_it_took_whatever_the_clock_is_set_to(
    monkeypatch: pytest.MonkeyPatch, jump: timedelta
) -> None:
    class SetDatetime(datetime):
        """The time of day after it was set."""

        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + jump

    schema = WindowSchema.of(("data.next_wait",), Accumulation(), None)
    window = WindowBuffer.empty(schema, 0, 3)
    before = datetime.now(UTC)
    window.add(np.array([[0, 2_000_000, 1_000_000]]))
    monkeypatch.setattr(window_rows, "datetime", SetDatetime)
    window.add(np.array([[1, 2_000_000, 1_000_000]]))
    window.close("full")
    assert window.started_at is not None
    assert window.ended_at is not None
    assert before <= window.started_at <= window.ended_at
    assert window.ended_at - window.started_at <= datetime.now(UTC) - before + timedelta(milliseconds=1)
