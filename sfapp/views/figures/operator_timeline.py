"""Draw one step of the suspect above the same step of a typical rank, event by event (kair.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.model import CATEGORIES, Diagnosis, Operators
from sfapp.model.view import ViewState
from sfapp.operators import Cause, Findings
from sfapp.views import format, palette
from sfapp.views.figures.base import (
    Figure,
    Trace,
    axis,
    empty_figure,
    f4,
    figure,
    legend_above,
    note,
    plain,
    revision,
)
from sfapp.views.figures.timeline_lanes import LaneBlock, block_of
from sfapp.views.plot_registry import FindingsInput, Placement, PlotSpec
from sfapp.views.selection import chosen_cause, step_shown, suspect_and_peer
from sfapp.views.text.stragglers import operator_name

PLOT = PlotSpec(
    name="operator_timeline",
    title="Suspect vs typical rank",
    help=(
        "Above: the suspect rank in one step. Below: a typical rank on the same time axis. Look where the "
        "two stop matching: an operator that is longer above is the likely cause, one that starts later "
        "has been waiting. A bar lies below the one that encloses it."
    ),
    source=FindingsInput,
    build=lambda given, dark: operator_timeline(given.findings, given.diagnosis, given.view, dark=dark),
    reads=("findings", "aim", "cause", "ranks", "step"),
    tabs=(Placement("stragglers", 70),),
    report=30,
    notebook=None,
    shows_one_step=True,
)

Ints = npt.NDArray[np.int64]

_NAMED_FROM = 0.03
"""Part of the time axis from which an event is labelled."""


def operator_timeline(
    findings: Findings, diagnosis: Diagnosis, view: ViewState, *, dark: bool = False
) -> Figure:
    """Return the suspect's events of one step above those of a peer, by lane, from the step's first event "
    "on."""
    operators = findings.operators
    suspect, peer = suspect_and_peer(findings, diagnosis, view)
    step, why = step_shown(findings, view)
    if suspect is None or step is None:
        return empty_figure("no event of this window is part of a step", dark=dark, title=PLOT.title)
    in_step = operators.step_E == step
    if not in_step.any():
        steps = format.ranges(operators.steps)
        message = f"there are no events of step {step}; the trace covers steps {steps}"
        return empty_figure(message, dark=dark, title=PLOT.title)
    cause = chosen_cause(findings, view)
    ranks = [rank for rank in (suspect, peer) if rank is not None]
    drawn = _drawn(findings, ranks, in_step, cause, dark)
    if drawn is None:
        names = format.listed([f"rank {rank}" for rank in ranks])
        return empty_figure(f"{names} ran no operator in step {step}", dark=dark, title=PLOT.title)
    shown_cause = cause if drawn.has_cause else None
    scale, blocks = drawn.scale, drawn.blocks
    return figure(
        drawn.traces,
        dark=dark,
        title=PLOT.title,
        subtitle=_subtitle(step, why, shown_cause),
        alt=_in_words(operators, blocks, step, scale.span, shown_cause),
        notes=_notes(findings, blocks, peer),
        height=int(min(1_000, max(260, 110 + 24 * drawn.rows))),  # names need bars of 18 pixels
        barmode="overlay",
        margin={"l": 8, "r": 12, "t": 34, "b": 8},
        xaxis=axis(
            dark, ticksuffix=f" {scale.unit.name}", nticks=10, range=[0, 1.01 * scale.span / scale.unit.ns],
            title="since the step's first event",
        ),
        yaxis=_lane_axis(blocks, drawn.first_rows, drawn.rows, dark),
        annotations=[
            note(f"<b>rank {block.rank}</b>, {role}", 0, first - 1, dark, xref="paper", xanchor="left")
            for block, first, role in zip(blocks, drawn.first_rows, ("suspect", "typical rank"), strict=False)
        ],
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        uniformtext={"minsize": 12, "mode": "hide"},
        uirevision=revision(diagnosis, "timeline", step, *ranks),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The events of one step, drawn.

    Attributes:
        blocks: one per rank. first_rows: first row of each. rows: number of all rows.
        has_cause: whether the outlined cause is among them.
    """

    blocks: list[LaneBlock]
    first_rows: list[float]
    rows: float
    scale: _Scale
    traces: list[Trace]
    has_cause: bool


def _drawn(
    findings: Findings, ranks: list[int], in_step: npt.NDArray[np.bool_], cause: Cause | None, dark: bool
) -> _Drawn | None:
    """Draw the events of some ranks in one step; None if they have none."""
    operators = findings.operators
    rank_E = operators.rank_E
    caused_E = _caused(findings, cause, in_step, rank_E)
    blocks = [
        block_of(operators, rank, np.flatnonzero(in_step & (rank_E == rank)), caused_E) for rank in ranks
    ]
    event_K = np.concatenate([block.event_K for block in blocks])
    if not len(event_K):
        return None
    first_rows = [1, blocks[0].rows + 2.5]  # a row for each heading, and some space between the ranks
    row_K = np.concatenate([block.row_K + low for block, low in zip(blocks, first_rows, strict=False)])
    begin = int(operators.start_ns_E[in_step].min())
    span = int(operators.end_ns_E[event_K].max()) - begin
    scale = _Scale(begin, format.unit_for(span), span)
    traces = _traces(findings, event_K, row_K, scale, dark)
    outlined = caused_E[event_K]
    if outlined.any():
        traces.append(_outline(operators, event_K[outlined], row_K[outlined], scale, dark))
    rows = first_rows[len(blocks) - 1] + blocks[-1].rows
    return _Drawn(blocks, first_rows, rows, scale, traces, bool(outlined.any()))


def _subtitle(step: int, why: str, cause: Cause | None) -> str:
    text = f"step {step} {why}" if why.startswith("in") else f"step {step}, {why}"
    return text if cause is None else f"{text}; outlined: {operator_name(cause.name, 60)}"


def _caused(
    findings: Findings, cause: Cause | None, in_step: npt.NDArray[np.bool_], rank_E: Ints
) -> npt.NDArray[np.bool_]:
    """Return the cause's events in this step, bool [E]; only the abnormal ones if there are any."""
    operators = findings.operators
    if cause is None:
        return np.zeros(len(operators), np.bool_)
    own_E: npt.NDArray[np.bool_] = in_step & (operators.name_E == operators.name_E[cause.event])
    if cause.kind != "transfer":
        own_E &= rank_E == cause.rank
    abnormal_E = np.zeros(len(operators), np.bool_)
    abnormal_E[findings.outliers.event_F] = True
    abnormal_E[cause.event] = True
    abnormal_E &= own_E
    return abnormal_E if abnormal_E.any() else own_E


@dataclass(frozen=True, slots=True)
class _Scale:
    """The time axis: start of the step and span of the events, ns, and the unit."""

    begin: int
    unit: format.Unit
    span: int


def _traces(
    findings: Findings, event_K: Ints, row_K: npt.NDArray[np.float64], scale: _Scale, dark: bool
) -> list[Trace]:
    """Return one trace per operator category, or per stage."""
    operators = findings.operators
    if findings.source == "stages":
        shades: Mapping[str, str] = palette.stage_colours(operators.names, dark)
        short = format.short_stages(operators.names)
        groups = {name: operators.name_E[event_K] == code for code, name in enumerate(operators.names)}
    else:
        shades = palette.category_colours(dark)
        short = {name: name for name in CATEGORIES}
        groups = {name: operators.category_E[event_K] == code for code, name in enumerate(CATEGORIES)}
    hover = _Hover(findings, scale)
    return [
        _bars(operators, event_K[mask], row_K[mask], scale, plain(short[name], 28), shades[name], hover, dark)
        for name, mask in groups.items()
        if mask.any()
    ]


def _bars(
    operators: Operators,
    events: Ints,
    rows: npt.NDArray[np.float64],
    scale: _Scale,
    name: str,
    shade: str,
    hover: _Hover,
    dark: bool,
) -> Trace:
    length = operators.duration_ns_E[events]
    return {
        "type": "bar",
        "orientation": "h",
        "x": f4(length / scale.unit.ns),
        "base": f4((operators.start_ns_E[events] - scale.begin) / scale.unit.ns),
        "y": f4(rows),
        "width": 0.9,
        "name": name,
        "marker": {"color": shade, "line": {"color": palette.theme(dark).surface, "width": 0.5}},
        "text": [
            hover.name(event) if own >= _NAMED_FROM * scale.span else ""
            for event, own in zip(events.tolist(), length.tolist(), strict=True)
        ],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": palette.readable_on(shade), "size": 12},
        "hovertext": [hover.words(event) for event in events.tolist()],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _outline(
    operators: Operators, events: Ints, rows: npt.NDArray[np.float64], scale: _Scale, dark: bool
) -> Trace:
    """Return a frame around the bars of the cause."""
    return {
        "type": "bar",
        "orientation": "h",
        "x": f4(operators.duration_ns_E[events] / scale.unit.ns),
        "base": f4((operators.start_ns_E[events] - scale.begin) / scale.unit.ns),
        "y": f4(rows),
        "width": 0.96,
        "name": "cause",
        "marker": {"color": "rgba(0,0,0,0)", "line": {"color": palette.theme(dark).ink, "width": 2.5}},
        "hoverinfo": "skip",
    }


class _Hover:
    """Hover texts of events; each name is escaped once."""

    def __init__(self, findings: Findings, scale: _Scale) -> None:
        self._operators = findings.operators
        self._late_E = findings.outliers.start.excess_E
        self._longer_E = findings.outliers.duration.excess_E
        self._scale = scale
        self._names: dict[int, str] = {}

    def name(self, event: int) -> str:
        code = int(self._operators.name_E[event])
        if code not in self._names:
            self._names[code] = plain(operator_name(self._operators.names[code], 60), 60)
        return self._names[code]

    def words(self, event: int) -> str:
        operators = self._operators
        start, end = int(operators.start_ns_E[event]), int(operators.end_ns_E[event])
        return (
            f"<b>{self.name(event)}</b> ({CATEGORIES[operators.category_E[event]]})<br>"
            f"takes {format.duration(end - start)}, starts at {format.duration(start - self._scale.begin)}"
            f"<br>{_vs_others(float(self._late_E[event]), float(self._longer_E[event]))}"
        )


def _vs_others(late: float, longer: float) -> str:
    if not math.isfinite(late):
        return "no counterpart on at least two other ranks"
    return f"vs other ranks: starts {format.change(late)}, takes {format.change(longer)}"


def _lane_axis(
    blocks: Sequence[LaneBlock], first: Sequence[float], rows: float, dark: bool
) -> dict[str, object]:
    """Return an axis with lane names at the middle of their rows; rows run downwards."""
    ticks = [
        (low + row + (deep - 1) / 2, plain(name, 24))
        for block, low in zip(blocks, first, strict=False)
        for name, row, deep in block.lanes
    ]
    return axis(
        dark, range=[rows - 0.3, -0.7], showgrid=False, zeroline=False, tickvals=[at for at, _ in ticks],
        ticktext=[name for _, name in ticks], tickfont={"color": palette.theme(dark).muted, "size": 12},
    )  # fmt: skip


def _notes(findings: Findings, blocks: Sequence[LaneBlock], peer: int | None) -> tuple[str, ...]:
    notes = []
    left_out = {
        "shorter than those shown": sum(block.short for block in blocks),
        "nested deeper than eight levels": sum(block.deep for block in blocks),
        "on less busy threads and streams": sum(block.elsewhere for block in blocks),
    }
    parts = [f"{format.count(events)} {why}" for why, events in left_out.items() if events]
    if parts:
        notes.append(f"Events left out: {format.listed(parts)}.")
    if peer is None:
        notes.append("There is no other rank to compare with.")
    if not findings.blame.clocks_agree:
        notes.append("The clocks of the ranks differ, so their times are not aligned.")
    if findings.source == "stages":
        notes.append("Based on stages, not on operators.")
    return tuple(notes)


def _in_words(
    operators: Operators, blocks: Sequence[LaneBlock], step: int, span: int, cause: Cause | None
) -> str:
    parts = format.listed(
        [f"{format.counted(len(block.event_K), 'event')} of rank {block.rank}" for block in blocks]
    )
    text = f"Step {step}, {format.duration(span)}: {parts}"
    if cause is None:
        return f"{text}."
    return f"{text}; outlined: the cause, {operator_name(cause.name)} of rank {cause.rank}."
