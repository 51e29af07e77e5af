"""Compute the own time of spans on a time line, and unions and intersections of spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def own_time(start_E: Ints, end_E: Ints, origin_E: Ints) -> tuple[Ints, Ints]:
    """Return the time that each span adds to earlier spans, and the idle gap before it, ns.

    Args:
        start_E, end_E: spans by ascending start; an overlap belongs to the earlier span.
        origin_E: begin of each span's time line; a larger value than the previous one begins a new line.

    Returns:
        (own_E, gap_E): both non-negative; on each line they add up to its last end minus its origin.
    """
    covered_E = np.maximum(np.maximum.accumulate(np.append(origin_E[:1], end_E))[:-1], origin_E)
    gap_E = np.maximum(start_E - covered_E, 0)
    own_E = np.maximum(end_E - np.maximum(covered_E, start_E), 0)
    return own_E, gap_E


@dataclass(frozen=True, slots=True, eq=False)
class IntervalUnion:
    """Union of spans. Build it with ``IntervalUnion.of``."""

    start_M: Ints
    end_M: Ints
    before_M: Ints

    @classmethod
    def of(cls, start_E: Ints, end_E: Ints) -> IntervalUnion:
        """Build the union of spans in any order."""
        order = np.argsort(start_E, kind="stable")
        start_E, end_E = start_E[order], end_E[order]
        reach_E = np.maximum.accumulate(end_E) if len(end_E) else end_E
        opens_E = np.append(True, start_E[1:] > reach_E[:-1])[: len(start_E)]
        start_M = start_E[opens_E]
        end_M = reach_E[np.append(np.flatnonzero(opens_E)[1:] - 1, len(reach_E) - 1)[: len(start_M)]]
        return cls(start_M, end_M, np.cumsum(end_M - start_M) - (end_M - start_M))

    @classmethod
    def common(cls, inside: Sequence[IntervalUnion], outside: Sequence[IntervalUnion] = ()) -> IntervalUnion:
        """Return the time that lies in all of ``inside``, at least one, and in none of ``outside``."""
        every = (*inside, *outside)
        edge_K = np.unique(np.concatenate([edges for each in every for edges in (each.start_M, each.end_M)]))
        start_K, end_K = edge_K[:-1], edge_K[1:]
        chosen_K = np.ones(len(start_K), np.bool_)
        for each in inside:
            chosen_K &= each.covers(start_K)
        for each in outside:
            chosen_K &= ~each.covers(start_K)
        return cls.of(start_K[chosen_K], end_K[chosen_K])

    def covers(self, at_E: Ints) -> npt.NDArray[np.bool_]:
        """Return whether each of these times lies in the union; the end of a span does not."""
        if not len(self.start_M):
            return np.zeros(len(at_E), np.bool_)
        place = np.searchsorted(self.start_M, at_E, side="right") - 1
        return (place >= 0) & (at_E < self.end_M[np.maximum(place, 0)])

    def within(self, start_E: Ints, end_E: Ints) -> Ints:
        """Return how much of each of these spans the union covers, ns."""
        return self._until(end_E) - self._until(start_E)

    def _until(self, at_E: Ints) -> Ints:
        if not len(self.start_M):
            return np.zeros_like(at_E)
        place = np.searchsorted(self.start_M, at_E, side="right") - 1
        known = np.maximum(place, 0)
        inside = np.minimum(at_E, self.end_M[known]) - self.start_M[known]
        return np.where(place < 0, 0, self.before_M[known] + inside)
