"""Draw rank × step: a stage's duration, slack, lag or lead, ranks grouped by node (accounting.md §1, §3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfapp.accounting import Measures
from sfapp.model import ALL_RANKS, Diagnosis
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
    plain,
    revision,
    step_axis,
)
from sfapp.views.figures.heatmap_rows import NAMED_RANKS, HeatRows, heat_rows
from sfapp.views.figures.missing_ranks import hatched, missing_hovers
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput

PLOT = PlotSpec(
    name="rank_step_heatmap",
    title="Rank × step",
    help=(
        "One cell per rank and step. A dark row is one slow rank, a dark column a step that is slow on all "
        "ranks, regular stripes a periodic cause, scattered dark cells different slow ranks. A hatched row "
        "is a rank that did not report."
    ),
    source=WindowInput,
    build=lambda given, dark: rank_step_heatmap(
        given.measures,
        given.diagnosis,
        given.view.stage,
        given.view.quantity,
        step=given.view.step,
        selected=given.view.ranks,
        dark=dark,
    ),
    reads=("frontier", "aim", "stage", "quantity", "step", "ranks"),
    tabs=(Placement("overview", 50, 5, 400), Placement("ranks", 20)),
    report=60,
    notebook="heatmap",
    picks_step=True,
    has_step_axis=True,
)

QUANTITY_WORDS: dict[Quantity, str] = {
    "duration": "time spent in the stage",
    "slack": "time by which the rank enters the stage before the last rank",
    "lag": "time by which it leaves the stage after the median rank",
    "lead": "time by which it is the slowest at the stage's end",
    "own": "time in the stage without waiting for other ranks",
    "wait": "time blocked in the stage, waiting for other ranks",
}
"""The meaning of each quantity, per rank and step."""

_NODES_LABELLED = 8
"""Maximum number of nodes with a label next to the bands of many ranks."""


def rank_step_heatmap(
    measures: Measures,
    diagnosis: Diagnosis,
    stage: str | None = None,
    quantity: Quantity = "duration",
    *,
    step: int | None = None,
    selected: Sequence[int] = (),
    dark: bool = False,
) -> Figure:
    """Return one cell per rank and step on one colour scale; for many ranks, named ones above bands of
    extremes.

    Args:
        stage: a broad or recorded stage; the suspect (or top) stage if None.
        quantity: see ``QUANTITY_WORDS``; slack, lag and lead follow the diagnosis's frontier.
        step: a logical step number to frame.
        selected: global ranks to show in rows of their own, besides the suspect and the slowest rank.
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
    value_RN = _values(measures, diagnosis, stage, quantity)
    suspect = diagnosis.aim.rank if diagnosis.aim else None
    named = [*([] if suspect is None else [suspect]), *selected]
    missing = diagnosis.missing_ranks if diagnosis.group == ALL_RANKS else ()
    cells = heat_rows(measures, value_RN, quantity, named, missing)
    rows = len(measures.window.ranks) + len(cells.missing)
    colours = palette.theme(dark)
    is_there = step is not None and step_index(measures, step) is not None
    return figure(
        [_heat(measures, cells, stage, quantity, dark), *_missing_rows(measures, cells, dark)],
        dark=dark,
        title=PLOT.title,
        subtitle=f"{format.short_stage(stage)}: {QUANTITY_WORDS[quantity]}",
        alt=_in_words(measures, value_RN, cells.slowest, format.short_stage(stage), quantity),
        notes=(*_kept_rows_note(measures), *cells.notes),
        height=int(min(720, max(240, 90 + 22 * rows))) if len(measures.window.ranks) <= NAMED_RANKS else 520,
        margin={"l": 8, "r": 8, "t": 12, "b": 8},
        xaxis=step_axis(dark, measures.steps),
        yaxis=_rank_axis(measures, cells, suspect, dark),
        shapes=[
            *_node_lines(measures, cells, colours),
            *_bands_line(cells, colours),
            *([_frame(step, colours)] if step is not None and is_there else []),
        ],
        hovermode="closest",
        clickmode="event",
        uirevision=revision(diagnosis, "heatmap"),
    )


def _heat(measures: Measures, cells: HeatRows, stage: str, quantity: Quantity, dark: bool) -> Trace:
    value_KN = cells.value_KN
    largest = float(np.nanmax(np.abs(value_KN)))
    unit = format.unit_for(largest)
    colours = palette.theme(dark)
    recorded = measures.window.stages[stage_members(measures, stage)[0]]
    shade = palette.stage_colours(measures.window.stages, dark)[recorded]
    is_signed = quantity == "lag"
    name = plain(format.short_stage(stage))
    return {
        "type": "heatmap",
        "z": f4(value_KN / unit.ns),
        "x": measures.step_N[:: cells.steps_each].tolist(),
        "y": list(cells.names),
        "colorscale": palette.diverging(colours) if is_signed else palette.scale(shade, colours),
        "zmin": -largest / unit.ns if is_signed else 0,
        "zmax": max(largest / unit.ns, 1e-9),
        "xgap": 0.5 if value_KN.shape[1] <= 120 else 0,
        "ygap": 1 if cells.rows_each == cells.ranks_each == 1 and len(value_KN) <= 64 else 0,
        "colorbar": colour_key(dark, unit.name),
        "hoverongaps": False,
        "hovertemplate": f"step %{{x}}<br>%{{y}}<br>{name} {quantity} %{{z:.2f}} {unit.name}<extra></extra>",
    }  # fmt: skip


