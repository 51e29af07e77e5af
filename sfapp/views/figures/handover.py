"""Who took the lead from whom within a step, at each boundary (accounting.md §3)."""

from __future__ import annotations

from collections import Counter

from sfapp.accounting import Measures
from sfapp.model import Diagnosis
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, absent, axis, f4, figure, revision

RANKS_SHOWN = 64
"""Above this many ranks only those that hand over most are shown; the others are added up in one row."""

_WITH_NUMBERS = 16


def handover_matrix(
    measures: Measures, diagnosis: Diagnosis, boundary: str | None = None, *, dark: bool = False
) -> Figure:
    """Counts of (from, to) at one boundary, or at all of them where ``boundary`` is None.

    Args:
        boundary: a recorded stage.
    """
    title = "Hand-overs of the lead"
    found = [item for item in measures.handovers() if boundary in (None, item.stage)]
    where = "all boundaries" if boundary is None else f"the end of {format.short_stage(boundary)}"
    if measures.ranks < 2:
        return absent("one rank alone hands nothing over", dark=dark, title=title)
    if not found:
        return _none(measures, boundary, where, dark, title)
    pairs: Counter[tuple[int, int]] = Counter()
    for item in found:
        pairs[item.from_rank, item.to_rank] += item.count
    ranks, others = _most_involved(pairs, measures.window.ranks.rank)
    place = {rank: index for index, rank in enumerate(ranks)}
    size = len(ranks) + bool(others)
    counts = [[0] * size for _ in range(size)]
    for (before, after), count in pairs.items():
        counts[place.get(before, size - 1)][place.get(after, size - 1)] += count
    names = [f"r{rank}" for rank in ranks] + (["others"] if others else [])
    colours = palette.theme(dark)
    shade = colours.accent
    top_pair, top_count = pairs.most_common(1)[0]
    heat = {
        "type": "heatmap",
        "z": f4(counts),
        "x": names,
        "y": names,
        "colorscale": palette.scale(shade, colours),
        "zmin": 0,
        "xgap": 1,
        "ygap": 1,
        "showscale": size > _WITH_NUMBERS,
        "colorbar": {"title": {"text": "times"}, "thickness": 10, "outlinewidth": 0},
        "hovertemplate": "%{y} → %{x}: %{z:d} times<extra></extra>",
    }
    if size <= _WITH_NUMBERS:
        heat["text"] = [[str(count) if count else "" for count in row] for row in counts]
        heat["texttemplate"] = "%{text}"
    notes: tuple[str, ...] = ()
    if others:
        notes = (
            f"The {format.counted(len(ranks), 'rank')} that hand over most; {format.count(others)} others in one.",
        )
    return figure(
        [heat],
        dark=dark,
        title=title,
        subtitle=f"row: who led before; column: who took the lead; {where}, step-aligned",
        alt=(
            f"{format.counted(sum(pairs.values()), 'hand-over')} at {where}; most often from rank "
            f"{top_pair[0]} to rank {top_pair[1]}, {format.counted(top_count, 'time')}."
        ),
        notes=notes,
        height=int(min(640, max(280, 80 + 26 * size))),
        margin={"l": 8, "r": 8, "t": 12, "b": 8},
        xaxis=axis(dark, type="category", showgrid=False, title="took the lead", side="bottom"),
        yaxis=axis(dark, type="category", showgrid=False, autorange="reversed", title="led before"),
        hovermode="closest",
        uirevision=revision(diagnosis, "handover"),
    )


def _most_involved(pairs: Counter[tuple[int, int]], ranks: tuple[int, ...]) -> tuple[list[int], int]:
    """The ranks to show, ascending, and how many are left out."""
    if len(ranks) <= RANKS_SHOWN:
        return list(ranks), 0
    involved: Counter[int] = Counter()
    for (before, after), count in pairs.items():
        involved[before] += count
        involved[after] += count
    shown = sorted(rank for rank, _ in involved.most_common(RANKS_SHOWN // 2))
    return shown, len(ranks) - len(shown)


def _none(measures: Measures, boundary: str | None, where: str, dark: bool, title: str) -> Figure:
    first = measures.window.stages[0]
    if boundary == first:
        return absent(
            f"{format.short_stage(first)} is the first boundary: nobody led before it", dark=dark, title=title
        )
    leader = measures.window.ranks.rank[int(measures.leader_SN[-1, 0])]
    return absent(
        f"no hand-over at {where}: who leads the first boundary of a step (rank {leader} in step "
        f"{int(measures.step_N[0])}) leads it to the end",
        dark=dark,
        title=title,
    )
