"""The offset of another clock lies within the estimated uncertainty, for any asymmetry of the delays."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.stream.clocks import BLOCKS, JUMP_NS, ClockExchange, ClockOffsetEstimator

MS, SECOND = 10**6, 10**9
START = 1_700_000_000 * SECOND


@dataclass
class Pair:
    """Two machines: ours, whose clock is right, and another, off by so much and drifting."""

    offset_ns: float
    drift_ppm: float
    seed: int
    there_ms: float = 0.2
    back_ms: float = 0.2
    jitter_ms: float = 0.5

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def ahead(self, at_ns: int) -> float:
        """Return the other clock's offset at a time of this machine's clock."""
        return self.offset_ns + self.drift_ppm * 1e-6 * (at_ns - START)

    def ask(self, at_ns: int) -> ClockExchange:
        there, back = (
            round((least + self._random.expovariate(1 / self.jitter_ms)) * MS)
            for least in (self.there_ms, self.back_ms)
        )
        arrives, leaves = at_ns + there, at_ns + there + 30_000
        return ClockExchange(
            at_ns, round(arrives + self.ahead(arrives)), round(leaves + self.ahead(leaves)), leaves + back
        )


PAIRS = st.builds(
    Pair,
    offset_ns=st.floats(-1e11, 1e11),
    drift_ppm=st.floats(-100, 100),
    seed=st.integers(0, 2**32),
    there_ms=st.floats(0.01, 200),
    back_ms=st.floats(0.01, 200),
    jitter_ms=st.floats(0.01, 50),
)


@given(pair=PAIRS, exchanges=st.integers(1, 120), later_s=st.integers(0, 60))
def test_the_true_offset_lies_within_the_uncertainty(pair: Pair, exchanges: int, later_s: int) -> None:
    clock = ClockOffsetEstimator()
    for second in range(exchanges):
        clock.add(pair.ask(START + second * SECOND))
    moment = START + (exchanges + later_s) * SECOND
    found = clock.at(moment)
    assert found is not None
    # as floats, nanoseconds since 1970 of an offset of minutes are whole to some tens
    assert abs(found.offset_ns - pair.ahead(moment)) <= found.uncertainty_ns + 64
    assert abs(found.drift_ppm - pair.drift_ppm) <= found.drift_spread_ppm + 0.01
    assert found.jumps == 0


@given(pair=PAIRS)
def test_the_uncertainty_is_at_most_half_the_shortest_round_trip_and_drift(pair: Pair) -> None:
    clock = ClockOffsetEstimator()
    exchanges = [pair.ask(START + second * SECOND) for second in range(300)]
    for exchange in exchanges:
        clock.add(exchange)
    found = clock.at(exchanges[-1].at_ns)
    least = min(exchange.round_trip_ns for exchange in exchanges)
    assert found is not None
    assert least / 2 <= found.uncertainty_ns
    first = ClockOffsetEstimator()
    first.add(max(exchanges, key=lambda exchange: exchange.round_trip_ns))
    worst = first.at(exchanges[-1].at_ns)
    assert worst is not None
    assert found.uncertainty_ns <= worst.uncertainty_ns + least


@given(pair=PAIRS, jump_ms=st.floats(1, 10_000), back=st.booleans(), after=st.integers(1, 200))
def test_a_clock_that_is_set_is_detected_at_once(pair: Pair, jump_ms: float, back: bool, after: int) -> None:
    clock = ClockOffsetEstimator()
    for second in range(60):
        clock.add(pair.ask(START + second * SECOND))
    before = clock.at(START + 60 * SECOND)
    assert before is not None
    pair.offset_ns += (-1 if back else 1) * jump_ms * MS
    exchanges = [pair.ask(START + (60 + second) * SECOND) for second in range(after)]
    for exchange in exchanges:
        clock.add(exchange)
    # a smaller jump cannot be distinguished from a delay
    least = before.uncertainty_ns + exchanges[0].round_trip_ns * 0.502 + JUMP_NS
    if jump_ms * MS > 2 * least:
        assert clock.jumps == 1
        moment = START + (60 + after) * SECOND
        found = clock.at(moment)
        assert found is not None
        assert abs(found.offset_ns - pair.ahead(moment)) <= found.uncertainty_ns + 64


def test_minutes_on_a_good_network_give_a_precise_offset() -> None:
    pair = Pair(offset_ns=3_600 * SECOND, drift_ppm=12.5, seed=7, there_ms=0.05, back_ms=0.05, jitter_ms=0.1)
    clock = ClockOffsetEstimator()
    for second in range(300):
        clock.add(pair.ask(START + second * SECOND))
    found = clock.at(START + 300 * SECOND)
    assert found is not None
    assert abs(found.offset_ns - pair.ahead(START + 300 * SECOND)) < 0.05 * MS
    assert found.uncertainty_ns < 0.5 * MS
    assert found.drift_ppm == pytest.approx(12.5, abs=1)


def test_asymmetric_delay_biases_within_the_uncertainty() -> None:
    pair = Pair(offset_ns=0, drift_ppm=0, seed=1, there_ms=100, back_ms=0.1, jitter_ms=0.01)
    clock = ClockOffsetEstimator()
    for second in range(100):
        clock.add(pair.ask(START + second * SECOND))
    found = clock.at(START + 100 * SECOND)
    assert found is not None
    assert found.offset_ns == pytest.approx(50 * MS, rel=0.01)
    assert found.uncertainty_ns + 64 >= 50 * MS


def test_setting_this_machines_clock_back_restarts_the_estimate() -> None:
    pair = Pair(offset_ns=5 * SECOND, drift_ppm=0, seed=1)
    clock = ClockOffsetEstimator()
    for second in (*range(50, 60), *range(10)):
        clock.add(pair.ask(START + second * SECOND))
    assert clock.jumps == 1


def test_an_impossible_exchange_is_ignored() -> None:
    clock = ClockOffsetEstimator()
    clock.add(ClockExchange(START, START, START, START - 1))
    clock.add(ClockExchange(START, START + 10, START + 5, START + 20))
    clock.add(ClockExchange(START, START, START + 100, START + 10))
    assert clock.at(START) is None


def test_a_changed_rate_is_followed_without_counting_a_jump() -> None:
    pair = Pair(offset_ns=0, drift_ppm=0, seed=3, there_ms=0.05, back_ms=0.05, jitter_ms=0.05)
    clock = ClockOffsetEstimator()
    for second in range(300):
        clock.add(pair.ask(START + second * SECOND))
    pair.drift_ppm, pair.offset_ns = 20.0, -20e-6 * 300 * SECOND
    for second in range(300, 600):
        clock.add(pair.ask(START + second * SECOND))
    found = clock.at(START + 600 * SECOND)
    assert found is not None
    assert clock.jumps == 0
    assert found.drift_ppm == pytest.approx(20, abs=2)


def test_the_number_of_kept_exchanges_is_bounded() -> None:
    pair = Pair(offset_ns=0, drift_ppm=0, seed=3)
    clock = ClockOffsetEstimator()
    for minute in range(200):
        clock.add(pair.ask(START + minute * 7 * SECOND))
    assert len(clock._best) <= BLOCKS + 1
