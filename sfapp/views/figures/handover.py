"""Draw how often the slowest rank changes within a step (accounting.md §3)."""

from __future__ import annotations

from collections import Counter

import numpy as np

from sfapp.accounting import Measures
from sfapp.model import Diagnosis
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, axis, colour_key, empty_figure, f4, figure, revision
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput

PLOT = PlotSpec(
    name="handover_matrix",
    title="Changes of the slowest rank",
    help=(
        "How often the rank of the column overtakes the rank of the row as the slowest one within a step. An "
        "empty matrix means that the slowest rank stays the slowest until the step ends."
    ),
    source=WindowInput,
    build=lambda given, dark: handover_matrix(given.measures, given.diagnosis, dark=dark),
    reads=("leaders",),
    tabs=(Placement("ranks", 30),),
    report=None,
    notebook="handovers",
)

RANKS_SHOWN = 64
"""Number of ranks above which only those that change most are shown; the others share one row."""

_WITH_NUMBERS = 16

Pairs = Counter[tuple[int, int]]


def handover_matrix(
    measures: Measures, diagnosis: Diagnosis, boundary: str | None = None, *, dark: bool = False
) -> Figure:
    """Return how often one rank overtakes another as the slowest, at one boundary or at all.

    Only changes between clear slowest ranks (ahead of the next rank by ηQ of the step) are counted, because
    where ranks synchronise the order is random. A note gives the number of changes that were too close.

    Args:
        boundary: a recorded stage, None for all.
    """
    if measures.ranks < 2:
        return empty_figure("a single rank is always the slowest", dark=dark, title=PLOT.title)
    where = "all boundaries" if boundary is None else f"the end of {format.short_stage(boundary)}"
    pairs, close = _pairs(measures, diagnosis, boundary)
    notes = () if not close else (_too_close(close, diagnosis),)
    if not pairs:
        return empty_figure(
            _why_none(measures, boundary, where, notes), dark=dark, title=PLOT.title, heading="none"
        )
    ranks, others = _most_involved(pairs, measures.led_by.rank)
    if others:
        shown = f"The {format.counted(len(ranks), 'rank')} with most changes"
        notes = (f"{shown}; the other {format.count(others)} share one row.", *notes)
    (before, after), times = pairs.most_common(1)[0]
    size = len(ranks) + bool(others)
    colours = palette.theme(dark)
    return figure(
        [_cells(pairs, ranks, bool(others), dark)],
        dark=dark,
        title=PLOT.title,
        subtitle=f"row: slowest before; column: slowest after; {where}, step-aligned",
        alt=(
            f"{format.counted(sum(pairs.values()), 'change')} at {where}; "
            f"most often from rank {before} to rank {after}, {format.counted(times, 'time')}."
        ),
        notes=notes,
        height=int(min(640, max(280, 80 + 26 * size))),
        margin={"l": 8, "r": 8, "t": 12, "b": 8},
        xaxis=axis(dark, type="category", showgrid=False, title="slowest after"),
        yaxis=axis(
            dark,
            type="category",
            showgrid=False,
            autorange="reversed",
            title="slowest before",
            tickfont={"color": colours.ink, "size": 12},
        ),
        hovermode="closest",
        uirevision=revision(diagnosis, "handover"),
    )


def _pairs(measures: Measures, diagnosis: Diagnosis, boundary: str | None) -> tuple[Pairs, int]:
    """Return changes between clear slowest ranks by (from, to), and the number too close to call."""
    stages, ranks = measures.window.stages, measures.led_by.rank
    sure_SN = measures.gap_SN >= diagnosis.gates.eta_q * measures.makespan_N
    pairs: Pairs = Counter()
    close = 0
    for stage in range(1, len(stages)):
        if boundary not in (None, stages[stage]):
            continue
        before_N, after_N = measures.leader_SN[stage - 1], measures.leader_SN[stage]
        changed_N = before_N != after_N
        certain_N = changed_N & sure_SN[stage - 1] & sure_SN[stage]
        close += int(np.count_nonzero(changed_N & ~certain_N))
        for old, new in zip(before_N[certain_N].tolist(), after_N[certain_N].tolist(), strict=True):
            pairs[ranks[old], ranks[new]] += 1
    return pairs, close


def _cells(pairs: Pairs, ranks: list[int], others: bool, dark: bool) -> dict[str, object]:
    place = {rank: index for index, rank in enumerate(ranks)}
    size = len(ranks) + others
    counts = np.zeros((size, size), dtype=np.int64)
    for (before, after), count in pairs.items():
        counts[place.get(before, size - 1), place.get(after, size - 1)] += count
    names = [f"r{rank}" for rank in ranks] + (["others"] if others else [])
    colours = palette.theme(dark)
    cells: dict[str, object] = {
        "type": "heatmap",
        "z": f4(counts),
        "x": names,
        "y": names,
        "colorscale": palette.scale(colours.accent, colours),
        "zmin": 0,
        "xgap": 1,
        "ygap": 1,
        "showscale": size > _WITH_NUMBERS,
        "colorbar": colour_key(dark, "×"),
        "hovertemplate": "%{y} → %{x}: %{z:d} times<extra></extra>",
    }
    if size <= _WITH_NUMBERS:
        cells["text"] = [[str(count) if count else "" for count in row] for row in counts.tolist()]
        cells["texttemplate"] = "%{text}"
    return cells


def _most_involved(pairs: Pairs, ranks: tuple[int, ...]) -> tuple[list[int], int]:
    """Return the ranks to show, ascending, and how many are left out."""
    if len(ranks) <= RANKS_SHOWN:
        return list(ranks), 0
    involved: Counter[int] = Counter()
    for (before, after), count in pairs.items():
        involved[before] += count
        involved[after] += count
    shown = sorted(rank for rank, _ in involved.most_common(RANKS_SHOWN // 2))
    return shown, len(ranks) - len(shown)


def _too_close(close: int, diagnosis: Diagnosis) -> str:
    within = format.percent(diagnosis.gates.eta_q)
    return (
        f"{format.counted(close, 'change')} not counted: the slowest rank was less than ηQ, {within} of the "
        "step, behind the next one, before the change or after it."
    )


def _why_none(measures: Measures, boundary: str | None, where: str, notes: tuple[str, ...]) -> str:
    first = measures.window.stages[0]
    if boundary == first:
        return f"{format.short_stage(first)} is the first boundary: no change is possible there"
    at = "any boundary" if boundary is None else where
    if notes:
        return " ".join((f"no change at {at} between ranks that are clearly the slowest.", *notes))
    return f"no change at {at}: within each step, the same rank is slowest."
