"""Draw rank × step: a stage's duration, slack, lag or lead, ranks grouped by node (accounting.md §1, §3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfapp.accounting import Measures
from sfapp.model import Diagnosis
from sfapp.model.view import Quantity
from sfapp.views import format, palette
from sfapp.views.figures.active_frontier import (
    Floats,
    active_frontier,
    position_after,
    stage_members,
    step_index,
    time_in,
    too_few_rows,
    waits_in,
)
from sfapp.views.figures.base import (
    Figure,
    Trace,
    axis,
    colour_key,
    empty_figure,
    f4,
    figure,
    note,
    plain,
    revision,
    step_axis,
)
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput

PLOT = PlotSpec(
    name="rank_step_heatmap",
    title="Rank × step",
    help=(
        "One cell per rank and step. A dark row is one slow rank, a dark column a step that is slow on all "
        "ranks, regular stripes a periodic cause, scattered dark cells different slow ranks."
    ),
    source=WindowInput,
    build=lambda given, dark: rank_step_heatmap(
        given.measures,
        given.diagnosis,
        given.view.stage,
        given.view.quantity,
        step=given.view.step,
        dark=dark,
    ),
    reads=("frontier", "aim", "stage", "quantity", "step"),
    tabs=(Placement("overview", 50, 4, 340), Placement("ranks", 20)),
    report=60,
    notebook="heatmap",
    picks_step=True,
    has_step_axis=True,
)

QUANTITY_WORDS: dict[Quantity, str] = {
    "duration": "time spent in the stage",
    "slack": "time the rank enters the stage before the last rank",
    "lag": "time it leaves the stage after the median rank",
    "lead": "time by which it is the slowest at the stage's end",
    "own": "time in the stage without waiting for other ranks",
    "wait": "time blocked in the stage, waiting for other ranks",
}
"""The meaning of each quantity, per rank and step."""

CELLS = 2**18
"""Cells drawn at most; neighbouring ranks (then steps) are merged beyond, which a note states."""

_NAMED_RANKS = 32


def rank_step_heatmap(
    measures: Measures,
    diagnosis: Diagnosis,
    stage: str | None = None,
    quantity: Quantity = "duration",
    *,
    step: int | None = None,
    dark: bool = False,
) -> Figure:
    """Return one cell per rank and step on one colour scale.

    Args:
        stage: a broad or recorded stage; the suspect (or top) stage where None.
        quantity: see ``QUANTITY_WORDS``; slack, lag and lead follow the diagnosis's frontier.
        step: a logical step number to frame.
    """
    stage = stage or (diagnosis.aim.stage if diagnosis.aim else diagnosis.top_stage) or measures.broad[0]
    if not stage_members(measures, stage):
        return empty_figure(f"the window has no stage {stage}", dark=dark, title=PLOT.title)
    if quantity == "lag" and not measures.has_all_rows:
        return empty_figure(too_few_rows(measures), dark=dark, title=PLOT.title)
    if quantity in ("own", "wait") and waits_in(measures, stage) is None:
        return empty_figure(
            f"The packet holds no waits of {format.short_stage(stage)}.", dark=dark, title=PLOT.title
        )
    cells = _merged(_values(measures, diagnosis, stage, quantity), quantity)
    rows = cells.value_RN.shape[0]
    colours = palette.theme(dark)
    suspect = diagnosis.aim.rank if diagnosis.aim else None
    is_there = step is not None and step_index(measures, step) is not None
    return figure(
        [_heat(measures, cells, stage, quantity, dark)],
        dark=dark,
        title=PLOT.title,
        subtitle=f"{format.short_stage(stage)}: {QUANTITY_WORDS[quantity]}",
        alt=_in_words(measures, cells.value_RN, cells.ranks_each, format.short_stage(stage), quantity),
        notes=(*_kept_rows_note(measures), *cells.notes),
        height=int(min(720, max(240, 90 + 22 * rows))) if rows <= _NAMED_RANKS else 520,
        margin={"l": 8, "r": 8, "t": 12, "b": 8},
        xaxis=step_axis(dark, measures.steps),
        yaxis=_rank_axis(measures, cells.ranks_each, suspect, dark),
        shapes=[
            *_node_lines(measures, cells.ranks_each, colours),
            *([_frame(step, colours)] if step is not None and is_there else []),
        ],
        annotations=_aim_mark(measures.window.ranks.rank, suspect, cells.ranks_each, dark),
        hovermode="closest",
        clickmode="event",
        uirevision=revision(diagnosis, "heatmap"),
    )


def _heat(measures: Measures, cells: _Cells, stage: str, quantity: Quantity, dark: bool) -> Trace:
    value_RN = cells.value_RN
    largest = float(np.abs(value_RN).max())
    unit = format.unit_for(largest)
    colours = palette.theme(dark)
    recorded = measures.window.stages[stage_members(measures, stage)[0]]
    shade = palette.stage_colours(measures.window.stages, dark)[recorded]
    is_signed = quantity == "lag"
    name = plain(format.short_stage(stage))
    return {
        "type": "heatmap",
        "z": f4(value_RN / unit.ns),
        "x": measures.step_N[:: cells.steps_each].tolist(),
        "y": _row_names(measures, cells.ranks_each),
        "colorscale": palette.diverging(colours) if is_signed else palette.scale(shade, colours),
        "zmin": -largest / unit.ns if is_signed else 0,
        "zmax": max(largest / unit.ns, 1e-9),
        "xgap": 0.5 if value_RN.shape[1] <= 120 else 0,
        "ygap": 1 if value_RN.shape[0] <= 64 else 0,
        "colorbar": colour_key(dark, unit.name),
        "hoverongaps": False,
        "hovertemplate": f"step %{{x}}<br>%{{y}}<br>{name} {quantity} %{{z:.2f}} {unit.name}<extra></extra>",
    }  # fmt: skip


def _kept_rows_note(measures: Measures) -> tuple[str, ...]:
    """Return a note where the packet keeps the rows of some ranks only."""
    if measures.has_all_rows:
        return ()
    kept, all_ranks = len(measures.window.ranks), format.counted(measures.ranks, "rank")
    return (f"The packet keeps the rows of {format.count(kept)} of {all_ranks}.",)


def _values(measures: Measures, diagnosis: Diagnosis, stage: str, quantity: Quantity) -> Floats:
    """Return the quantity per rank and step, ns [R, N]."""
    if quantity == "duration":
        return time_in(measures, stage).T.astype(np.float64)
    if quantity in ("own", "wait"):
        waited_NR = waits_in(measures, stage)
        assert waited_NR is not None  # the caller asked
        shown_NR = waited_NR if quantity == "wait" else time_in(measures, stage) - waited_NR
        return np.asarray(shown_NR.T)
    members = stage_members(measures, stage)
    first, last = members[0], members[-1]
    active = active_frontier(measures, diagnosis)
    if quantity == "slack":
        front_N = active.rise_SN[first - 1] if first else np.zeros(measures.steps)
        return np.asarray((front_N[:, None] - position_after(measures, active, first)).T)
    if quantity == "lag":
        position_NR = position_after(measures, active, last + 1)
        return np.asarray((position_NR - np.median(position_NR, axis=1, keepdims=True)).T)
    lead_RN = np.zeros((len(measures.led_by), measures.steps))
    lead_RN[active.leader_SN[last], np.arange(measures.steps)] = active.gap_SN[last]
    have_rows = set(measures.window.ranks.rank)
    return lead_RN[[place for place, rank in enumerate(measures.led_by.rank) if rank in have_rows]]


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Values to draw, ns [R, N], each the largest of ``ranks_each`` ranks and ``steps_each`` steps."""

    value_RN: Floats
    ranks_each: int = 1
    steps_each: int = 1
    notes: tuple[str, ...] = ()


