"""Draw how often one operator occurs over time and ranks, with gaps and degraded bands (kair.md,
Frequency)."""

from __future__ import annotations

import numpy as np

from sfapp.model import CATEGORIES, Diagnosis
from sfapp.model.view import ViewState
from sfapp.operators import Band, Findings, Frequency, frequency
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, axis, colour_key, empty_figure, f4, figure, revision
from sfapp.views.plot_registry import FindingsInput, Placement, PlotSpec
from sfapp.views.selection import operator_shown
from sfapp.views.text.stragglers import operator_name

PLOT = PlotSpec(
    name="operator_frequency",
    title="Operator frequency",
    help=(
        "How often one operator begins, over time and ranks. A pale stretch in one row is a rank that falls "
        "behind, a pale stretch across all rows is a stall of all ranks; frames mark where half or more is "
        "missing."
    ),
    source=FindingsInput,
    build=lambda given, dark: operator_frequency(given.findings, given.diagnosis, given.view, dark=dark),
    reads=("findings", "cause", "operator"),
    tabs=(Placement("stragglers", 100),),
    report=None,
    notebook=None,
)

RANKS_SHOWN = 256
"""Maximum number of drawn ranks: those that miss most occurrences, then the first ones."""

BANDS_SHOWN = 64
"""Maximum number of framed bands: those that miss most occurrences."""

_NAMED = 32
_TICKS = 16


def operator_frequency(
    findings: Findings, diagnosis: Diagnosis, view: ViewState, *, dark: bool = False
) -> Figure:
    """Return how often the selected operator begins, per rank and time window, with bands framed."""
    operators = findings.operators
    name = operator_shown(findings, view)
    if name is None:
        return empty_figure("there are no events to count", dark=dark, title=PLOT.title)
    found = frequency(operators, name)
    if not found.ranks:
        return empty_figure(
            f"no event belongs to an operator called {format.clip(name, 80)}", dark=dark, title=PLOT.title
        )
    rows = _rows(found)
    ranks = [found.ranks[row] for row in rows]
    colours = palette.theme(dark)
    windows = found.count_RT.shape[1]
    unit = format.unit_for(windows * found.window_ns)
    span = int(operators.end_ns_E.max()) - found.start_ns
    edges = np.minimum(np.arange(windows + 1) * found.window_ns, max(span, 1)) / unit.ns
    bands = sorted((band for band in found.bands if band.rank in (None, *ranks)), key=_missing)
    shown = bands[:BANDS_SHOWN]
    category = CATEGORIES[
        int(operators.category_E[(operators.name_E == operators.names.index(name)).argmax()])
    ]
    heat = {
        "type": "heatmap",
        "z": f4(found.count_RT[rows]),
        "x": f4(edges),  # window borders: a single window has no neighbours, and the last one is cut short
        "y": [f"rank {rank}" for rank in ranks],
        "colorscale": palette.scale(palette.category_colours(dark)[category], colours),
        "zmin": 0,
        "zmax": max(int(found.count_RT[rows].max()), 1),
        "ygap": 1 if len(rows) <= 64 else 0,
        "colorbar": colour_key(dark, "×"),
        "hovertemplate": f"%{{y}}, around %{{x:.2f}} {unit.name}<br>%{{z:d}} times<extra></extra>",
    }  # fmt: skip
    return figure(
        [heat],
        dark=dark,
        title=PLOT.title,
        subtitle=f"{operator_name(name, 60)}: how often it begins in each {format.duration(found.window_ns)}",
        alt=_in_words(found, name, span),
        notes=_notes(findings, found, len(rows), len(bands)),
        height=int(min(640, max(240, 100 + 20 * len(rows)))) if len(rows) <= _NAMED else 480,
        margin={"l": 8, "r": 8, "t": 12, "b": 8},
        xaxis=axis(
            dark, showgrid=False, ticksuffix=f" {unit.name}", nticks=8, range=[0, float(edges[-1])],
            title="since the first event",
        ),
        yaxis=_rank_axis(ranks, dark),
        shapes=[_frame(band, found, ranks, unit, colours) for band in shown],
        hovermode="closest",
        uirevision=revision(diagnosis, "frequency", name),
    )  # fmt: skip


