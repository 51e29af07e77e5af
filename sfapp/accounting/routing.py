"""Turn shares into a routing set, and apply the rival rules to the same matrix (accounting.md §5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfapp.accounting.leaders import Floats
from sfapp.accounting.measures import Measures
from sfapp.model import Rival

_ROUNDING = 1e-12
"""Tolerance for cumulated shares, so that a set whose members sum to exactly τC loses none to rounding."""


def ranked(share_B: Floats) -> list[int]:
    """Return positions of the stages by share, largest first; stages with equal shares in stage order."""
    shares = share_B.tolist()
    return sorted(range(len(shares)), key=lambda stage: -shares[stage])


def routing_set(share_B: Floats, tau_c: float) -> list[int]:
    """Return C_route: the shortest run of leading stages whose cumulative share reaches τC."""
    chosen: list[int] = []
    reached = 0.0
    for stage in ranked(share_B):
        chosen.append(stage)
        reached += float(share_B[stage])
        if reached >= tau_c - _ROUNDING:
            break
    return chosen


def rivals(measures: Measures, tau_c: float) -> tuple[Rival, ...]:
    """Return the five rival rules (paper Section 6.2), normalised to shares and routed by the same τC.

    ``overcount`` is the rule's total over the exposed makespan: what per-stage maxima count twice. For a
    reduced window, rules that need missing rows are left out.
    """
    totals: dict[str, Floats] = {
        "per_stage_max": measures.by_broad(measures.max_SN.sum(axis=1).astype(np.float64)),
        "per_stage_mean": measures.by_broad(measures.mean_SN.sum(axis=1)),
    }
    if measures.has_all_rows:
        spread_SN = measures.max_SN - measures.median_SN
        totals["rank_spread"] = measures.by_broad(spread_SN.sum(axis=1))
        totals["slowest_rank"] = measures.by_broad(measures.slowest_SN.sum(axis=1).astype(np.float64))
    if measures.window.ranks.rank[0] == 0 or measures.has_all_rows:
        totals["rank_0"] = measures.by_broad(measures.first_rank_SN.sum(axis=1).astype(np.float64))
    return tuple(_rival(rule, total_B, measures, tau_c) for rule, total_B in totals.items())


def _rival(rule: str, total_B: Floats, measures: Measures, tau_c: float) -> Rival:
    whole = float(total_B.sum())
    share_B = total_B / whole if whole else total_B
    return Rival(
        rule=rule,
        shares=by_name(measures.broad, share_B),
        routing_set=names(measures.broad, routing_set(share_B, tau_c)) if whole else (),
        overcount=whole / max(1, measures.makespan),
    )


def by_name(broad: Sequence[str], value_B: Floats) -> dict[str, float]:
    """Return one float for each stage, in stage order."""
    return dict(zip(broad, value_B.tolist(), strict=True))


def names(broad: Sequence[str], positions: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the stages at these positions."""
    return tuple(broad[position] for position in positions)
