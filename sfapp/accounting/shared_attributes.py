"""What late ranks have in common: attributes ranked by an exact test (accounting.md §21)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sfapp.accounting.associations import holm, hypergeometric_sf
from sfapp.model import Diagnosis, RankTable, Window
from sfapp.model.explanation import SharedAttribute
from sfapp.model.rank_table import AttributeValues

LEAST_LATE = 2
"""Number of late ranks from which they can have something in common."""

MOST_SHARED = 8
"""Number of attributes listed."""


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
    places = [place for place in map(window.ranks.place, sorted(late)) if place is not None]
    shared = shared_attributes(window.ranks.known_attributes, len(window.ranks), places)
    found = tuple(one for one in shared if one.chance <= judged.gates.alpha)
    return judged.changed(shared=found) if found else judged


def shared_attributes(
    attributes: Mapping[str, AttributeValues], ranks: int, late: Sequence[int]
) -> tuple[SharedAttribute, ...]:
    """Return the values that late ranks share, the most telling first (Fisher's exact test, one-sided).

    Chances are corrected for all values that any late rank has. Attributes that all ranks share tell nothing
    and are not tried; of several that name exactly the same ranks each is listed.

    Args:
        attributes: values by rank.
        ranks: number of ranks.
        late: positions of the late ones.
    """
    if len(late) < LEAST_LATE:
        return ()
    tried: list[tuple[str, str, int, int]] = []
    for name, column in attributes.items():
        if len(column.values) > 1:
            among = Counter(column.code_R[place] for place in late)
            tried += [(name, column.values[code], n, column.counts[code]) for code, n in among.items()]
    counts = {(both, of) for _, _, both, of in tried}  # Of millions of values, nearly all occur once.
    chance_of = {(both, of): hypergeometric_sf(both, ranks, of, len(late)) for both, of in counts}
    chances = holm([chance_of[both, of] for _, _, both, of in tried])
    found = [
        SharedAttribute(name, value, both, len(late), of - both, ranks - len(late), chance)
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
        attributes = ranks.known_attributes
        for place, rank in enumerate(ranks.rank):
            rows.setdefault((run_id, rank), {name: column[place] for name, column in attributes.items()})
    names = {name for row in rows.values() for name in row}
    columns_of: dict[str, list[str]] = defaultdict(list)
    for row in rows.values():
        for name in sorted(names):
            columns_of[name].append(row.get(name, ""))
    attributes_of = {name: AttributeValues.of(column) for name, column in columns_of.items()}
    late = [place for place, key in enumerate(rows) if 2 * times[key] > seen[key[0]]]
    return shared_attributes(attributes_of, len(rows), late)
