"""Select the cause, two ranks, step and operator of the straggler views.

A choice in the view comes first; without one, the findings decide.
"""

from __future__ import annotations

import numpy as np

from sfapp.model import Diagnosis, RankTable
from sfapp.model.view import ViewState
from sfapp.operators import Cause, Findings


def aimed_rank(diagnosis: Diagnosis) -> int | None:
    """Return the verdict's suspect rank; None if it names none or the window is healthy."""
    return None if diagnosis.is_healthy or diagnosis.aim is None else diagnosis.aim.rank


def aimed_node(diagnosis: Diagnosis, ranks: RankTable) -> int | None:
    """Return the node of the rank that the verdict suspects; None if it names none of these ranks."""
    rank = None if diagnosis.aim is None else diagnosis.aim.rank
    place = None if rank is None else ranks.place(rank)
    return None if place is None else ranks.node_rank[place]


def chosen_cause(findings: Findings, view: ViewState) -> Cause | None:
    """Return the cause selected in the view, else the first; None if there is no such cause."""
    causes = findings.blame.causes
    place = view.cause or 0
    return causes[place] if place < len(causes) else None


def suspect_and_peer(
    findings: Findings, diagnosis: Diagnosis, view: ViewState
) -> tuple[int | None, int | None]:
    """Return the suspect rank and a typical rank to compare it with.

    Of two selected ranks, the one with the more abnormal timing pattern is the suspect; a single one is the
    suspect itself. Without a selection it is the cause's rank, else the verdict's, else the most abnormal
    one. The peer is the rank whose score is nearest to the median. None if no rank, or no other one, has
    events in steps.
    """
    similarity = findings.similarity
    score_of = dict(zip(similarity.ranks, similarity.score_R.tolist(), strict=True))
    picked = sorted((rank for rank in view.ranks if rank in score_of), key=lambda rank: -score_of[rank])
    cause = chosen_cause(findings, view)
    wanted = [
        *picked,
        None if cause is None else cause.rank,
        aimed_rank(diagnosis),
        *(similarity.ranks[place] for place in similarity.order_R[:1]),
    ]
    suspect = next((rank for rank in wanted if rank in score_of), None)
    if suspect is None or len(score_of) < 2:
        return suspect, None
    if len(picked) > 1:
        return suspect, picked[1]
    median = float(np.median(similarity.score_R))
    others = [rank for rank in similarity.ranks if rank != suspect]
    return suspect, min(others, key=lambda rank: abs(score_of[rank] - median))


def step_shown(findings: Findings, view: ViewState) -> tuple[int | None, str]:
    """Return the step to show, and why; None if no event lies in a step."""
    if view.step is not None:
        return view.step, "as selected"
    operators = findings.operators
    cause = chosen_cause(findings, view)
    if cause is not None and int(operators.step_E[cause.event]) >= 0:
        return int(operators.step_E[cause.event]), "where the cause cost most"
    if len(findings.outliers):
        return int(operators.step_E[findings.outliers.event_F[0]]), "with the most abnormal event"
    steps = operators.steps
    return (steps[0], "the first one") if steps else (None, "")


def operator_shown(findings: Findings, view: ViewState) -> str | None:
    """Return the operator whose occurrences are counted; None if there are no events."""
    if view.operator is not None:
        return view.operator
    operators = findings.operators
    cause = chosen_cause(findings, view)
    if cause is not None:
        return cause.name
    if len(findings.outliers):
        return operators.name(int(findings.outliers.event_F[0]))
    if not len(operators):
        return None
    return operators.names[int(np.bincount(operators.name_E).argmax())]
