"""Draw rank similarity: distances between the completion curves of ranks, and a score per rank (kair.md)."""

from __future__ import annotations

import numpy as np

from sfapp.model import Diagnosis
from sfapp.model.view import ViewState
from sfapp.operators import Cause, Findings, RankSimilarity
from sfapp.operators.cohorts import MIN_COHORT
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, Trace, axis, colour_key, empty_figure, f4, figure, note, revision
from sfapp.views.plot_registry import FindingsInput, Placement, PlotSpec
from sfapp.views.selection import aimed_rank, chosen_cause

DISTANCES = PlotSpec(
    name="straggler_distances",
    title="Rank similarity",
    help=(
        "One cell per pair of ranks: the darker, the less their operators complete at the same time within a "
        "step. A dark row and column is one rank that differs from all others; a dark block in a corner is a "
        "group of ranks that differ together; no pattern means that no rank stands out."
    ),
    source=FindingsInput,
    build=lambda given, dark: straggler_distances(given.findings, given.diagnosis, dark=dark),
    reads=("findings", "aim"),
    tabs=(Placement("stragglers", 20, 7),),
    report=10,
    notebook=None,
)

SCORES = PlotSpec(
    name="straggler_scores",
    title="Abnormality score per rank",
    help=(
        "A rank's mean distance from all others. One long bar is one rank that differs. It need not be slow: "
        "a rank that is early differs too."
    ),
    source=FindingsInput,
    build=lambda given, dark: straggler_scores(given.findings, given.diagnosis, given.view, dark=dark),
    reads=("findings", "aim", "cause"),
    tabs=(Placement("stragglers", 30, 5),),
    report=None,
    notebook=None,
)

RANKS_SHOWN = 256
"""Maximum number of drawn ranks, the most abnormal ones: with more, a row would be thinner than two
pixels."""

_NAMED = 32
"""Number of ranks up to which each has a label."""

_TICKS = 16


def straggler_distances(findings: Findings, diagnosis: Diagnosis, *, dark: bool = False) -> Figure:
    """Return the distance between the completion curves of any two ranks, the most abnormal rank first."""
    similarity = findings.similarity
    if len(similarity.ranks) < 2:
        return empty_figure(_too_few(similarity), dark=dark, title=DISTANCES.title)
    shown = similarity.order_R[:RANKS_SHOWN]
    colours = palette.theme(dark)
    distance = similarity.distance_RR[np.ix_(shown, shown)]
    names = _names(similarity)
    ranks = [similarity.ranks[place] for place in shown]
    rows = len(shown)
    heat = {
        "type": "heatmap",
        "z": f4(distance),
        "x": [f"rank {rank}" for rank in ranks],
        "y": names,
        "colorscale": palette.scale(colours.accent, colours),
        "zmin": 0,
        "zmax": max(float(distance.max()), 1e-3),
        "xgap": 1 if rows <= 64 else 0,
        "ygap": 1 if rows <= 64 else 0,
        "colorbar": colour_key(dark),
        "hovertemplate": "%{y}<br>vs %{x}: distance %{z:.3f}<extra></extra>",
    }  # fmt: skip
    aimed = aimed_rank(diagnosis)
    return figure(
        [heat],
        dark=dark,
        title=DISTANCES.title,
        subtitle="K-S distance between the operator completions of two ranks within a step, by abnormality",
        alt=f"K-S distances of {format.counted(len(similarity.ranks), 'rank')}: {_in_words(similarity)}",
        notes=_notes(findings, aimed),
        height=_height(rows),
        margin={"l": 8, "r": 8, "t": 12, "b": 8},
        xaxis=_rank_axis(ranks, aimed, dark),
        yaxis=_rank_axis(ranks, aimed, dark) | {"autorange": "reversed"},
        hovermode="closest",
        uirevision=revision(diagnosis, "similarity"),
    )


