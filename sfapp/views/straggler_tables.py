"""Rows for the tables of KAIR's findings: causes, abnormal events, collectives."""

from __future__ import annotations

import math

from sfapp.operators import Cause, Collective, Findings, Outlier
from sfapp.views import format
from sfapp.views.tables import Column, Row
from sfapp.views.text.stragglers import CAUSE_KINDS, COLLECTIVE_VERDICTS, NATURES


def _numeric(field: str, title: str, help: str) -> Column:
    return Column(field, title, help, f"{field}_text")


CAUSE_COLUMNS: tuple[Column, ...] = (
    Column("place", "#", "those that held others up first, then by cost"),
    Column("rank", "rank", "where; of a transfer the rank that arrived last"),
    Column("name", "operator", "of an edge the one that started late"),
    Column("after", "after", "of an edge: what was on time before it"),
    Column("kind", "kind", "operator: it took long; edge: it started late for no reason that was recorded; "
           "transfer: slow after all had arrived; extra: most other ranks lack it; before: late already when "
           "the events begin"),
    Column("nature", "nature", "compute, communication, input, idle or unknown"),
    _numeric("delay_ns", "cost", "how much later things got there, added up over the steps"),
    _numeric("worst_ns", "at worst", "the most in one place"),
    Column("times", "times", "how often"),
    Column("steps", "steps", "in which it was seen"),
    Column("symptoms", "symptoms", "late or slow events put down to it, itself included"),
    Column("holds_up", "held up", "whether anything waited for it; what nothing waited for costs no time"),
)  # fmt: skip

OUTLIER_COLUMNS: tuple[Column, ...] = (
    Column("rank", "rank"),
    Column("step", "step"),
    Column("name", "operator"),
    Column("category", "category", "what kind of event it is"),
    _numeric("late_ns", "starts", "later (+) or earlier (−) than its cohort"),
    _numeric("longer_ns", "takes", "longer (+) or shorter (−) than its cohort"),
    _numeric("start_score", "score of start", "in units of the cohort's spread; above 3 is abnormal"),
    _numeric("duration_score", "score of duration", "in units of the cohort's spread; above 3 is abnormal"),
    _numeric("score", "score", "the larger of the two in size"),
)

COLLECTIVE_COLUMNS: tuple[Column, ...] = (
    Column("step", "step"),
    Column("name", "collective"),
    Column("group", "group"),
    Column("sequence", "number", "which one of its group"),
    Column("ranks", "ranks", "how many took part"),
    Column("last_rank", "last", "the rank that arrived last"),
    _numeric("skew_ns", "waiting", "how long the first rank to arrive waited for the last"),
    _numeric("transfer_ns", "transfer", "from the last arrival to the last end"),
    _numeric("slow_ns", "slow by", "transfer beyond that of the same collective elsewhere"),
    Column("verdict", "verdict", "skew or transfer where one is at least twice the other, else mixed"),
    Column("why", "why", "what keeps it from being told"),
)


def cause_rows(findings: Findings) -> list[Row]:
    """One row a cause, in order; ``cause`` is its position from 0, as a view picks it."""
    return [_cause(place, cause) for place, cause in enumerate(findings.blame.causes)]


def outlier_rows(findings: Findings, rank: int | None = None, limit: int = 200) -> list[Row]:
    """One row an abnormal event, the highest score first.

    Args:
        rank: of this one only; of all where None.
    """
    return [_outlier(row) for row in findings.outliers.rows(limit, rank)]


def collective_rows(findings: Findings, limit: int = 200) -> list[Row]:
    """One row a collective, those that took longest, in order of time."""
    found = list(enumerate(findings.blame.collectives))
    longest = sorted(found, key=lambda item: -(item[1].skew_ns + item[1].transfer_ns))[:limit]
    return [_collective(met) for _, met in sorted(longest, key=lambda item: item[0])]


def _cause(place: int, cause: Cause) -> Row:
    after = "" if cause.source is None else f"{cause.source} of rank {cause.source_rank}"
    return {
        "cause": place,
        "place": place + 1,
        "rank": cause.rank,
        "name": cause.name,
        "after": after,
        "kind": cause.kind,
        "kind_meaning": CAUSE_KINDS[cause.kind],
        "nature": cause.nature,
        "nature_meaning": NATURES[cause.nature],
        "delay_ns": cause.delay_ns,
        "delay_ns_text": format.duration(cause.delay_ns),
        "worst_ns": cause.worst_ns,
        "worst_ns_text": format.duration(cause.worst_ns),
        "times": cause.times,
        "steps": format.ranges(step for step in cause.steps if step >= 0) or "outside any",
        "symptoms": cause.symptoms,
        "holds_up": "yes" if cause.holds_up else "no",
        "has_path": bool(cause.path),
    }


def _outlier(row: Outlier) -> Row:
    scores = {"start_score": row.start_score, "duration_score": row.duration_score, "score": row.score}
    return {
        "rank": row.rank,
        "step": row.step,
        "name": row.name,
        "category": row.category,
        "late_ns": _known(row.late_ns),
        "late_ns_text": format.change(row.late_ns),
        "longer_ns": _known(row.longer_ns),
        "longer_ns_text": format.change(row.longer_ns),
        **{field: _known(value) for field, value in scores.items()},
        **{f"{field}_text": _score(value) for field, value in scores.items()},
    }


def _collective(met: Collective) -> Row:
    row: Row = {
        "step": met.step if met.step >= 0 else "",
        "name": met.name,
        "group": met.group,
        "sequence": met.sequence,
        "ranks": met.ranks,
        "last_rank": met.last_rank,
        "verdict": met.verdict,
        "verdict_meaning": COLLECTIVE_VERDICTS[met.verdict],
        "why": met.why,
    }
    for field in ("skew_ns", "transfer_ns", "slow_ns"):
        row |= {field: getattr(met, field), f"{field}_text": format.duration(getattr(met, field))}
    return row


def _known(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None


def _score(value: float) -> str:
    if not math.isfinite(value):
        return format.ABSENT
    return f"{'−' if value < 0 else ''}{abs(value):,.1f}"
