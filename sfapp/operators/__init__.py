"""Find the operator at fault: rank similarity, outliers, blame, frequency (docs/kair.md; the KAIR paper)."""

from sfapp.operators.agreement import AGREEMENT_REASONS, Agreement, agreement
from sfapp.operators.blame import Blame, blame
from sfapp.operators.causes import Cause, PathStep
from sfapp.operators.collectives import Collective, collectives
from sfapp.operators.frequency import Band, Frequency, busiest, frequency
from sfapp.operators.operator_findings import Findings, examine, examine_stages, examine_window
from sfapp.operators.outliers import Outlier, Outliers, outliers
from sfapp.operators.rank_similarity import RankSimilarity, ks_distances, rank_similarity
from sfapp.operators.stage_events import events_of, of_ranks, operators_of

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
    "RankSimilarity",
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
    "rank_similarity",
]