def _merged(value_RN: Floats, quantity: Quantity) -> _Cells:
    """Merge ranks, then steps, until at most ``CELLS`` remain; the largest value of each block is kept."""
    ranks, steps = value_RN.shape
    by_rank = by_step = 1
    while -(-ranks // by_rank) * -(-steps // by_step) > CELLS:
        if -(-ranks // by_rank) > 512:
            by_rank *= 2
        else:
            by_step *= 2
    if by_rank == by_step == 1:
        return _Cells(value_RN)
    rows = np.maximum.reduceat(value_RN, np.arange(0, ranks, by_rank), axis=0)
    cells = np.maximum.reduceat(rows, np.arange(0, steps, by_step), axis=1)
    parts = [format.counted(by_rank, "rank")] if by_rank > 1 else []
    parts += [format.counted(by_step, "step")] if by_step > 1 else []
    text = (
        f"Downsampled from {format.count(ranks)} × {format.count(steps)}: each cell shows the largest "
        f"{quantity} of {format.listed(parts, conjunction='×')}. Shares and labels use every value."
    )
    return _Cells(cells, by_rank, by_step, (text,))


def _row_names(measures: Measures, merged: int) -> list[str]:
    ranks = measures.window.ranks
    names = []
    for row in range(0, len(ranks), merged):
        last = min(row + merged, len(ranks)) - 1
        if merged == 1:
            names.append(f"rank {ranks.rank[row]} on {plain(ranks.hostname[row])}")
        else:
            names.append(f"ranks {ranks.rank[row]}–{ranks.rank[last]}")
    return names


def _rank_axis(measures: Measures, merged: int, aimed: int | None, dark: bool) -> dict[str, object]:
    """Return an axis with rank numbers, or node numbers where ranks are many; rows run downwards."""
    ranks = measures.window.ranks
    rows = -(-len(ranks) // merged)
    if rows <= _NAMED_RANKS and merged == 1:
        values = list(range(rows))
        texts = [f"<b>▶ r{rank}</b>" if rank == aimed else f"r{rank}" for rank in ranks.rank]
    else:
        groups = _node_rows(measures, merged)
        step = max(1, -(-len(groups) // 16))
        values = [round((low + high) / 2) for _, low, high in groups][::step]
        texts = [f"node {node}" for node, _, _ in groups][::step]
    return axis(
        dark, type="category", autorange="reversed", showgrid=False, tickvals=values, ticktext=texts,
        tickfont={"color": palette.theme(dark).ink, "size": 12},
    )  # fmt: skip


def _node_rows(measures: Measures, merged: int) -> list[tuple[int, int, int]]:
    """Return (node, first row, last row) of each run of ranks on one node."""
    groups: list[tuple[int, int, int]] = []
    for place, node in enumerate(measures.window.ranks.node_rank):
        row = place // merged
        if groups and groups[-1][0] == node:
            groups[-1] = (node, groups[-1][1], row)
        else:
            groups.append((node, row, row))
    return groups


def _node_lines(measures: Measures, merged: int, colours: palette.Theme) -> list[dict[str, object]]:
    groups = _node_rows(measures, merged)
    if len(groups) > 128:
        return []
    return [
        {
            "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": low - 0.5, "y1": low - 0.5,
            "line": {
                "color": colours.muted if len(groups) <= 16 else palette.alpha(colours.muted, 0.5),
                "width": 1.2 if len(groups) <= 16 else 0.5,
            },
        }
        for _, low, _ in groups[1:]
    ]  # fmt: skip


def _aim_mark(ranks: tuple[int, ...], aimed: int | None, merged: int, dark: bool) -> list[dict[str, object]]:
    if aimed not in ranks or len(ranks) <= _NAMED_RANKS:
        return []
    row = ranks.index(aimed) // merged
    return [
        note(
            f"<b>rank {aimed} ▸</b>", 0, row, dark,
            xref="paper", xanchor="right", xshift=-3, bgcolor=palette.theme(dark).surface, font={"size": 12},
        )
    ]  # fmt: skip


def _frame(step: int, colours: palette.Theme) -> dict[str, object]:
    return {
        "type": "rect", "x0": step - 0.5, "x1": step + 0.5, "y0": 0, "y1": 1, "yref": "paper",
        "line": {"color": colours.ink, "width": 1.5}, "name": "step",
    }  # fmt: skip


def _in_words(measures: Measures, value_RN: Floats, merged: int, name: str, quantity: Quantity) -> str:
    row, column = np.unravel_index(int(value_RN.argmax()), value_RN.shape)
    means = value_RN.mean(axis=1)
    slowest = int(means.argmax())
    ranks = measures.window.ranks.rank
    return (
        f"{name} {quantity} of {format.counted(len(measures.window.ranks), 'rank')} over "
        f"{format.counted(measures.steps, 'step')}: highest on average on rank {ranks[slowest * merged]} "
        f"({format.duration(means[slowest])}), highest of all "
        f"{format.duration(float(value_RN[row, column]))} on rank {ranks[int(row) * merged]}."
    )
