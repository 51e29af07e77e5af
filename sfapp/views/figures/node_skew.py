"""Draw skew within one node and across nodes."""

from __future__ import annotations

import numpy as np

from sfapp.accounting import Measures
from sfapp.model import Diagnosis
from sfapp.model.arrays import to_numpy
from sfapp.views import format, palette
from sfapp.views.figures.active_frontier import Floats, too_few_rows, waits_in
from sfapp.views.figures.base import Figure, Trace, axis, empty_figure, figure, legend_above, plain, revision
from sfapp.views.figures.node import ranks_on
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput

SKEW = PlotSpec(
    name="node_skew",
    title="Skew of a node",
    help=(
        "Solid: by how much the node's slowest rank exceeds its typical rank. Hatched: by how much the whole "
        "node exceeds the others. A long hatched bar points to the host, a long solid bar to a rank. Stages "
        "with measured waits count without them."
    ),
    source=WindowInput,
    build=lambda given, dark: node_skew(given.measures, given.diagnosis, given.node, dark=dark),
    reads=("frontier", "aim", "node"),
    tabs=(Placement("node", 40, 5),),
    report=None,
    notebook="node_skew",
)


def node_skew(measures: Measures, diagnosis: Diagnosis, node: int, *, dark: bool = False) -> Figure:
    """Return, per stage, the node's slowest rank vs its median rank, and its median vs the other nodes'."""
    places = ranks_on(measures, node)
    title = SKEW.title_of(node)
    if not places:
        return empty_figure(f"no rank of node {node} is in this group", dark=dark, title=title)
    if not measures.has_all_rows:
        return empty_figure(too_few_rows(measures), dark=dark, title=title)
    inside_B, across_B = _skews(measures, places)
    reach = np.concatenate([inside_B, inside_B if across_B is None else across_B])
    unit = format.unit_for(float(np.abs(reach).max()))
    lowest, highest = float(reach.min()) / unit.ns, max(float(reach.max()) / unit.ns, 1e-6)
    traces = [_skew_bars(measures, inside_B, unit, "slowest rank vs the node's median", False, dark)]
    if across_B is not None:
        traces.append(_skew_bars(measures, across_B, unit, "node's median vs the other nodes'", True, dark))
    colours = palette.theme(dark)
    own = "own " if any(waits_in(measures, stage) is not None for stage in measures.broad) else ""
    return figure(
        traces,
        dark=dark,
        title=title,
        subtitle=f"mean {own}time per step: within the node, and vs the other nodes",
        alt=_skew_in_words(measures, node, inside_B, across_B),
        notes=("n/a vs other nodes: this group holds one node only.",) if across_B is None else (),
        height=110 + 44 * len(measures.broad),
        barmode="group",
        bargap=0.3,
        margin={"l": 8, "r": 64, "t": 34, "b": 8},
        xaxis=axis(
            dark, ticksuffix=f" {unit.name}", zeroline=True, zerolinecolor=colours.axis, nticks=6,
            range=[min(1.35 * lowest, -0.2 * highest) if lowest < 0 else 0, 1.25 * highest],
        ),
        yaxis=axis(dark, autorange="reversed", showgrid=False, tickfont={"color": colours.ink, "size": 12}),
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        uirevision=revision(diagnosis, "node", node),
    )  # fmt: skip


def _skews(measures: Measures, places: list[int]) -> tuple[Floats, Floats | None]:
    """Return, per broad stage, the skew within a node and across nodes, ns; None for one node alone.

    Own time is used if waits are known: ranks that wait for a slow rank take equally long.
    """
    mean_BR = measures.by_broad(to_numpy(measures.window.duration_SNR).mean(axis=1))
    for index, stage in enumerate(measures.broad):
        waited_NR = waits_in(measures, stage)
        if waited_NR is not None:
            mean_BR[index] -= waited_NR.mean(axis=0)
    others = [place for place in range(len(measures.window.ranks)) if place not in set(places)]
    median_B = np.median(mean_BR[:, places], axis=1)
    inside_B = mean_BR[:, places].max(axis=1) - median_B
    return inside_B, median_B - np.median(mean_BR[:, others], axis=1) if others else None


def _skew_bars(
    measures: Measures, value_B: Floats, unit: format.Unit, name: str, is_hatched: bool, dark: bool
) -> Trace:
    short = format.short_stages(measures.broad)
    by_stage = palette.stage_colours(measures.broad, dark)
    shades = [by_stage[stage] for stage in measures.broad]
    return {
        "type": "bar",
        "orientation": "h",
        "y": [plain(short[stage], 28) for stage in measures.broad],
        "x": (value_B / unit.ns).tolist(),
        "name": name,
        "marker": {
            "color": shades,
            "line": {"color": shades, "width": 1.2},
            "pattern": {
                "shape": "/" if is_hatched else "",
                "fillmode": "replace",
                "fgcolor": shades,
                "bgcolor": [palette.alpha(shade, 0.1) for shade in shades],
                "size": 6,
                "solidity": 0.35,
            },
        },
        "text": [format.change(float(value)) for value in value_B],
        "textposition": "outside",
        "cliponaxis": False,
        "textfont": {"color": palette.theme(dark).ink, "size": 12},
        "hovertemplate": f"%{{y}}: %{{text}}<extra>{name}</extra>",
    }


def _skew_in_words(measures: Measures, node: int, inside_B: Floats, across_B: Floats | None) -> str:
    top = int(inside_B.argmax())
    text = (
        f"Within node {node}, ranks differ most in {format.short_stage(measures.broad[top])}, by "
        f"{format.duration(inside_B[top])} per step; "
    )
    if across_B is None:
        return f"{text}there is no other node to compare with."
    largest = format.duration(float(np.abs(across_B).max()))
    return f"{text}its median differs from the other nodes' by up to {largest}."
