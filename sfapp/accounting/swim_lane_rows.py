"""Which ranks get rows of their own in a swim-lane plot, and how the others are folded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sfapp.accounting.leaders import Floats, Ints
from sfapp.accounting.measures import Measures
from sfapp.accounting.swim_lane_times import BLOCKED, StepTimeline
from sfapp.model import Diagnosis, RankTable

LaneKind = Literal[
    "suspect",
    "slowest",
    "selected",
    "typical",
    "rank",
    "band",
    "node",
    "role",
    "others",
    "missing",
    "healthy",
]

BANDS_FROM = 1_024
"""From so many ranks on, quantiles stand for those that have no row of their own."""

ALL_UP_TO = 4
"""Up to so many ranks each has a row."""

MOST_SUSPECTS, MOST_SELECTED, MOST_MISSING, MOST_GROUPS = 4, 12, 4, 4

_APART = 0.02
"""A node whose ranks arrive on average so much of a step later or earlier than the others has its own row."""

_BANDS = (("max", 1.0), ("p99", 0.99), ("median", 0.5), ("min", 0.0))


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One row: what it shows, and the positions of its ranks.

    Attributes:
        name: node number, role or quantile; else empty.
        missing: global ranks that did not report.
    """

    kind: LaneKind
    places: Ints
    name: str = ""
    missing: tuple[int, ...] = ()


def rows_of(
    measures: Measures, diagnosis: Diagnosis, timeline: StepTimeline, selected: Sequence[int]
) -> tuple[list[Row], int]:
    """Return the rows in order, and how many selected ranks have none.

    Suspects come first, then ranks that did not report, the slowest and the selected ranks, a typical one,
    and the others in groups.
    """
    ranks = measures.window.ranks
    arrival_R = timeline.arrival_R
    least_ns = BLOCKED * timeline.exposed_ns
    suspects = _places(ranks, _suspects(diagnosis))[:MOST_SUSPECTS]
    late = [wait.late for wait in timeline.waits if wait.late is not None and wait.mean_ns >= least_ns]
    slowest = [*late, int(arrival_R.argmax())] if len(ranks) > 1 else []
    if timeline.sync is None and suspects:
        slowest = []  # Steps whose waiting is not known are equally long on ranks that wait.
    wanted = _places(ranks, selected)
    kinds: dict[int, LaneKind] = {}
    first: dict[LaneKind, list[int]] = {
        "suspect": suspects,
        "slowest": slowest,
        "selected": wanted[:MOST_SELECTED],
    }
    for kind, places in first.items():
        for place in places:
            kinds.setdefault(place, kind)
    rows = [Row(kind, np.array([place])) for place, kind in kinds.items()]
    rows[len(suspects) : len(suspects)] = [
        Row("missing", np.empty(0, dtype=np.int64), missing=(rank,))
        for rank in diagnosis.missing_ranks[:MOST_MISSING]
    ]
    is_other_R = np.ones(len(ranks), dtype=bool)
    is_other_R[list(kinds)] = False
    others = np.flatnonzero(is_other_R)
    rows += _other_rows(measures, timeline, others, arrival_R)
    return rows, max(0, len(wanted) - MOST_SELECTED)


def _places(table: RankTable, ranks: Iterable[int]) -> list[int]:
    """Return the positions of those global ranks that are in the table."""
    return [place for place in map(table.place, ranks) if place is not None]


def _suspects(diagnosis: Diagnosis) -> Iterable[int]:
    """Return the ranks that the verdict names, the suspect first; none in a healthy window."""
    if diagnosis.is_healthy:
        return ()
    aimed = [] if diagnosis.aim is None or diagnosis.aim.rank is None else [diagnosis.aim.rank]
    late = [rank for found in diagnosis.findings if found.needs_attention for rank in found.ranks]
    return dict.fromkeys((*aimed, *late[:MOST_SUSPECTS]))


def _other_rows(measures: Measures, timeline: StepTimeline, others: Ints, arrival_R: Floats) -> list[Row]:
    """Return rows of the ranks without one of their own."""
    if not len(others):
        return []
    if len(measures.window.ranks) <= ALL_UP_TO or len(others) == 1:
        return [Row("rank", others[place : place + 1]) for place in range(len(others))]
    ordered = others[np.argsort(arrival_R[others], kind="stable")]
    if len(measures.window.ranks) >= BANDS_FROM:
        at = {name: round(part * (len(ordered) - 1)) for name, part in _BANDS}
        return [Row("band", ordered[place : place + 1], name) for name, place in at.items()]
    if len(measures.window.ranks.roles) > 1:
        return _by_role(measures, others)
    typical = ordered[len(ordered) // 2]
    rest = others[others != typical]
    least_ns = _APART * timeline.exposed_ns
    return [Row("typical", np.array([typical])), *_by_node(measures, rest, arrival_R, least_ns)]


def _by_role(measures: Measures, others: Ints) -> list[Row]:
    roles = np.array([role or "" for role in measures.window.ranks.role])
    names = dict.fromkeys(roles[others].tolist())
    if len(names) > MOST_GROUPS:
        return [Row("others", others)]
    return [Row("role", others[roles[others] == name], name) for name in names]


def _by_node(measures: Measures, others: Ints, arrival_R: Floats, least_ns: float) -> list[Row]:
    """Return a row for each node that differs from the other nodes, and one for the rest."""
    node_R = np.asarray(measures.window.ranks.node_rank)[others]
    nodes = np.unique(node_R)
    means = {int(node): float(arrival_R[others][node_R == node].mean()) for node in nodes}
    middle = float(np.median(arrival_R[others]))
    apart = [node for node in means if len(nodes) > 1 and abs(means[node] - middle) >= least_ns]
    shown = sorted(apart, key=lambda node: -abs(means[node] - middle))[:MOST_GROUPS]
    rows = [Row("node", others[node_R == node], str(node)) for node in sorted(shown)]
    rest = others[~np.isin(node_R, shown)]
    return [*rows, *([Row("others", rest)] if len(rest) else [])]


def healthy_advances(
    measures: Measures, diagnosis: Diagnosis, timeline: StepTimeline
) -> tuple[float, ...] | None:
    """Return the mean advances of the healthy windows by broad stage, ns; None if they are not known or
    the window is one of them."""
    reference = diagnosis.reference
    if reference is None or diagnosis.is_reference:
        return None
    known = reference.advance_ns if timeline.sync is None else reference.carry_advance_ns
    if known is None or set(known) != set(measures.broad):
        return None
    return tuple(float(known[name]) for name in measures.broad)
