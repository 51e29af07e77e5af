"""Estimate the offset of another machine's clock from message exchanges. Reads no clock itself.

The offset only places data of several nodes on one time axis; durations come from one clock each, and the
accounting does not use it.

An exchange with round trip δ bounds the offset to θ ± δ/2, however the delay is split between the two
directions (Cristian 1989; NTP's RFC 5905 §8). The fastest exchange of every ten seconds is kept, and a line
through these, with the median of all slopes (Theil–Sen), gives offset and drift. The bounds of the single
exchanges bound the error of the line: these are hard bounds, not confidence intervals. An exchange that lies
outside both bounds therefore shows that a clock was set or changed its rate.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import combinations
from statistics import median

BLOCK_NS = 10 * 10**9
BLOCKS = 30
"""Five minutes: long enough to measure drift, short enough for a constant drift, which depends on
temperature."""

MAX_DRIFT = 500e-6
"""Largest drift between two clocks that NTP controls."""

JUMP_NS = 10**6
"""Deviation from the estimate above which a clock was set; a smaller one means that its rate changed."""

_SLACK = 1.0 + 2 * MAX_DRIFT  # the clocks drift during the exchange


@dataclass(frozen=True, slots=True)
class ClockExchange:
    """Times of one request and its answer, ns.

    Attributes:
        sent_ns, returned_ns: by this machine's clock. received_ns, replied_ns: by the other clock.
    """

    sent_ns: int
    received_ns: int
    replied_ns: int
    returned_ns: int

    @property
    def round_trip_ns(self) -> int:
        """δ = (t3 − t0) − (t2 − t1): time that request and answer spent in transit."""
        return (self.returned_ns - self.sent_ns) - (self.replied_ns - self.received_ns)

    @property
    def offset_ns(self) -> float:
        """θ = ((t1 − t0) + (t2 − t3)) / 2: the offset from this machine's time to the other's."""
        return ((self.received_ns - self.sent_ns) + (self.replied_ns - self.returned_ns)) / 2

    @property
    def at_ns(self) -> int:
        """Midpoint of the exchange by this machine's clock."""
        return (self.sent_ns + self.returned_ns) // 2

    @property
    def is_possible(self) -> bool:
        """Whether neither clock was set back during the exchange."""
        return (
            self.returned_ns >= self.sent_ns
            and self.replied_ns >= self.received_ns
            and self.round_trip_ns >= 0
        )


@dataclass(frozen=True, slots=True)
class OffsetEstimate:
    """Estimated offset of the other clock at one time.

    Attributes:
        at_ns: the time, by this machine's clock.
        offset_ns: offset from this machine's time to the other's.
        uncertainty_ns: largest error of the offset, unless a clock is set.
        drift_ppm: by how much the other clock is faster, in parts per million; drift_spread_ppm: its largest
            error.
        jumps: number of times that a clock was set.
    """

    at_ns: int
    offset_ns: float
    uncertainty_ns: float
    drift_ppm: float
    drift_spread_ppm: float
    jumps: int


@dataclass(frozen=True, slots=True)
class _Line:
    """Offset over this machine's time, ``level_ns + slope · (t − origin_ns)``, with bounds of its error.

    Attributes:
        bounds: (time, largest error at that time), one per kept exchange.
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
        """Return the largest error: the bound at a kept exchange plus the slope's error since then."""
        return min(bound + self.slope_error * abs(at_ns - when) for when, bound in self.bounds)


class ClockOffsetEstimator:
    """Estimator of the offset of one other clock, from at most 31 kept exchanges."""

    def __init__(self) -> None:
        self._best: deque[ClockExchange] = deque(maxlen=BLOCKS + 1)
        self._line: _Line | None = None
        self._newest_ns = 0
        self.jumps = 0

    def add(self, exchange: ClockExchange) -> None:
        """Add an exchange, unless a clock was set back during it. Exchanges are added in the order of this
        machine's clock."""
        if not exchange.is_possible:
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
        """Return the offset at a time of this machine's clock; None before the first exchange."""
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
        """Return whether the exchange contradicts the line; count a jump if a clock was set."""
        deviation = abs(exchange.offset_ns - line.offset(exchange.at_ns))
        excess = deviation - exchange.round_trip_ns / 2 * _SLACK - line.uncertainty(exchange.at_ns)
        went_back = exchange.at_ns < self._newest_ns
        if excess > JUMP_NS or went_back:
            self.jumps += 1
        return excess > 1 or went_back


def _block(exchange: ClockExchange) -> int:
    return exchange.at_ns // BLOCK_NS


def fit(exchanges: tuple[ClockExchange, ...]) -> _Line:
    """Fit a line to the offsets of one or more exchanges at different times."""
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
