"""What is written beside the prefix curves: names, hand-overs, where ranks meet and who starts late."""

from __future__ import annotations

from typing import Any

import numpy as np

from sfapp.views import format, palette
from sfapp.views.figures.base import note, plain
from sfapp.views.figures.prefix_curves import Scene
from sfapp.views.text.evidence import wait_source

_NAMED_HANDOVERS = 4


def notes_of(scene: Scene) -> list[dict[str, Any]]:
    """All annotations of the crossings plot."""
    colours = palette.theme(scene.dark)
    heading = note(
        "the same, as time before the last rank (0: leads)", 0, 0.29, scene.dark,
        xref="paper", yref="paper", xanchor="left", yanchor="bottom",
        font={"size": 11, "color": colours.muted},
    )  # fmt: skip
    return [
        heading,
        *_handover_notes(scene),
        *_meeting_note(scene),
        *_start_note(scene),
        *_names(scene),
    ]


def _names(scene: Scene) -> list[dict[str, Any]]:
    """Ranks drawn by name, named at the end, or where they are furthest from the others if they end alike."""
    colours = palette.theme(scene.dark)
    ranks = scene.measures.window.ranks.rank
    position_SR = scene.curves.position_SR
    end = position_SR.shape[0] - 1
    apart_SR = np.abs(position_SR - np.median(position_SR, axis=1, keepdims=True))
    span = max(1.0, float(position_SR.max() - position_SR.min()))
    spots: dict[tuple[int, int], list[int]] = {}
    for place in scene.shown:
        furthest = int(apart_SR[:, place].argmax())
        where = end if apart_SR[end, place] >= 0.5 * apart_SR[furthest, place] else furthest
        spots.setdefault((where, round(float(position_SR[where, place]) / span / 0.07)), []).append(place)
    labels = []
    for (where, _), places in spots.items():
        text = format.ranges([ranks[place] for place in places], 2)
        aimed = any(scene.shown[place] == "aim" for place in places)
        spot = {"xanchor": "left", "xshift": 7} if where == end else {"yanchor": "bottom", "yshift": 6}
        labels.append(
            note(
                f"<b>rank{'s' if len(places) > 1 else ''} {text}</b>",
                where,
                float(position_SR[where, places[0]]) / scene.unit.ns,
                scene.dark,
                font={"size": 11, "color": colours.alarm if aimed else colours.ink},
                **spot,
            )
        )
    others = [place for place in range(len(ranks)) if place not in scene.shown]
    if others:
        level = float(np.median(position_SR[end, others]))
        if (end, round(level / span / 0.07)) not in spots:
            text = format.counted(len(others), "other rank") if scene.shown else f"all {len(others)} ranks"
            labels.append(
                note(
                    # Two lines: there is little room beside a narrow plot.
                    "<br>".join(text.rsplit(" ", 1)), end, level / scene.unit.ns, scene.dark,
                    xanchor="left", xshift=7, align="left", font={"size": 11, "color": colours.muted},
                )
            )  # fmt: skip
    return labels


def _start_note(scene: Scene) -> list[dict[str, Any]]:
    """Where ranks do not start together (carry-over): who starts last, and by how much."""
    start_R = scene.curves.position_SR[0]
    middle, last = float(np.median(start_R)), int(start_R.argmax())
    apart = float(start_R[last]) - middle
    if scene.measures.ranks < 2 or apart < 0.05 * float(scene.curves.frontier_S[-1]):
        return []
    text = (
        f"rank {scene.measures.window.ranks.rank[last]} starts<br>{format.duration(apart)} behind "
        f"{'the other' if scene.measures.ranks == 2 else 'the others'}"
    )
    return [
        note(
            text, 0.08, (float(start_R[last]) + middle) / 2 / scene.unit.ns, scene.dark,
            xanchor="left", align="left", font={"size": 11, "color": palette.theme(scene.dark).alarm},
        )
    ]  # fmt: skip


def _meeting_note(scene: Scene) -> list[dict[str, Any]]:
    """Where ranks measurably wait for each other and arrive together."""
    stage, curves = scene.diagnosis.sync_boundary, scene.curves
    stages = scene.measures.window.stages
    if stage not in stages:
        return []
    end = stages.index(stage) + 1
    spread_S = curves.position_SR.max(axis=1) - curves.position_SR.min(axis=1)
    if spread_S[end] > 0.3 * float(spread_S.max()):
        return []
    known = wait_source(scene.diagnosis)
    return [
        note(
            f"ranks meet: they wait<br>in {plain(format.short_stage(stage))} ({known})",
            end,
            float(curves.frontier_S[end]) / scene.unit.ns,
            scene.dark,
            showarrow=True, arrowhead=0, arrowwidth=1, arrowcolor=palette.theme(scene.dark).muted,
            ax=-14, ay=-44, xanchor="right", align="right", standoff=5, font={"size": 11},
        )
    ]  # fmt: skip


def _handover_notes(scene: Scene) -> list[dict[str, Any]]:
    """The clearest hand-overs, named where the new leader overtakes the old one."""
    ranks = scene.measures.window.ranks.rank
    found = scene.curves.handovers(scene.diagnosis.gates.eta_q)
    return [
        note(
            f"rank {ranks[hand.old]} → rank {ranks[hand.new]}",
            hand.x, hand.height / scene.unit.ns, scene.dark,
            showarrow=True, arrowhead=0, arrowwidth=1, arrowcolor=palette.theme(scene.dark).muted,
            ax=-34, ay=-26, font={"size": 11}, standoff=5,
        )
        for hand in found[:_NAMED_HANDOVERS]
    ]  # fmt: skip
