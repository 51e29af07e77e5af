"""Every rank's prefix curve under the frontier: who reaches each boundary when (accounting.md §3, §10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfapp.accounting import Measures
from sfapp.model import Diagnosis
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, Trace, axis, f4, figure, note, plain, revision
from sfapp.views.figures.chosen import Chosen, Floats, chosen, step_index

ALL_RANKS_UP_TO = 128
"""Above this many ranks, quantile bands stand for the ranks that neither lead nor are selected."""

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_NAMED_HANDOVERS = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Curves:
    """One step (or the mean one), ns from its start: positions [S+1, R], frontier [S+1], leaders [S]."""

    position_SR: Floats
    frontier_S: Floats
    leader_S: tuple[int, ...]
    gap_S: Floats
    steps: int


def prefix_crossings(
    measures: Measures,
    diagnosis: Diagnosis,
    step: int | None = None,
    *,
    selected: Sequence[int] = (),
    dark: bool = False,
) -> Figure:
    """Prefix curves of all ranks, the frontier above them, hand-overs ringed, leaders named.

    The lower panel shows the same curves as time behind the frontier, so that crossings stay visible when
    ranks differ by little.

    Args:
        step: a logical step number, None for the window's mean.
        selected: global ranks to draw by name.
    """
    index = step_index(measures, step)
    taken = chosen(measures, diagnosis)
    curves = _curves(measures, taken, index)
    unit = format.unit_for(float(np.abs(curves.position_SR).max()))
    behind = format.unit_for(float((curves.frontier_S[:, None] - curves.position_SR).max()))
    shown = _drawn_alone(measures, diagnosis, curves, selected)
    traces: list[Trace] = []
    for panel, (height_SR, scale) in enumerate(
        ((curves.position_SR, unit), (curves.frontier_S[:, None] - curves.position_SR, behind))
    ):
        if measures.ranks > ALL_RANKS_UP_TO:
            traces += _bands(height_SR / scale.ns, panel, dark)
        else:
            traces.append(_all_ranks(measures, curves, height_SR / scale.ns, panel, dark))
        traces += [
            _one_rank(measures, curves, place, height_SR / scale.ns, panel, emphasis, dark)
            for place, emphasis in shown.items()
        ]
    traces.append(_frontier(curves, unit, dark))
    which = "mean step of the window" if index is None else f"step {step}"
    notes: tuple[str, ...] = ()
    if measures.ranks > ALL_RANKS_UP_TO:
        notes = (
            f"{format.count(measures.ranks)} ranks: bands hold the middle 50 % and 90 % of ranks; "
            "leaders and selected ranks are drawn one by one. Nothing is left out of the frontier.",
        )
    return figure(
        traces,
        dark=dark,
        title="Who reaches each boundary when",
        subtitle=f"time used by every rank, {which}; the last to arrive sets the frontier",
        alt=_in_words(measures, diagnosis, curves, which),
        notes=notes,
        height=440,
        **_panels(measures, unit, behind, dark),
        annotations=_annotations(measures, diagnosis, curves, unit, shown, dark),
        hovermode="closest",
        uirevision=revision(diagnosis, diagnosis.frontier),
    )


def _curves(measures: Measures, taken: Chosen, index: int | None) -> _Curves:
    duration_SNR = measures.window.duration_SNR
    if index is not None:
        own_SR = duration_SNR[:, index, :].cpu().numpy().cumsum(axis=0)
        start_R: Floats = np.zeros(measures.ranks)
        if taken.carry:
            used_R = duration_SNR[:, :index, :].sum(dim=(0, 1)).cpu().numpy()
            before = taken.carry.frontier_SN[-1, index - 1] if index else taken.carry.start
            start_R = used_R - taken.carry.offset_R - before
        leader_S = tuple(int(leader) for leader in taken.leader_SN[:, index])
        gap_S = taken.gap_SN[:, index].astype(np.float64)
        frontier_S = taken.advance_SN[:, index].cumsum()
    else:
        own_SR = duration_SNR.sum(dim=1).cpu().numpy().cumsum(axis=0) / measures.steps
        start_R = np.zeros(measures.ranks)
        if taken.carry:
            total_NR = duration_SNR.sum(dim=0).cpu().numpy()
            weight_N = np.arange(measures.steps - 1, -1, -1)
            used_R = weight_N @ total_NR / measures.steps
            before_N = np.concatenate([[taken.carry.start], taken.carry.frontier_SN[-1, :-1]])
            start_R = used_R - taken.carry.offset_R - before_N.mean()
        leader_S = tuple(int(np.bincount(row, minlength=1).argmax()) for row in taken.leader_SN)
        gap_S = taken.gap_SN.mean(axis=1)
        frontier_S = taken.advance_SN.mean(axis=1).cumsum()
    position_SR = np.vstack([start_R, start_R + own_SR]).astype(np.float64)
    steps = measures.steps if index is None else 1
    return _Curves(position_SR, np.concatenate([[0.0], frontier_S]), leader_S, gap_S, steps)


def _drawn_alone(
    measures: Measures, diagnosis: Diagnosis, curves: _Curves, selected: Sequence[int]
) -> dict[int, str]:
    """Rank positions drawn by name: ``aim``, ``leader`` or ``selected``; the aim last, to be on top."""
    ranks = measures.window.ranks.rank
    wanted = set(selected)
    total = float(curves.frontier_S[-1])
    sure = [
        leader
        for place, leader in enumerate(curves.leader_S)
        if curves.frontier_S[place + 1] - curves.frontier_S[place] >= 0.02 * total
    ]
    drawn = dict.fromkeys(dict.fromkeys(sure), "leader") if measures.ranks > 1 else {}
    drawn |= {place: "selected" for place, rank in enumerate(ranks) if rank in wanted}
    aimed = diagnosis.aim.rank if diagnosis.aim else None
    if aimed in ranks:
        drawn.pop(ranks.index(aimed), None)
        drawn[ranks.index(aimed)] = "aim"
    return drawn


def _all_ranks(measures: Measures, curves: _Curves, height_SR: Floats, panel: int, dark: bool) -> Trace:
    """All ranks as one trace, a gap after each."""
    points, ranks = height_SR.shape
    gapped_y = np.vstack([height_SR, np.full(ranks, np.nan)]).T
    gapped_x = np.tile(np.append(np.arange(points, dtype=np.float64), np.nan), ranks)
    texts: list[str] = []
    for place in range(ranks):
        texts += [*_hover(measures, curves, place), ""]
    colours = palette.theme(dark)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": f4(gapped_x),
        "y": f4(gapped_y.ravel()),
        "xaxis": "x",
        "yaxis": "y" if panel == 0 else "y2",
        "line": {"color": palette.alpha(colours.rank, 0.75 if ranks <= 16 else 0.45), "width": 1.4},
        "hovertext": texts,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "name": "ranks",
        "connectgaps": False,
    }


def _hover(measures: Measures, curves: _Curves, place: int) -> list[str]:
    who = measures.window.ranks.identity(place)
    head = f"<b>rank {who.rank}</b> on {plain(who.hostname)} (local {who.local_rank})"
    if who.role is not None:
        head += f", role {plain(who.role)}"
    position_S = curves.position_SR[:, place]
    texts = [f"{head}<br>starts the step {_against(curves.frontier_S[0] - position_S[0])}"]
    for stage, name in enumerate(measures.window.stages):
        end = stage + 1
        slack = curves.frontier_S[stage] - position_S[stage]
        text = (
            f"{head}<br>{plain(format.short_stage(name))} "
            f"{format.duration(position_S[end] - position_S[stage])}"
            f"<br>prefix {format.duration(position_S[end])}"
            f"<br>slack on entry {format.duration(max(0.0, float(slack)))}"
            f"<br>frontier advance {format.duration(curves.frontier_S[end] - curves.frontier_S[stage])}"
        )
        if curves.leader_S[stage] == place:
            text += "<br><b>leads this boundary</b>"
        else:
            text += f"<br>{_against(curves.frontier_S[end] - position_S[end])}"
        texts.append(text)
    return texts


def _against(ahead: float) -> str:
    return "with the last rank" if ahead < 1e3 else f"{format.duration(ahead)} ahead of the last rank"


def _one_rank(
    measures: Measures, curves: _Curves, place: int, height_SR: Floats, panel: int, emphasis: str, dark: bool
) -> Trace:
    colours = palette.theme(dark)
    colour, width, dash = {
        "aim": (colours.alarm, 3.0, "solid"),
        "leader": (colours.ink, 1.8, "solid"),
        "selected": (colours.accent, 2.4, "dash"),
    }[emphasis]
    rank = measures.window.ranks.rank[place]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(range(height_SR.shape[0])),
        "y": f4(height_SR[:, place]),
        "xaxis": "x",
        "yaxis": "y" if panel == 0 else "y2",
        "line": {"color": colour, "width": width, "dash": dash},
        "hovertext": _hover(measures, curves, place),
        "hovertemplate": "%{hovertext}<extra></extra>",
        "name": f"rank {rank}",
        "customdata": [rank] * height_SR.shape[0],
    }


def _bands(height_SR: Floats, panel: int, dark: bool) -> list[Trace]:
    """The middle 90 % and 50 % of ranks at each boundary, and the median."""
    low, lower, middle, upper, high = np.quantile(height_SR, _QUANTILES, axis=1)
    colours = palette.theme(dark)
    points = np.arange(height_SR.shape[0])
    traces: list[Trace] = []
    for name, bottom, top, opacity in (
        ("90 % of ranks", low, high, 0.18),
        ("50 % of ranks", lower, upper, 0.32),
    ):
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": f4(np.concatenate([points, points[::-1]])),
                "y": f4(np.concatenate([top, bottom[::-1]])),
                "yaxis": "y" if panel == 0 else "y2",
                "fill": "toself",
                "fillcolor": palette.alpha(colours.rank, opacity),
                "line": {"width": 0},
                "hoverinfo": "skip",
                "name": name,
            }
        )
    traces.append(
        {
            "type": "scatter",
            "mode": "lines",
            "x": f4(points),
            "y": f4(middle),
            "yaxis": "y" if panel == 0 else "y2",
            "line": {"color": colours.rank, "width": 1.6, "dash": "dot"},
            "hovertemplate": "median rank %{y:.1f}<extra></extra>",
            "name": "median rank",
        }
    )
    return traces


def _frontier(curves: _Curves, unit: format.Unit, dark: bool) -> Trace:
    colours = palette.theme(dark)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": list(range(len(curves.frontier_S))),
        "y": f4(curves.frontier_S / unit.ns),
        "line": {"color": colours.ink, "width": 1, "dash": "dot"},
        "marker": {"size": 6, "color": colours.surface, "line": {"color": colours.ink, "width": 1.5}},
        "hoverinfo": "skip",
        "name": "frontier",
    }


def _panels(measures: Measures, unit: format.Unit, behind: format.Unit, dark: bool) -> dict[str, object]:
    stages = measures.window.stages
    short = format.short_stages(stages)
    count = len(stages)
    return {
        "xaxis": axis(
            dark,
            tickvals=[place + 0.5 for place in range(count)],
            ticktext=[plain(short[stage], 28) for stage in stages],
            range=[-0.08, count + 0.55],
            showgrid=False,
            anchor="y2",
            tickangle=0 if count <= 8 else -45,
        ),
        "yaxis": axis(dark, ticksuffix=f" {unit.name}", domain=[0.36, 1], nticks=6),
        "yaxis2": axis(
            dark, ticksuffix=f" {behind.name}", domain=[0, 0.28], autorange="reversed", nticks=4,
            rangemode="tozero",
        ),
        "shapes": [
            {
                "type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "yref": "paper", "layer": "below",
                "line": {"color": palette.theme(dark).grid, "width": 1},
            }
            for place in range(count + 1)
        ],
    }  # fmt: skip


def _annotations(
    measures: Measures,
    diagnosis: Diagnosis,
    curves: _Curves,
    unit: format.Unit,
    shown: dict[int, str],
    dark: bool,
) -> list[dict[str, object]]:
    colours = palette.theme(dark)
    ranks = measures.window.ranks.rank
    labels = [
        note(
            "time behind the last rank (at the top: leads)", 0, 0.285, dark,
            xref="paper", yref="paper", xanchor="left", yanchor="bottom",
            font={"size": 11, "color": colours.muted},
        )
    ]  # fmt: skip
    labels += _handover_notes(measures, diagnosis, curves, unit, dark)
    end = curves.position_SR.shape[0] - 1
    names: dict[int, list[int]] = {}
    span = max(1.0, float(curves.frontier_S[-1]))
    for place in shown:
        slot = round(float(curves.position_SR[end, place]) / span / 0.06)
        names.setdefault(slot, []).append(place)
    for places in names.values():
        text = format.ranges([ranks[place] for place in places], 3)
        aimed = any(shown[place] == "aim" for place in places)
        labels.append(
            note(
                f"<b>rank{'s' if len(places) > 1 else ''} {text}</b>", end,
                float(curves.position_SR[end, places[0]]) / unit.ns, dark,
                xanchor="left", xshift=6, font={"size": 11, "color": colours.alarm if aimed else colours.ink},
            )
        )  # fmt: skip
    labels += _offset_note(measures, diagnosis, curves, unit, dark)
    return labels


def _offset_note(
    measures: Measures, diagnosis: Diagnosis, curves: _Curves, unit: format.Unit, dark: bool
) -> list[dict[str, object]]:
    """Where ranks do not start together (carry-over), who starts last and by how much."""
    start_R = curves.position_SR[0]
    apart = float(start_R.max() - np.median(start_R))
    if measures.ranks < 2 or apart < 0.05 * float(curves.frontier_S[-1]):
        return []
    last = int(start_R.argmax())
    text = (
        f"rank {measures.window.ranks.rank[last]} starts {format.duration(apart)} behind "
        f"the {'other' if measures.ranks == 2 else 'typical'} rank"
    )
    return [
        note(
            text, 0.04, float(start_R.max()) / unit.ns, dark,
            xanchor="left", yanchor="bottom", yshift=6, font={"size": 11, "color": palette.theme(dark).alarm},
        )
    ]  # fmt: skip


def _handover_notes(
    measures: Measures, diagnosis: Diagnosis, curves: _Curves, unit: format.Unit, dark: bool
) -> list[dict[str, object]]:
    """The clearest hand-overs, named where the new leader overtakes the old one."""
    total = float(curves.frontier_S[-1])
    found = []
    for stage in range(1, len(curves.leader_S)):
        old, new = curves.leader_S[stage - 1], curves.leader_S[stage]
        sure = min(curves.gap_S[stage - 1], curves.gap_S[stage]) >= diagnosis.gates.eta_q * total
        if old != new and sure:
            before = curves.position_SR[stage, old] - curves.position_SR[stage, new]
            after = curves.position_SR[stage + 1, new] - curves.position_SR[stage + 1, old]
            part = before / (before + after) if before + after > 0 else 0.5
            height = (1 - part) * curves.position_SR[stage, new] + part * curves.position_SR[stage + 1, new]
            found.append((float(after), stage + float(part), float(height), old, new))
    ranks = measures.window.ranks.rank
    return [
        note(
            f"rank {ranks[old]} → rank {ranks[new]}", x, height / unit.ns, dark,
            showarrow=True, arrowhead=0, arrowwidth=1, arrowcolor=palette.theme(dark).muted,
            ax=-36, ay=-26, font={"size": 11}, standoff=5,
        )
        for _, x, height, old, new in sorted(found, reverse=True)[:_NAMED_HANDOVERS]
    ]  # fmt: skip


def _in_words(measures: Measures, diagnosis: Diagnosis, curves: _Curves, which: str) -> str:
    ranks = measures.window.ranks.rank
    led = [
        f"rank {ranks[leader]} at {format.short_stage(stage)}"
        for stage, leader in zip(measures.window.stages, curves.leader_S, strict=True)
    ]
    return (
        f"Elapsed time of {format.counted(measures.ranks, 'rank')} at each stage boundary in the {which}; "
        f"last to arrive: {format.listed(led, 8)}."
    )