def straggler_scores(
    findings: Findings, diagnosis: Diagnosis, view: ViewState, *, dark: bool = False
) -> Figure:
    """Return each rank's score, in the rows of ``straggler_distances``; suspect and cause are marked."""
    similarity = findings.similarity
    if len(similarity.ranks) < 2:
        return empty_figure(_too_few(similarity), dark=dark, title=SCORES.title)
    shown = similarity.order_R[:RANKS_SHOWN]
    colours = palette.theme(dark)
    ranks = [similarity.ranks[place] for place in shown]
    score = similarity.score_R[shown]
    marks = _marks(aimed_rank(diagnosis), chosen_cause(findings, view))
    named = len(ranks) <= _NAMED
    bars: Trace = {
        "type": "bar",
        "orientation": "h",
        "x": f4(score),
        "y": _names(similarity),
        "marker": {"color": [colours.accent if rank in marks else colours.rank for rank in ranks]},
        "hovertemplate": "%{y}<extra></extra>",
    }
    if named:
        bars |= {
            "text": [
                f"{format.share(value)}{f' ◂ {marks[rank]}' if rank in marks else ''}"
                for rank, value in zip(ranks, score.tolist(), strict=True)
            ],
            "textposition": "outside",
            "cliponaxis": False,
            "textfont": {"color": colours.ink, "size": 12},
        }
    room = 2.4 if named and marks else 1.45  # for the text after the longest bar
    median = float(np.median(similarity.score_R))
    aimed = aimed_rank(diagnosis)
    return figure(
        [bars],
        dark=dark,
        title=SCORES.title,
        subtitle="mean K-S distance from all other ranks, 0 to 1",
        alt=f"Scores of {format.counted(len(similarity.ranks), 'rank')}: {_in_words(similarity)}",
        notes=_notes(findings, aimed),
        height=_height(len(ranks)),
        bargap=0.25 if named else 0,
        margin={"l": 8, "r": 8, "t": 24, "b": 8},
        xaxis=axis(
            dark, range=[0, room * max(float(score.max()), 1e-3)], nticks=5, tickformat=".2f"
        ),
        yaxis=_rank_axis(ranks, aimed, dark) | {"autorange": "reversed"},
        shapes=[_median_line(median, colours)],
        annotations=[
            note(
                f"median rank {format.share(median)}", median, 1, dark, yref="paper", yanchor="bottom",
                xanchor="left", font={"size": 12, "color": colours.muted},
            ),
            *([] if named else _mark_notes(ranks, marks, dark)),
        ],
        hovermode="closest",
        uirevision=revision(diagnosis, "similarity"),
    )  # fmt: skip


def _median_line(median: float, colours: palette.Theme) -> dict[str, object]:
    return {
        "type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": median, "x1": median,
        "line": {"color": colours.muted, "width": 1, "dash": "dot"},
    }  # fmt: skip


def _too_few(similarity: RankSimilarity) -> str:
    if not similarity.ranks:
        return "no event of this window is part of a step, so ranks cannot be compared"
    return f"only rank {similarity.ranks[0]} has events in steps: there is no other rank to compare it with"


def _names(similarity: RankSimilarity) -> list[str]:
    """Return the row names, by rank and score; they are unique because each rank has one row."""
    return [
        f"rank {similarity.ranks[place]} · score {similarity.score_R[place]:.3f}"
        for place in similarity.order_R[:RANKS_SHOWN]
    ]


def _rank_axis(ranks: list[int], aimed: int | None, dark: bool) -> dict[str, object]:
    """Return an axis that names every rank, or some if there are many; the suspect rank is marked."""
    places = list(range(0, len(ranks), 1 if len(ranks) <= _NAMED else -(-len(ranks) // _TICKS)))
    return axis(
        dark, type="category", showgrid=False, tickvals=places, tickangle=0,
        ticktext=[f"<b>▶ r{ranks[place]}</b>" if ranks[place] == aimed else f"r{ranks[place]}"
                  for place in places],
        tickfont={"color": palette.theme(dark).ink, "size": 12},
    )  # fmt: skip


def _marks(aimed: int | None, cause: Cause | None) -> dict[int, str]:
    """Return the other findings that point to each rank."""
    caused = None if cause is None else cause.rank
    if aimed is not None and aimed == caused:
        return {aimed: "suspect, cause"}
    return {rank: mark for rank, mark in ((aimed, "suspect"), (caused, "cause")) if rank is not None}


def _mark_notes(ranks: list[int], marks: dict[int, str], dark: bool) -> list[dict[str, object]]:
    return [
        note(
            f"<b>rank {rank}</b>: {mark}", 1, ranks.index(rank), dark,
            xref="paper", xanchor="right", bgcolor=palette.theme(dark).surface, font={"size": 12},
        )
        for rank, mark in marks.items()
        if rank in ranks
    ]  # fmt: skip


def _notes(findings: Findings, aimed: int | None) -> tuple[str, ...]:
    similarity = findings.similarity
    total = len(similarity.ranks)
    notes = [
        f"Completions are counted in windows of {format.duration(similarity.window_ns)}: {similarity.why}."
    ]
    if total > RANKS_SHOWN:
        notes.insert(0, f"The {RANKS_SHOWN} most abnormal of {format.count(total)} ranks are shown.")
        place = (
            similarity.order_R.tolist().index(similarity.ranks.index(aimed))
            if aimed in similarity.ranks
            else 0
        )
        if place >= RANKS_SHOWN:
            notes.append(
                f"The suspect, rank {aimed}, is not among them: it is the {format.ordinal(place + 1)}."
            )
    if total < MIN_COHORT:
        notes.append("Two ranks are equally far from each other: neither can be called the outlier.")
    if findings.source == "stages":
        notes.append("Based on stages, not on operators.")
    return tuple(notes)


def _in_words(similarity: RankSimilarity) -> str:
    first = int(similarity.order_R[0])
    return (
        f"rank {similarity.ranks[first]} is the most abnormal with a score of "
        f"{format.share(float(similarity.score_R[first]))}, the median rank has "
        f"{format.share(float(np.median(similarity.score_R)))}."
    )


def _height(rows: int) -> int:
    return int(min(720, max(240, 90 + 22 * rows))) if rows <= _NAMED else 520
