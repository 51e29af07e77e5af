"""What late ranks have in common: attributes ranked by an exact test (accounting.md §21)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

from sfapp.accounting.associations import holm, hypergeometric_sf
from sfapp.model import Diagnosis, RankTable, Window
from sfapp.model.explanation import SharedAttribute

LEAST_LATE = 2
"""Number of late ranks from which they can have something in common."""

MOST_SHARED = 8
"""Number of attributes listed."""

Columns = Mapping[str, Sequence[str]]
"""Values of each attribute by rank."""


@dataclass(frozen=True, slots=True, eq=False)
class LateInWindow:
    """The late ranks of one window, for ``shared_over_windows``.

    Attributes:
        ranks: the ranks of the window. Windows of a run may share one table, which is then read once.
    """

    run_id: str
    ranks: RankTable
    late: frozenset[int]


def with_shared_attributes(judged: Diagnosis, window: Window) -> Diagnosis:
    """Return the diagnosis with what its late ranks have in common, beyond chance; unchanged if fewer than
    two are late."""
    late = {
        rank
        for found in judged.findings
        if found.kind == "rank" and found.needs_attention
        for rank in found.ranks
    }
    if len(late) < LEAST_LATE:
        return judged
    shared = shared_attributes(rank_columns(window.ranks), [rank in late for rank in window.ranks.rank])
    found = tuple(one for one in shared if one.chance <= judged.gates.alpha)
    return judged.changed(shared=found) if found else judged


def rank_columns(ranks: RankTable) -> dict[str, tuple[str, ...]]:
    """Return every attribute of ranks that is known: host, node, role, local rank, coordinates, and what the
    packet has."""
    columns: dict[str, Sequence[object]] = {
        "host": ranks.hostname,
        "node": ranks.node_rank,
        "role": [role or "" for role in ranks.role],
        "local_rank": ranks.local_rank,
        **ranks.layout,
    }
    columns |= {name: values for name, values in ranks.attributes.items() if name not in columns}
    return {name: tuple(map(str, column)) for name, column in columns.items()}


def shared_attributes(columns: Columns, is_late: Sequence[bool]) -> tuple[SharedAttribute, ...]:
    """Return the values that late ranks share, the most telling first (Fisher's exact test, one-sided).

    Chances are corrected for all values that any late rank has. Attributes that all ranks share tell nothing
    and are not tried; of several that name exactly the same ranks each is listed.
    """
    late, ranks = sum(is_late), len(is_late)
    if late < LEAST_LATE:
        return ()
    tried: list[tuple[str, str, int, int]] = []
    for name, column in columns.items():
        everywhere = Counter(column)
        if len(everywhere) > 1:
            among = Counter(compress(column, is_late))
            tried += [(name, value, count, everywhere[value]) for value, count in among.items()]
    counts = {(both, of) for _, _, both, of in tried}  # Of millions of values, nearly all occur once.
    chance_of = {(both, of): hypergeometric_sf(both, ranks, of, late) for both, of in counts}
    chances = holm([chance_of[both, of] for _, _, both, of in tried])
    found = [
        SharedAttribute(name, value, both, late, of - both, ranks - late, chance)
        for (name, value, both, of), chance in zip(tried, chances, strict=True)
    ]
    return tuple(sorted(found, key=lambda one: (one.chance, -one.late))[:MOST_SHARED])


def shared_over_windows(windows: Sequence[LateInWindow]) -> tuple[SharedAttribute, ...]:
    """Return what late ranks share over windows of one run or several.

    A rank of a run counts once, as late if it is in most of the windows in which any rank is: windows of a
    run are not independent of each other.
    """
    telling = [one for one in windows if one.late]
    seen: Counter[str] = Counter(one.run_id for one in telling)
    times: Counter[tuple[str, int]] = Counter((one.run_id, rank) for one in telling for rank in one.late)
    tables = {(one.run_id, id(one.ranks)): one.ranks for one in telling}
    rows: dict[tuple[str, int], dict[str, str]] = {}
    for (run_id, _), ranks in tables.items():
        columns = rank_columns(ranks)
        for place, rank in enumerate(ranks.rank):
            rows.setdefault((run_id, rank), {name: column[place] for name, column in columns.items()})
    names = {name for row in rows.values() for name in row}
    columns_of: dict[str, list[str]] = defaultdict(list)
    for row in rows.values():
        for name in sorted(names):
            columns_of[name].append(row.get(name, ""))
    return shared_attributes(columns_of, [2 * times[key] > seen[key[0]] for key in rows])
