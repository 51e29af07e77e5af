"""Draw the path from a cause to the last operator that it delays (kair.md, `blame`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from sfapp.model import Diagnosis
from sfapp.model.view import ViewState
from sfapp.operators import Cause, Findings, PathStep
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, axis, empty_figure, figure, note, plain, revision
from sfapp.views.plot_registry import FindingsInput, Placement, PlotSpec
from sfapp.views.selection import chosen_cause
from sfapp.views.text.stragglers import CAUSE_KINDS, VIAS, cause_words, operator_name

PLOT = PlotSpec(
    name="blame_path",
    title="Path from cause to delayed rank",
    help=(
        "The cause is on the left, the operator that it delays last on the right. Each edge says why the "
        "later one had to wait for the earlier one; a change of row means that one rank delays another."
    ),
    source=FindingsInput,
    build=lambda given, dark: blame_path(given.findings, given.diagnosis, given.view, dark=dark),
    reads=("findings", "cause"),
    tabs=(Placement("stragglers", 50),),
    report=20,
    notebook=None,
)

STEPS_SHOWN = 7
"""Maximum number of drawn events of a path, so that their names fit; the middle of a longer path is left
out."""

_NAME = 13
"""Number of characters per line of an event's name in the longest path; shorter paths have room for more."""

_JOINTS = " _.:#/,<>()"
"""Number of characters after which a name may be wrapped."""


@dataclass(frozen=True, slots=True)
class _Node:
    """One event and its place; ``left_out`` events before it are not drawn."""

    step: PathStep
    x: int
    left_out: int


def blame_path(findings: Findings, diagnosis: Diagnosis, view: ViewState, *, dark: bool = False) -> Figure:
    """Return the path of the selected cause from left to right, one row per rank."""
    cause = chosen_cause(findings, view)
    if cause is None:
        message, heading = _no_cause(findings, view)
        return empty_figure(message, dark=dark, title=PLOT.title, heading=heading)
    if not cause.path:
        return empty_figure(
            f"no path is stored for {cause_words(cause)}: only the costliest causes have one",
            dark=dark,
            title=PLOT.title,
        )
    nodes = _nodes(cause.path)
    ranks = list(dict.fromkeys(node.step.rank for node in nodes))
    row_of = {rank: row for row, rank in enumerate(ranks)}
    left_out = sum(node.left_out for node in nodes)
    return figure(
        [_markers(findings, cause, nodes, row_of, dark)],
        dark=dark,
        title=PLOT.title,
        subtitle=f"{format.clip(cause_words(cause), 90)}, {format.duration(cause.worst_ns)} at worst",
        alt=_in_words(cause, ranks),
        notes=_notes(findings, cause, nodes, left_out),
        height=int(min(640, 120 + 104 * len(ranks))),
        margin={"l": 8, "r": 24, "t": 12, "b": 12},
        xaxis=axis(dark, visible=False, range=[-0.6, max(len(nodes), 3) - 0.4]),
        yaxis=axis(
            dark, range=[len(ranks) - 0.4, -0.6], zeroline=False, tickvals=list(range(len(ranks))),
            ticktext=[f"rank {rank}" for rank in ranks],
            tickfont={"color": palette.theme(dark).ink, "size": 12},
        ),
        annotations=[
            # In a narrow plot, the texts of the cause and the delayed event take precedence.
            *(
                words
                for node in sorted(nodes, key=lambda node: not _role(cause, node.step))
                for words in _labels(node, _role(cause, node.step), row_of, len(nodes), dark)
            ),
            *_edges(nodes, row_of, dark),
        ],
        hovermode="closest",
        uirevision=revision(diagnosis, "path", view.cause),
    )  # fmt: skip


def _no_cause(findings: Findings, view: ViewState) -> tuple[str, str]:
    """Return why there is no cause to show, and the heading: ``none`` if there is nothing to find."""
    found = findings.blame
    if found.causes:
        causes = format.counted(len(found.causes), "cause")
        return f"there is no cause {format.count((view.cause or 0) + 1)}: these findings name {causes}", "n/a"
    if found.symptoms:
        late = format.counted(found.symptoms, "event")
        return f"{late} started late or took long; none can be traced to a cause", "n/a"
    if found.notes:
        return found.notes[0], "n/a"
    return "no event started late or took long", "none"


def _nodes(path: tuple[PathStep, ...]) -> list[_Node]:
    """Return the events of the path in order; for a long path, the first and the last few."""
    if len(path) <= STEPS_SHOWN:
        return [_Node(step, x, 0) for x, step in enumerate(path)]
    head = STEPS_SHOWN // 2
    tail = STEPS_SHOWN - head
    kept = [*path[:head], *path[-tail:]]
    return [_Node(step, x, len(path) - STEPS_SHOWN if x == head else 0) for x, step in enumerate(kept)]


def _markers(
    findings: Findings, cause: Cause, nodes: list[_Node], row_of: dict[int, int], dark: bool
) -> dict[str, object]:
    """Return the events in the colours of their categories or stages."""
    colours = palette.theme(dark)
    steps = [node.step for node in nodes]
    if findings.source == "stages":
        by_stage = palette.stage_colours(findings.operators.names, dark)
        shades = [by_stage[step.name] for step in steps]
    else:
        by_category = palette.category_colours(dark)
        shades = [by_category[step.category] for step in steps]
    is_cause = [node.step.event == cause.event for node in nodes]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [node.x for node in nodes],
        "y": [row_of[node.step.rank] for node in nodes],
        "marker": {
            "size": [20 if its else 15 for its in is_cause],
            "symbol": ["diamond" if its else "circle" for its in is_cause],
            "color": shades,
            "opacity": 1,
            "line": {"color": colours.ink, "width": [2.5 if its else 1 for its in is_cause]},
        },
        "hovertext": [_hover(node.step, its) for node, its in zip(nodes, is_cause, strict=True)],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "cliponaxis": False,
        "showlegend": False,
        "name": "events",
    }


