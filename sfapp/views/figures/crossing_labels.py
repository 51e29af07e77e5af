"""Label the prefix curves: rank names, changes of the slowest rank, synchronisation, late starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sfapp.views import format, palette
from sfapp.views.figures.base import note, plain
from sfapp.views.figures.prefix_curves import CurvesInput
from sfapp.views.text.evidence import wait_source

_NAMED_HANDOVERS = 4


def notes_of(given: CurvesInput) -> list[dict[str, Any]]:
    """Return all annotations of the plot."""
    colours = palette.theme(given.dark)
    heading = note(
        "lead over the slowest rank", 0, 0.29, given.dark,
        xref="paper", yref="paper", xanchor="left", yanchor="bottom",
        font={"size": 12, "color": colours.muted},
    )  # fmt: skip
    return [
        heading,
        *_handover_notes(given),
        *_sync_note(given),
        *_start_note(given),
        *_names(given),
    ]


def _names(given: CurvesInput) -> list[dict[str, Any]]:
    """Return rank names at the end of the curves, or where they differ most if they end together."""
    colours = palette.theme(given.dark)
    ranks = given.measures.window.ranks.rank
    position_SR = given.curves.position_SR
    end = position_SR.shape[0] - 1
    apart_SR = np.abs(position_SR - np.median(position_SR, axis=1, keepdims=True))
    span = max(1.0, float(position_SR.max() - position_SR.min()))
    spots: dict[tuple[int, int], list[int]] = {}
    for place in given.shown:
        furthest = int(apart_SR[:, place].argmax())
        where = end if apart_SR[end, place] >= 0.5 * apart_SR[furthest, place] else furthest
        spots.setdefault((where, round(float(position_SR[where, place]) / span / 0.07)), []).append(place)
    labels = []
    # The first of two colliding labels keeps its place.
    for (where, _), places in sorted(spots.items(), key=lambda spot: not _has_suspect(given, spot[1])):
        text = format.ranges([ranks[place] for place in places], 2)
        aimed = _has_suspect(given, places)
        spot = {"xanchor": "left", "xshift": 7} if where == end else {"yanchor": "bottom", "yshift": 6}
        labels.append(
            note(
                f"<b>rank{'s' if len(places) > 1 else ''} {text}</b>",
                where,
                float(position_SR[where, places[0]]) / given.unit.ns,
                given.dark,
                font={"size": 12, "color": colours.alarm if aimed else colours.ink},
                **spot,
            )
        )
    others = [place for place in range(len(ranks)) if place not in given.shown]
    if others:
        level = float(np.median(position_SR[end, others]))
        if (end, round(level / span / 0.07)) not in spots:
            text = format.counted(len(others), "other rank") if given.shown else f"all {len(others)} ranks"
            labels.append(
                note(
                    # Two lines, because a narrow plot has little room at its side.
                    "<br>".join(text.rsplit(" ", 1)), end, level / given.unit.ns, given.dark,
                    xanchor="left", xshift=7, align="left", font={"size": 12, "color": colours.muted},
                )
            )  # fmt: skip
    return labels


def _start_note(given: CurvesInput) -> list[dict[str, Any]]:
    """Return which rank starts last and by how much, if ranks do not start together (carry-over)."""
    start_R = given.curves.position_SR[0]
    middle, last = float(np.median(start_R)), int(start_R.argmax())
    apart = float(start_R[last]) - middle
    if given.measures.ranks < 2 or apart < 0.05 * float(given.curves.frontier_S[-1]):
        return []
    text = (
        f"rank {given.measures.window.ranks.rank[last]} starts<br>{format.duration(apart)} behind "
        f"{'the other' if given.measures.ranks == 2 else 'the others'}"
    )
    return [
        note(
            text, 0.08, (float(start_R[last]) + middle) / 2 / given.unit.ns, given.dark,
            xanchor="left", align="left", font={"size": 12, "color": palette.theme(given.dark).alarm},
        )
    ]  # fmt: skip


def _sync_note(given: CurvesInput) -> list[dict[str, Any]]:
    """Return a label at the boundary where ranks measurably wait for each other and arrive together."""
    stage, curves = given.diagnosis.sync_boundary, given.curves
    stages = given.measures.window.stages
    if stage not in stages:
        return []
    end = stages.index(stage) + 1
    spread_S = curves.position_SR.max(axis=1) - curves.position_SR.min(axis=1)
    if spread_S[end] > 0.3 * float(spread_S.max()):
        return []
    source = wait_source(given.diagnosis)
    return [
        note(
            f"ranks synchronise: they wait<br>{plain(format.in_stage(stage))} ({source})",
            end,
            float(curves.frontier_S[end]) / given.unit.ns,
            given.dark,
            showarrow=True, arrowhead=0, arrowwidth=1, arrowcolor=palette.theme(given.dark).muted,
            ax=-14, ay=-44, xanchor="right", align="right", standoff=5, font={"size": 12},
        )
    ]  # fmt: skip


def _handover_notes(given: CurvesInput) -> list[dict[str, Any]]:
    """Return the clearest changes of the slowest rank, labelled where one curve crosses the other."""
    ranks = given.measures.window.ranks.rank
    found = given.curves.handovers(given.diagnosis.gates.eta_q)
    return [
        note(
            f"rank {ranks[crossing.old]} → rank {ranks[crossing.new]}",
            crossing.x, crossing.height / given.unit.ns, given.dark,
            showarrow=True, arrowhead=0, arrowwidth=1, arrowcolor=palette.theme(given.dark).muted,
            ax=-34, ay=-26, font={"size": 12}, standoff=5,
        )
        for crossing in found[:_NAMED_HANDOVERS]
    ]  # fmt: skip


def _has_suspect(given: CurvesInput, places: Sequence[int]) -> bool:
    return any(given.shown[place] == "suspect" for place in places)