def _missing(band: Band) -> float:
    """Return a sort key that puts the bands that miss most first."""
    return band.found - band.expected


def _rows(found: Frequency) -> list[int]:
    """Return the rows to show, ascending."""
    ranks = len(found.ranks)
    if ranks <= RANKS_SHOWN:
        return list(range(ranks))
    row_of = {rank: row for row, rank in enumerate(found.ranks)}
    falling = [row_of[band.rank] for band in sorted(found.bands, key=_missing) if band.rank is not None]
    return sorted(list(dict.fromkeys([*falling, *range(ranks)]))[:RANKS_SHOWN])


def _rank_axis(ranks: list[int], dark: bool) -> dict[str, object]:
    places = list(range(0, len(ranks), 1 if len(ranks) <= _NAMED else -(-len(ranks) // _TICKS)))
    return axis(
        dark, type="category", autorange="reversed", showgrid=False, tickvals=places,
        ticktext=[f"r{ranks[place]}" for place in places],
        tickfont={"color": palette.theme(dark).ink, "size": 12},
    )  # fmt: skip


def _frame(
    band: Band, found: Frequency, ranks: list[int], unit: format.Unit, colours: palette.Theme
) -> dict[str, object]:
    """Return a frame, solid for a gap, dashed for a degraded band; a band of all ranks spans all rows."""
    row = None if band.rank is None else ranks.index(band.rank)
    return {
        "type": "rect",
        "x0": (band.start_ns - found.start_ns) / unit.ns,
        "x1": (band.end_ns - found.start_ns) / unit.ns,
        "y0": -0.5 if row is None else row - 0.5,
        "y1": len(ranks) - 0.5 if row is None else row + 0.5,
        "line": {"color": colours.alarm, "width": 2, "dash": "solid" if band.is_gap else "dash"},
    }


def _notes(findings: Findings, found: Frequency, rows: int, bands: int) -> tuple[str, ...]:
    notes = []
    if rows < len(found.ranks):
        notes.append(
            f"{rows} of {format.count(len(found.ranks))} ranks are shown: those that fall behind, then the "
            f"first ones."
        )
    if bands > BANDS_SHOWN:
        notes.append(
            f"{BANDS_SHOWN} of {format.count(bands)} bands are framed: those that miss most occurrences."
        )
    elif bands:
        notes.append("Framed: half or more is missing; dashed: some occur, solid: none.")
    without = len(findings.similarity.ranks) - len(found.ranks)
    if without > 0:
        notes.append(f"{format.counted(without, 'rank')} never run it.")
    if found.count_RT.shape[1] == 1:
        notes.append("It occurs too rarely to be shown over time: all occurrences are in one window.")
    last = "" if found.count_RT.shape[1] == 1 else "; the last one ends with the events"
    notes.append(f"A window is {format.duration(found.window_ns)}, {found.why}{last}.")
    if findings.source == "stages":
        notes.append("Based on stages, not on operators.")
    return tuple(notes)


def _in_words(found: Frequency, name: str, span: int) -> str:
    text = (
        f"{operator_name(name)} on {format.counted(len(found.ranks), 'rank')}, "
        f"{format.count(int(found.count_RT.sum()))} times in {format.duration(span)}: "
    )
    if not found.bands:
        return f"{text}no gap and no degraded band."
    worst = min(found.bands, key=_missing)
    subject = "all ranks" if worst.rank is None else f"rank {worst.rank}"
    return (
        f"{text}{format.counted(len(found.bands), 'gap or band', 'gaps and bands')}; most are missing on "
        f"{subject}: {format.count(worst.found)} of {worst.expected:,.0f} occur from "
        f"{format.duration(worst.start_ns - found.start_ns)} on."
    )
