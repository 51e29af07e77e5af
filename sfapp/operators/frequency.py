"""Count one operator over time and ranks: gaps and degraded bands (KAIR §III-B, Option).

Suffixes: R ranks, T time windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.model import Operators

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

EXPECTED = 5
"""Occurrences that a window should hold: with fewer, an occurrence that crosses a border of the window could
halve the count although nothing is wrong."""

DEGRADED = 0.5
"""Share of the usual count up to which a window is degraded."""

MAX_WINDOWS = 1_000
"""Largest number of windows, more than a screen can show."""


@dataclass(frozen=True, slots=True)
class Band:
    """Consecutive time windows in which an operator is missing or rarer than usual.

    Attributes:
        rank: the rank that differs from the others, None if all ranks fall behind their usual count.
        start_ns, end_ns: on the time axis of the events.
        is_gap: whether there is no occurrence at all.
        found, expected: number of occurrences in the band, and the expected number.
    """

    rank: int | None
    start_ns: int
    end_ns: int
    is_gap: bool
    found: int
    expected: float


@dataclass(frozen=True, slots=True, eq=False)
class Frequency:
    """Occurrences of one operator over time.

    Attributes:
        ranks: the R ranks that run it.
        start_ns: begin of the first time window; window_ns: their length; why: how the length was chosen.
        count_RT: int64 [R, T], occurrences that began in each time window.
        usual_T: float64 [T], median over ranks.
        bands: gaps and degraded bands, in order of time.
    """

    name: str
    ranks: tuple[int, ...]
    start_ns: int
    window_ns: int
    why: str
    count_RT: Ints
    usual_T: Floats
    bands: tuple[Band, ...]


def frequency(operators: Operators, name: str, window_ns: int | None = None) -> Frequency:
    """Count one operator over the time of all events. An operator that never occurs has no ranks.

    Args:
        window_ns: length of the time windows; None chooses the shortest that holds five occurrences of a
            rank.
    """
    code = operators.names.index(name) if name in operators.names else -1
    own = operators.select(operators.name_E == code)
    begin = int(operators.start_ns_E.min(initial=np.iinfo(np.int64).max)) if len(operators) else 0
    span = int(operators.end_ns_E.max(initial=begin)) - begin + 1 if len(operators) else 1
    ranks = own.ranks
    usual = max(len(own) / max(len(ranks), 1), 1.0)
    finest = -(-span // MAX_WINDOWS)
    length, why = (window_ns, "as requested") if window_ns else (int(np.ceil(span * EXPECTED / usual)), "")
    if length < finest:
        length, why = finest, f"the whole time in {MAX_WINDOWS:,} windows, the most that are kept"
    why = why or f"the shortest that holds {EXPECTED} occurrences of a rank"
    windows = -(-span // length)
    row = np.searchsorted(np.asarray(ranks, np.int64), own.rank_E)
    window = (own.start_ns_E - begin) // length
    flat = np.bincount(row * windows + window, minlength=len(ranks) * windows)
    count_RT = flat.reshape(len(ranks), windows).astype(np.int64)
    usual_T = np.median(count_RT, axis=0) if ranks else np.zeros(windows)
    bands = _bands(count_RT, usual_T, ranks, begin, length) if ranks else []
    return Frequency(name, ranks, begin, length, why, count_RT, usual_T, tuple(bands))


def busiest(operators: Operators, limit: int = 100) -> tuple[str, ...]:
    """Return the operators with the largest total time over all ranks, largest first."""
    spent = np.bincount(operators.name_E, operators.duration_ns_E, len(operators.names))
    order = np.argsort(-spent, kind="stable")[:limit]
    return tuple(operators.names[place] for place in order.tolist())


def _bands(count_RT: Ints, usual_T: Floats, ranks: tuple[int, ...], begin: int, length: int) -> list[Band]:
    """Compare each rank with the others' median, and that median with its own median over time.

    The last window is cut short by the end of the events, so it is only compared between ranks.
    """
    rows: list[tuple[int | None, Floats, Floats]] = [
        (rank, row.astype(np.float64), usual_T) for rank, row in zip(ranks, count_RT, strict=True)
    ]
    if len(usual_T) > 1:
        whole = np.r_[np.full(len(usual_T) - 1, np.median(usual_T[:-1])), 0.0]
        rows.append((None, usual_T, whole))
    found = []
    for rank, count, expected in rows:
        low = (expected >= EXPECTED) & (count <= DEGRADED * expected)
        for first, last in _runs(low):
            occurred = int(count[first:last].sum())
            found.append(
                Band(
                    rank=rank,
                    start_ns=begin + first * length,
                    end_ns=begin + last * length,
                    is_gap=occurred == 0,
                    found=occurred,
                    expected=float(expected[first:last].sum()),
                )
            )
    return sorted(found, key=lambda band: (band.start_ns, band.rank is None, band.rank or 0))


def _runs(low: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the first and past-the-last position of each run of true values."""
    edges = np.flatnonzero(np.diff(np.r_[False, low, False].astype(np.int8)))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]