def _kept_rows_note(measures: Measures) -> tuple[str, ...]:
    """Return a note if the packet keeps the rows of some ranks only."""
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


def _rank_axis(measures: Measures, cells: HeatRows, aimed: int | None, dark: bool) -> dict[str, object]:
    """Return an axis with rank numbers, or with node numbers if there are many ranks; rows run downwards."""
    ranks = measures.window.ranks
    named = [(row, rank) for rank, row in cells.labelled]
    if len(ranks) <= NAMED_RANKS:
        named = list(enumerate((*cells.missing, *ranks.rank)))
    ticks = [(row, _rank_label(rank, aimed, cells.missing)) for row, rank in named]
    if len(ranks) > NAMED_RANKS:
        groups = _node_rows(measures, cells)
        every = max(1, -(-len(groups) // _NODES_LABELLED))
        last = named[-1][0] if named else -cells.label_rows
        for node, low, high in groups[::every]:
            row = round((low + high) / 2)
            if row - last >= cells.label_rows:  # nodes may have one rank each, beside those of many
                ticks.append((row, f"node {node}"))
                last = row
    return axis(
        dark, type="category", autorange="reversed", showgrid=False, tickvals=[row for row, _ in ticks],
        ticktext=[text for _, text in ticks], tickfont={"color": palette.theme(dark).ink, "size": 12},
    )  # fmt: skip


def _rank_label(rank: int, aimed: int | None, missing: Sequence[int]) -> str:
    if rank in missing:
        return f"<b>✕ r{rank}</b>"
    return f"<b>▶ r{rank}</b>" if rank == aimed else f"r{rank}"


def _missing_rows(measures: Measures, cells: HeatRows, dark: bool) -> list[Trace]:
    """Return hatched rows for the ranks that did not report."""
    count = len(cells.missing) * cells.rows_each
    if not count:
        return []
    first, last = float(measures.step_N[0]), float(measures.step_N[-1])
    return [
        hatched(
            dark,
            orientation="h",
            y=list(cells.names[:count]),
            x=[last - first + 1] * count,
            base=[first - 0.5] * count,
            width=1,
            hovertext=[hover for hover in missing_hovers(cells.missing) for _ in range(cells.rows_each)],
        )
    ]


def _node_rows(measures: Measures, cells: HeatRows) -> list[tuple[int, int, int]]:
    """Return (node, first row, last row) of each run of ranks on one node; a band belongs to its first."""
    groups: list[tuple[int, int, int]] = []
    node_rank = measures.window.ranks.node_rank
    for place in range(0, len(node_rank), cells.ranks_each):
        node, row = node_rank[place], cells.row_of(place)
        if groups and groups[-1][0] == node:
            groups[-1] = (node, groups[-1][1], row)
        else:
            groups.append((node, row, row))
    return groups


def _node_lines(measures: Measures, cells: HeatRows, colours: palette.Theme) -> list[dict[str, object]]:
    groups = _node_rows(measures, cells)
    if len(groups) > 16 and cells.ranks_each > 1:
        return []  # bands of whole nodes need no separators
    return [
        _row_line(low, colours.muted if len(groups) <= 16 else palette.alpha(colours.muted, 0.5), 1.2)
        for _, low, _ in groups[1:]
    ]


def _bands_line(cells: HeatRows, colours: palette.Theme) -> list[dict[str, object]]:
    """Return the line below the rows of missing ranks; below those of single ranks is an empty row."""
    return [_row_line(cells.first_band, colours.ink, 1.5)] if cells.first_band and not cells.single else []


def _row_line(row: int, colour: str, width: float) -> dict[str, object]:
    return {
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": row - 0.5, "y1": row - 0.5,
        "line": {"color": colour, "width": width},
    }  # fmt: skip


def _frame(step: int, colours: palette.Theme) -> dict[str, object]:
    return {
        "type": "rect", "x0": step - 0.5, "x1": step + 0.5, "y0": 0, "y1": 1, "yref": "paper",
        "line": {"color": colours.ink, "width": 1.5}, "name": "step",
    }  # fmt: skip


def _in_words(measures: Measures, value_RN: Floats, slowest: int, name: str, quantity: Quantity) -> str:
    place, column = np.unravel_index(int(value_RN.argmax()), value_RN.shape)
    ranks = measures.window.ranks.rank
    end = "lowest" if quantity in ("slack", "wait") else "highest"
    return (
        f"{name} {quantity} of {format.counted(len(measures.window.ranks), 'rank')} over "
        f"{format.counted(measures.steps, 'step')}: {end} on average on rank {ranks[slowest]} "
        f"({format.duration(float(value_RN[slowest].mean()))}), highest of all "
        f"{format.duration(float(value_RN[place, column]))} on rank {ranks[int(place)]}."
    )
