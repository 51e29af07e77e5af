"""From operator events to causes: rhythm, outliers, blame, frequency (docs/kair.md; the KAIR paper)."""

from sfapp.kair.agreement import AGREEMENT_REASONS, Agreement, agreement
from sfapp.kair.blame import Blame, blame
from sfapp.kair.causes import Cause, PathStep
from sfapp.kair.collectives import Collective, collectives
from sfapp.kair.findings import Findings, examine, examine_stages, examine_window
from sfapp.kair.frequency import Band, Frequency, busiest, frequency
from sfapp.kair.outliers import Outlier, Outliers, outliers
from sfapp.kair.rhythm import Rhythm, ks_distances, rhythm
from sfapp.kair.stages import events_of, of_ranks, operators_of

__all__ = [
    "AGREEMENT_REASONS",
    "Agreement",
    "Band",
    "Blame",
    "Cause",
    "Collective",
    "Findings",
    "Frequency",
    "Outlier",
    "Outliers",
    "PathStep",
    "Rhythm",
    "agreement",
    "blame",
    "busiest",
    "collectives",
    "events_of",
    "examine",
    "examine_stages",
    "examine_window",
    "frequency",
    "ks_distances",
    "of_ranks",
    "operators_of",
    "outliers",
    "rhythm",
]
