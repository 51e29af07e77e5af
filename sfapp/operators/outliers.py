"""Find abnormal operators by start and duration against their cohort: stage 2 (KAIR §III-B)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.model import CATEGORIES, Operators
from sfapp.operators.cohorts import THRESHOLD, Cohorts, Deviation, Score, cohorts_of, deviation

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FEWEST_FOR_Z = 11
"""Smallest number of ranks R for which (R - 1)/√R, the largest z-score of one outlier, exceeds 3."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """One abnormal event.

    Attributes:
        event: position among the operators.
        late_ns, longer_ns: start and duration minus the cohort's centre; negative means early or shorter.
        start_score, duration_score: the same in units of the cohort's spread.
    """

    event: int
    rank: int
    step: int
    name: str
    category: str
    late_ns: float
    longer_ns: float
    start_score: float
    duration_score: float

    @property
    def score(self) -> float:
        """Return the anomaly score, the larger absolute score (KAIR §III-B, a_i)."""
        return max(abs(self.start_score), abs(self.duration_score))


@dataclass(frozen=True, slots=True, eq=False)
class Outliers:
    """Events whose score exceeds 3, largest first.

    Attributes:
        score: the score that was used; why: the reason.
        event_F: int64 [F], positions among the operators.
        unmatched: number of events without a cohort of at least three ranks.
    """

    operators: Operators
    score: Score
    why: str
    start: Deviation
    duration: Deviation
    event_F: Ints
    unmatched: int

    def __len__(self) -> int:
        return len(self.event_F)

    def rows(self, limit: int | None = None, rank: int | None = None) -> tuple[Outlier, ...]:
        """Return the first outliers, of one rank or of all ranks."""
        chosen = self.event_F if rank is None else self.event_F[self.operators.rank_E[self.event_F] == rank]
        return tuple(self._row(int(event)) for event in chosen[:limit])

    def _row(self, event: int) -> Outlier:
        return Outlier(
            event=event,
            rank=self.operators.lane(event).rank,
            step=int(self.operators.step_E[event]),
            name=self.operators.name(event),
            category=CATEGORIES[self.operators.category_E[event]],
            late_ns=float(self.start.excess_E[event]),
            longer_ns=float(self.duration.excess_E[event]),
            start_score=float(self.start.score_E[event]),
            duration_score=float(self.duration.score_E[event]),
        )


def score_for(ranks: int) -> tuple[Score, str]:
    """Return the score for this number of ranks, and the reason."""
    if ranks >= FEWEST_FOR_Z:
        return "z", f"mean and standard deviation: {ranks} ranks, 11 or more"
    reach = (ranks - 1) / np.sqrt(max(ranks, 1))
    return (
        "robust",
        f"median and MAD: an outlier widens the standard deviation, so with {ranks} ranks no score can "
        f"exceed (R−1)/√R = {reach:.2f} σ; 3 σ needs at least 11 ranks",
    )


def outliers(operators: Operators, cohorts: Cohorts | None = None, score: Score | None = None) -> Outliers:
    """Find events that start or last abnormally against their cohort.

    Start times are compared on the common time axis within one step: the step's begin is the same for all
    ranks and cancels.

    Args:
        score: ``z`` or ``robust``; None chooses ``robust`` below 11 ranks.
    """
    cohorts = cohorts or cohorts_of(operators)
    chosen, why = score_for(cohorts.comparable_ranks) if score is None else (score, "as requested")
    start = deviation(_since_first(operators), cohorts, chosen)
    duration = deviation(operators.duration_ns_E.astype(np.float64), cohorts, chosen)
    anomaly_E = np.fmax(np.abs(start.score_E), np.abs(duration.score_E))
    event_F = np.flatnonzero(anomaly_E > THRESHOLD)
    event_F = event_F[np.argsort(-anomaly_E[event_F], kind="stable")]
    unmatched = int(np.count_nonzero(~cohorts.matched_E))
    return Outliers(operators, chosen, why, start, duration, event_F, unmatched)


def _since_first(operators: Operators) -> Floats:
    """Return start times in ns since the first one, small enough for float64 to keep every nanosecond."""
    start = operators.start_ns_E
    return (start - start.min()).astype(np.float64) if len(start) else start.astype(np.float64)
