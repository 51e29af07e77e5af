"""Stage 2, which operation: starts and durations far from the cohort's (KAIR §III-B, Stage 2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.model import CATEGORIES, Operators
from sfapp.operators.cohorts import THRESHOLD, Cohorts, Deviation, Score, cohorts_of, deviation

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FEWEST_FOR_Z = 11
"""The first R at which (R - 1)/√R, the most one outlier can reach, is above 3."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """One abnormal event.

    Attributes:
        event: its position among the operators.
        late_ns, longer_ns: its start and its duration, less the cohort's centre; negative: early, shorter.
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
        """The anomaly score, the larger of the two in size (KAIR §III-B, a_i)."""
        return max(abs(self.start_score), abs(self.duration_score))


@dataclass(frozen=True, slots=True, eq=False)
class Outliers:
    """The events whose score exceeds 3, the largest first.

    Attributes:
        score: which score was used; ``why`` says why.
        event_F: int64 [F], positions among the operators.
        unmatched: events that no cohort of at least three ranks could be found for.
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
        """The first of them, of one rank or of all."""
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
    """Which score so many ranks allow, and why."""
    if ranks >= FEWEST_FOR_Z:
        return "z", f"mean and standard deviation: {ranks} ranks, 11 or more"
    reach = (ranks - 1) / np.sqrt(max(ranks, 1))
    return (
        "robust",
        f"median and MAD: an outlier widens the standard deviation it is measured by, so of {ranks} ranks "
        f"none can exceed (R−1)/√R = {reach:.2f} σ, and 3 σ needs at least 11",
    )


def outliers(operators: Operators, cohorts: Cohorts | None = None, score: Score | None = None) -> Outliers:
    """Every event of a step that starts or lasts abnormally against its cohort.

    Starts are compared on the common time axis, within one step: the step's own begin is the same for all
    ranks and drops out.

    Args:
        score: ``z`` or ``robust``; None takes the robust one below 11 ranks.
    """
    cohorts = cohorts or cohorts_of(operators)
    chosen, why = score_for(cohorts.alike) if score is None else (score, "as asked")
    start = deviation(_since_first(operators), cohorts, chosen)
    duration = deviation(operators.duration_ns_E.astype(np.float64), cohorts, chosen)
    anomaly_E = np.fmax(np.abs(start.score_E), np.abs(duration.score_E))
    event_F = np.flatnonzero(anomaly_E > THRESHOLD)
    event_F = event_F[np.argsort(-anomaly_E[event_F], kind="stable")]
    unmatched = int(np.count_nonzero(~cohorts.matched_E))
    return Outliers(operators, chosen, why, start, duration, event_F, unmatched)


def _since_first(operators: Operators) -> Floats:
    """Starts in ns since the first one: small enough for float64 to keep every nanosecond."""
    start = operators.start_ns_E
    return (start - start.min()).astype(np.float64) if len(start) else start.astype(np.float64)
