"""Name the pattern that late ranks form in the parallel layout (accounting.md §20).

Late ranks are those that are late on average beyond noise, by at least min_effect of the step and by half of
the latest rank's lateness. They form a pattern if they are a single rank, or nearly all ranks of one host,
tensor-parallel group, pipeline stage or data-parallel replica, and hardly any others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator

import numpy as np

from sfapp.accounting.late_ranks import Flags, StageLateness, persistently_late
from sfapp.model import RankTable
from sfapp.model.parallel_layout import PATTERNS, PatternKind

LATE_PART = 0.25
"""Part of alpha for a healthy window to have a late rank, all ranks together."""

LEAST_PART = 0.5
"""Lateness from which a rank counts, as a part of the latest one's: smaller differences do not blur a
pattern."""

AGREEMENT = 0.75
"""Least number of ranks that are late and in the group, relative to those that are late or in the group."""


def late_ranks(late: StageLateness, alpha: float, least_ns: float) -> Flags:
    """Return which ranks count as late, bool [R].

    Args:
        late: lateness of the ranks in a whole step.
        alpha: chance of a false alarm. least_ns: least lateness.
    """
    beyond_noise = persistently_late(late, alpha * LATE_PART / len(late.mean_R))
    least = max(least_ns, LEAST_PART * float(late.mean_R.max()))
    found: Flags = beyond_noise & (late.mean_R >= least)
    return found


def late_pattern(ranks: RankTable, late_R: Flags) -> tuple[list[PatternKind], list[int]] | None:
    """Return the kinds of the group that the late ranks form, first the one with precedence, and positions of
    its ranks; None if they form none."""
    number = int(late_R.sum())
    if number <= 1:
        return (["worker"], np.flatnonzero(late_R).tolist()) if number else None
    agreement = 0.0
    kinds: list[PatternKind] = []
    found: list[int] = []
    for kind, members in _groups(ranks):
        both = int(late_R[members].sum())
        agrees = both / (number + len(members) - both)
        if members == found:
            kinds.append(kind)
        elif agrees > agreement:
            agreement, kinds, found = agrees, [kind], members
    return (kinds, found) if agreement >= AGREEMENT else None


def _groups(ranks: RankTable) -> Iterator[tuple[PatternKind, list[int]]]:
    """Yield the groups of at least two ranks, as positions, in order of precedence.

    Of a kind with one group only there is none, since it would show nothing.
    """
    layout = ranks.layout
    keys: dict[PatternKind, Iterable[Hashable]] = {"host": ranks.node_rank}
    if len(set(layout.get("tp", ()))) > 1:
        # Not ep: expert-parallel groups overlap those of other dimensions.
        others = [layout[name] for name in ("dp", "pp", "cp") if name in layout]
        keys["tensor_group"] = list(zip(*others, strict=True))
    if "pp" in layout:
        keys["pipeline_stage"] = layout["pp"]
    if "dp" in layout:
        keys["data_row"] = layout["dp"]
    for kind in PATTERNS:
        members: defaultdict[Hashable, list[int]] = defaultdict(list)
        for place, key in enumerate(keys.get(kind, ())):
            members[key].append(place)
        if len(members) > 1:
            yield from ((kind, group) for group in members.values() if len(group) > 1)
