"""Rows for the tables of KAIR's findings: causes, abnormal events, collectives."""

from __future__ import annotations

import math

from sfapp.operators import Cause, Collective, Findings, Outlier
from sfapp.views import format
from sfapp.views.table_columns import Row, TableColumn
from sfapp.views.text.stragglers import CAUSE_KINDS, COLLECTIVE_VERDICTS, COLLECTIVE_WORDS, NATURES


def _numeric(field: str, title: str, help: str) -> TableColumn:
    return TableColumn(field, title, help, f"{field}_text")


CAUSE_FLOOR = 0.001
"""A cause of which less than this part of the steps is lost is counted and not listed."""

CAUSE_COLUMNS: tuple[TableColumn, ...] = (
    TableColumn("place", "#", "causes that delayed other ranks first, then by cost"),
    TableColumn("rank", "rank", "rank of the cause; for a slow collective, the rank that arrived last"),
    TableColumn("name", "operator", "for an edge, the operator that started late"),
    TableColumn("after", "after", "for an edge, the operator before it, which was on time"),
    TableColumn("kind", "kind", "operator: took long; edge: started late without a recorded reason; "
    "after the last arrival: slow once all ranks had arrived, computing or transferring; extra: most other "
    "ranks lack it; before: already late when the events begin", "kind_text"),
    TableColumn("nature", "nature", "compute, communication, input, idle or unknown"),
    _numeric("delay_ns", "cost", "delay caused, summed over the steps"),
    _numeric("worst_ns", "at worst", "largest single delay"),
    TableColumn("times", "times", "number of occurrences"),
    TableColumn("steps", "steps", "steps in which it occurred"),
    TableColumn("symptoms", "symptoms", "late or slow events traced to it, itself included"),
    TableColumn("holds_up", "delays others", "whether another event waited for it; otherwise it costs no "
    "time"),
)  # fmt: skip

OUTLIER_COLUMNS: tuple[TableColumn, ...] = (
    TableColumn("rank", "rank"),
    TableColumn("step", "step"),
    TableColumn("name", "operator"),
    TableColumn("category", "category", "kind of event"),
    _numeric("late_ns", "start", "later (+) or earlier (−) than its cohort"),
    _numeric("longer_ns", "duration", "longer (+) or shorter (−) than its cohort"),
    _numeric("start_score", "start score", "in units of the cohort's spread; above 3 is abnormal"),
    _numeric("duration_score", "duration score", "in units of the cohort's spread; above 3 is abnormal"),
    _numeric("score", "score", "the larger of the two in magnitude"),
)

COLLECTIVE_COLUMNS: tuple[TableColumn, ...] = (
    TableColumn("step", "step"),
    TableColumn("name", "collective"),
    TableColumn("group", "group"),
    TableColumn("sequence", "number", "number within its group"),
    TableColumn("ranks", "ranks", "number of ranks"),
    TableColumn("last_rank", "last", "the rank that arrived last"),
    _numeric("skew_ns", "waiting", "wait of the first rank for the last one"),
    _numeric("transfer_ns", "after arrival", "from the last arrival to the last end: computing or transfer"),
    _numeric("slow_ns", "excess", "time after the last arrival beyond that of the same collective elsewhere"),
    TableColumn(
        "verdict",
        "most of the time",
        "waiting or after the last arrival if one is at least twice the other, else partly both",
        "verdict_text",
    ),
    TableColumn("why", "why", "why waiting cannot be separated from the time after the last arrival"),
)


def telling_causes(findings: Findings, step_ns: float, chosen: int | None = None) -> list[int]:
    """Return the positions of the causes that cost enough to matter: ``CAUSE_FLOOR`` of the examined steps.

    Args:
        step_ns: mean step of the window.
        chosen: position of a cause to keep in any case; the first one is kept too.
    """
    least = CAUSE_FLOOR * step_ns * max(1, len(findings.operators.steps))
    causes = findings.blame.causes
    return [place for place, cause in enumerate(causes) if cause.delay_ns >= least or place in (0, chosen)]


def cause_rows(findings: Findings) -> list[Row]:
    """Return one row per cause, in order; ``cause`` is its position from 0, as views select it."""
    return [_cause(place, cause) for place, cause in enumerate(findings.blame.causes)]


def outlier_rows(findings: Findings, rank: int | None = None, limit: int = 200) -> list[Row]:
    """Return one row per abnormal event, the highest score first.

    Args:
        rank: only events of this rank; None for all.
    """
    return [_outlier(row) for row in findings.outliers.rows(limit, rank)]


def collective_rows(findings: Findings, limit: int = 200) -> list[Row]:
    """Return one row per collective: the longest ones, in order of time."""
    found = list(enumerate(findings.blame.collectives))
    longest = sorted(found, key=lambda item: -(item[1].skew_ns + item[1].transfer_ns))[:limit]
    return [_collective(collective) for _, collective in sorted(longest, key=lambda item: item[0])]


def _cause(place: int, cause: Cause) -> Row:
    after = "" if cause.source is None else f"{cause.source} of rank {cause.source_rank}"
    return {
        "cause": place,
        "place": place + 1,
        "rank": cause.rank,
        "name": cause.name,
        "after": after,
        "kind": cause.kind,
        "kind_text": "after the last arrival" if cause.kind == "transfer" else cause.kind,
        "kind_meaning": CAUSE_KINDS[cause.kind],
        "nature": cause.nature,
        "nature_meaning": NATURES[cause.nature],
        "delay_ns": cause.delay_ns,
        "delay_ns_text": format.duration(cause.delay_ns),
        "worst_ns": cause.worst_ns,
        "worst_ns_text": format.duration(cause.worst_ns),
        "times": cause.times,
        "steps": format.ranges(step for step in cause.steps if step >= 0) or "outside steps",
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


def _collective(collective: Collective) -> Row:
    row: Row = {
        "step": collective.step if collective.step >= 0 else "",
        "name": collective.name,
        "group": collective.group,
        "sequence": collective.sequence,
        "ranks": collective.ranks,
        "last_rank": collective.last_rank,
        "verdict": collective.verdict,
        "verdict_text": COLLECTIVE_WORDS[collective.verdict],
        "verdict_meaning": COLLECTIVE_VERDICTS[collective.verdict],
        "why": collective.why,
    }
    for field in ("skew_ns", "transfer_ns", "slow_ns"):
        row |= {
            field: getattr(collective, field),
            f"{field}_text": format.duration(getattr(collective, field)),
        }
    return row


def _known(value: float) -> float | None:
    """Return None for NaN and infinities, which JSON lacks."""
    return value if math.isfinite(value) else None


def _score(value: float) -> str:
    if not math.isfinite(value):
        return format.ABSENT
    return f"{'−' if value < 0 else ''}{abs(value):,.1f}"
