"""How far another machine's clock is from ours, from questions and answers. Reads no clock itself.

Only for laying what several nodes say on one time axis; durations are of one clock each, and the accounting
never looks here.

One exchange with round trip δ says that the offset is θ give or take δ/2, however unevenly the delay is
shared between the two ways (Cristian 1989; NTP's RFC 5905 §8). The quickest exchange of every ten seconds is
kept, and a line through these, by the median of all slopes (Theil–Sen), is offset and drift. What the bounds
of single exchanges say of the line's error is its uncertainty: they hold, they are not confidence intervals.
So an exchange that lies outside both bounds shows that a clock was set, or that its rate is another now.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import combinations
from statistics import median

BLOCK_NS = 10 * 10**9
BLOCKS = 30
"""Five minutes: long enough for the drift, short enough for it to be one number (crystals follow their
temperature)."""

MAX_DRIFT = 500e-6
"""No clock that is kept by NTP is faster or slower than this against another one by more."""

JUMP_NS = 10**6
"""A clock that is off what was foretold by more was set; by less, its rate has changed."""

_SLACK = 1.0 + 2 * MAX_DRIFT  # the clocks drift while the question travels


@dataclass(frozen=True, slots=True)
class ClockExchange:
    """One question and its answer, each ns of the clock of who stamps it.

    Attributes:
        sent_ns, returned_ns: our clock. received_ns, replied_ns: the other's.
    """

    sent_ns: int
    received_ns: int
    replied_ns: int
    returned_ns: int

    @property
    def round_trip_ns(self) -> int:
        """δ = (t3 − t0) − (t2 − t1): how long question and answer travelled."""
        return (self.returned_ns - self.sent_ns) - (self.replied_ns - self.received_ns)

    @property
    def offset_ns(self) -> float:
        """θ = ((t1 − t0) + (t2 − t3)) / 2: what to add to our time to have the other's."""
        return ((self.received_ns - self.sent_ns) + (self.replied_ns - self.returned_ns)) / 2

    @property
    def at_ns(self) -> int:
        """The middle of it, by our clock."""
        return (self.sent_ns + self.returned_ns) // 2

    @property
    def is_possible(self) -> bool:
        """Whether neither clock was set back meanwhile."""
        return (
            self.returned_ns >= self.sent_ns
            and self.replied_ns >= self.received_ns
            and self.round_trip_ns >= 0
        )


@dataclass(frozen=True, slots=True)
class OffsetEstimate:
    """How far the other clock is ahead of ours at one moment.

    Attributes:
        at_ns: the moment, by our clock.
        offset_ns: what to add to our time to have the other's.
        uncertainty_ns: by how much that may be wrong, as long as no clock is set.
        drift_ppm: how much faster the other clock is, in millionths; drift_spread_ppm: give or take.
        jumps: how often a clock was seen to be set.
    """

    at_ns: int
    offset_ns: float
    uncertainty_ns: float
    drift_ppm: float
    drift_spread_ppm: float
    jumps: int


@dataclass(frozen=True, slots=True)
class _Line:
    """Offset over our time: ``level_ns + slope · (t − origin_ns)``, with what bounds its error.

    Attributes:
        bounds: (our time, largest error there), one a kept exchange.
        slope_error: largest error of the slope.
    """

    origin_ns: int
    level_ns: float
    slope: float
    slope_error: float
    bounds: tuple[tuple[int, float], ...]

    def offset(self, at_ns: int) -> float:
        return self.level_ns + self.slope * (at_ns - self.origin_ns)

    def uncertainty(self, at_ns: int) -> float:
        """The error is a line itself: known at some moments, it grows from there by the slope's."""
        return min(bound + self.slope_error * abs(at_ns - when) for when, bound in self.bounds)


class ClockOffsetEstimator:
    """What is known of one other clock; exchanges in, offsets out. Bounded: 31 exchanges are kept."""

    def __init__(self) -> None:
        self._best: deque[ClockExchange] = deque(maxlen=BLOCKS + 1)
        self._line: _Line | None = None
        self._newest_ns = 0
        self.jumps = 0
        self.impossible = 0
        """Exchanges that cannot have been: a clock was set back between question and answer."""

    def add(self, exchange: ClockExchange) -> None:
        """Take an exchange into account; in the order of our clock."""
        if not exchange.is_possible:
            self.impossible += 1
            return
        if self._line is not None and self._contradicts(exchange, self._line):
            self._best.clear()
        self._newest_ns = exchange.at_ns
        if self._best and _block(self._best[-1]) == _block(exchange):
            if exchange.round_trip_ns <= self._best[-1].round_trip_ns:
                self._best[-1] = exchange
        else:
            self._best.append(exchange)
        while _block(exchange) - _block(self._best[0]) > BLOCKS:
            self._best.popleft()
        self._line = fit(tuple(self._best))

    def at(self, at_ns: int) -> OffsetEstimate | None:
        """The offset at a moment of our clock; None before the first exchange."""
        line = self._line
        if line is None:
            return None
        return OffsetEstimate(
            at_ns=at_ns,
            offset_ns=line.offset(at_ns),
            uncertainty_ns=line.uncertainty(at_ns),
            drift_ppm=line.slope * 1e6,
            drift_spread_ppm=line.slope_error * 1e6,
            jumps=self.jumps,
        )

    def _contradicts(self, exchange: ClockExchange, line: _Line) -> bool:
        """Whether what was known up to now cannot hold any more; counts the jump if it is one."""
        off = abs(exchange.offset_ns - line.offset(exchange.at_ns))
        beyond = off - exchange.round_trip_ns / 2 * _SLACK - line.uncertainty(exchange.at_ns)
        went_back = exchange.at_ns < self._newest_ns
        if beyond > JUMP_NS or went_back:
            self.jumps += 1
        return beyond > 1 or went_back


def _block(exchange: ClockExchange) -> int:
    return exchange.at_ns // BLOCK_NS


def fit(exchanges: tuple[ClockExchange, ...]) -> _Line:
    """The line through the offsets of these exchanges; at least one, at moments that differ."""
    origin_ns = exchanges[-1].at_ns
    points = [(exchange.at_ns - origin_ns, exchange.offset_ns) for exchange in exchanges]
    slopes = [(after - before) / (late - early) for (early, before), (late, after) in combinations(points, 2)]
    slope = min(max(median(slopes), -MAX_DRIFT), MAX_DRIFT) if slopes else 0.0
    level_ns = median(value - slope * when for when, value in points)
    bounds = tuple(
        (
            exchange.at_ns,
            abs(value - level_ns - slope * when) + exchange.round_trip_ns / 2 * _SLACK + 1,  # 1: rounding
        )
        for exchange, (when, value) in zip(exchanges, points, strict=True)
    )
    slope_error = min(
        ((one + other) / (late - early) for (early, one), (late, other) in combinations(bounds, 2)),
        default=MAX_DRIFT,
    )
    return _Line(origin_ns, level_ns, slope, min(slope_error, MAX_DRIFT + abs(slope)), bounds)