def _hover(step: PathStep, is_cause: bool) -> str:
    lines = [
        f"<b>{plain(operator_name(step.name, 80), 80)}</b>{' (the cause)' if is_cause else ''}",
        f"rank {step.rank}, {step.category}",
        _late(step),
    ]
    if step.via:
        lines.append(f"waits for {VIAS[step.via][1]}")
    return "<br>".join(lines)


def _late(step: PathStep) -> str:
    if not math.isfinite(step.late_ns):
        return "no counterpart on other ranks"
    if abs(step.late_ns) < 500:
        return "on time"
    return f"{format.duration(abs(step.late_ns))} {'late' if step.late_ns > 0 else 'early'}"


def _edges(nodes: list[_Node], row_of: dict[int, int], dark: bool) -> list[dict[str, object]]:
    """Return an arrow from each event to the one that waited for it, with the reason for the wait."""
    colours = palette.theme(dark)
    drawn: list[dict[str, object]] = []
    for before, after in pairwise(nodes):
        y0, y1 = row_of[before.step.rank], row_of[after.step.rank]
        drawn.append(
            {
                "text": "", "x": after.x, "y": y1, "ax": before.x, "ay": y0,
                "xref": "x", "yref": "y", "axref": "x", "ayref": "y", "showarrow": True,
                "arrowhead": 2, "arrowwidth": 1.5, "arrowcolor": colours.muted,
                "standoff": 12, "startstandoff": 12,
            }
        )  # fmt: skip
        via = f"… {format.count(after.left_out)} more …" if after.left_out else VIAS[after.step.via][0]
        drawn.append(
            note(
                via, (before.x + after.x) / 2, (y0 + y1) / 2, dark, bgcolor=colours.surface,
                borderpad=1, font={"size": 12, "color": colours.muted}, yshift=0 if y0 != y1 else -9,
            )
        )  # fmt: skip
    return drawn


def _role(cause: Cause, step: PathStep) -> str:
    """Return the role of an event on the path; empty for events between its ends."""
    if step.event == cause.event:
        return "cause"
    if step is cause.path[-1]:
        return "delayed"
    return "on time" if cause.kind == "edge" and step is cause.path[0] else ""


def _two_lines(name: str, width: int) -> list[str]:
    """Return a name in at most two lines, wrapped between its parts if possible."""
    if len(name) <= width:
        return [name]
    cuts = [place for place in range(width // 2, width + 1) if name[place - 1] in _JOINTS]
    cut = cuts[-1] if cuts else width
    return [name[:cut].strip(), name[cut:].strip()]


def _labels(
    node: _Node, role: str, row_of: dict[int, int], count: int, dark: bool
) -> list[dict[str, object]]:
    """Return the event's name and role above its mark and its delay below; ``count`` events share the "
    "width."""
    colours = palette.theme(dark)
    width = max(_NAME, min(2 * _NAME, _NAME * STEPS_SHOWN // count))
    name = "<br>".join(plain(line, width) for line in _two_lines(operator_name(node.step.name, 200), width))
    if role:
        name = f"<b>{role}</b><br>{name}"
    at = row_of[node.step.rank]
    return [
        note(name, node.x, at, dark, yanchor="bottom", yshift=14, font={"size": 12, "color": colours.ink}),
        note(
            _late(node.step) if math.isfinite(node.step.late_ns) else "no counterpart", node.x, at, dark,
            yanchor="top", yshift=-16, font={"size": 12, "color": colours.muted},
        ),
    ]  # fmt: skip


def _notes(findings: Findings, cause: Cause, nodes: list[_Node], left_out: int) -> tuple[str, ...]:
    notes = [CAUSE_KINDS[cause.kind]]
    used = dict.fromkeys(node.step.via for node in nodes if node.step.via and not node.left_out)
    reasons = [f"{VIAS[via][0]}: waits for {VIAS[via][1]}" for via in used]
    if reasons:
        notes.append(f"{'; '.join(reasons)}.")
    if left_out:
        notes.append(f"{format.counted(left_out, 'event')} in the middle of the path are left out.")
    if len(nodes) == 1:
        waiting = "Its whole group waited" if cause.kind == "transfer" else "No other event waited"
        notes.append(f"{waiting} for it.")
    if findings.source == "stages":
        notes.append("Based on stages, not on operators.")
    return tuple(notes)


def _in_words(cause: Cause, ranks: list[int]) -> str:
    if len(cause.path) == 1:
        return f"{format.clip(cause_words(cause), 90)}: one event, with no path to another."
    first, last = cause.path[0], cause.path[-1]
    between = len(cause.path) - 2
    over = f"over {format.counted(between, 'event')} " if between else ""
    return (
        f"From {operator_name(first.name)} on rank {first.rank} {over}to {operator_name(last.name)} "
        f"on rank {last.rank}, {_late(last)}; ranks on the path: {format.ranges(ranks)}."
    )
