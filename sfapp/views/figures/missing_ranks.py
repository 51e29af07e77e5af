"""Ranks that never reported: on which node they belong, and the hatched marks that stand for them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sfapp.model import Diagnosis, RankTable
from sfapp.views import palette
from sfapp.views.figures.base import Trace

MOST_MARKED = 64
"""Missing ranks of one node that are drawn."""


def missing_on(diagnosis: Diagnosis, ranks: RankTable, node: int) -> list[int]:
    """Return the missing ranks that belong on a node, ascending; at most ``MOST_MARKED``."""
    if not diagnosis.missing_ranks:
        return []
    size = _node_size(ranks)
    found = [rank for rank in diagnosis.missing_ranks if _home_of(ranks, rank, size) == node]
    return found[:MOST_MARKED]


def _node_size(ranks: RankTable) -> int | None:
    """Return the ranks of a node where launchers number them node by node; None where they do not."""
    size = max(Counter(ranks.node_rank).values(), default=0)
    pairs = zip(ranks.rank, ranks.node_rank, strict=True)
    return size if size and all(rank // size == node for rank, node in pairs) else None


def _home_of(ranks: RankTable, rank: int, size: int | None) -> int | None:
    """Return the node that a missing rank belongs on; None if unknown. A rank between two ranks of one node
    is on it; at the end of a node, all nodes must be of one size."""
    after = bisect_left(ranks.rank, rank)
    if 0 < after < len(ranks) and ranks.node_rank[after - 1] == ranks.node_rank[after]:
        return ranks.node_rank[after]
    return None if size is None else rank // size


def hatched(dark: bool, **settings: Any) -> Trace:
    """Return bars that mark the places of missing ranks: empty and hatched, in the colour of alarms."""
    alarm = palette.theme(dark).alarm
    return {
        "type": "bar",
        "marker": {
            "color": "rgba(0,0,0,0)",
            "line": {"color": alarm, "width": 1},
            "pattern": {"shape": "/", "fgcolor": palette.alpha(alarm, 0.55), "size": 8, "solidity": 0.2},
        },
        "showlegend": False,
        "name": "missing",
        "hovertemplate": "%{hovertext}<extra></extra>",
        **settings,
    }


def missing_hovers(missing: Sequence[int]) -> list[str]:
    """Return the hover texts of missing ranks."""
    return [f"<b>rank {rank}</b> did not report" for rank in missing]
