"""Draw the windows of all runs side by side (accounting.md §12)."""

from __future__ import annotations

from collections.abc import Sequence

from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, axis, empty_figure, figure, legend_above, note, plain
from sfapp.views.figures.window_spans import span_words, suspect_spans
from sfapp.views.figures.window_traces import BARS_UP_TO, window_traces
from sfapp.views.plot_registry import PlotSpec, RunInput
from sfapp.views.window_level import Row, window_colour

PLOT = PlotSpec(
    name="window_timeline",
    title="Windows",
    help=(
        "One bar per window, as high as its mean step. The strip below is thin and grey for a healthy "
        "window, full and coloured for one that needs attention or lacks data. Click a window to open it."
    ),
    source=RunInput,
    build=lambda given, dark: window_timeline(given.rows, dark=dark, selected=given.selected),
    reads=(),
    tabs=(),
    report=None,
    notebook=None,
)

_LEFT = 56
"""Pixels for the numbers of the vertical axis. If Plotly fits them itself, it draws the plot twice."""
_CROWDED = 150
"""Number of windows above which only suspects of long stretches are labelled; hover texts name all."""
_NOTE_ROWS = 3
_NOTE_PIXELS = 13
_CHARACTERS = 130
"""Approximate number of characters that fit across the plot."""


def window_timeline(
    rows: Sequence[Row],
    *,
    dark: bool = False,
    selected: tuple[str, int] | None = None,
    height: int = 276,
    brushes: bool = False,
    brushed: tuple[int, int] | None = None,
    by_run: bool = True,
) -> Figure:
    """Return all windows: frontier shares scaled to the mean step, severity below, suspects labelled.

    ``customdata`` of every bar is ``[run_id, window]``, as in the store.

    Args:
        selected: (run_id, window) to frame.
        height: in pixels.
        brushes: dragging selects a range of windows instead of zooming.
        brushed: places of the first and last window of the selected range.
        by_run: the windows are in order; else runs may be mixed, and are not marked.
    """
    # Long because the layout of a figure is one literal.
    if not rows:
        return empty_figure(
            "no window yet: record one, or check the packet folder", dark=dark, title=PLOT.title, height=200
        )
    unit = format.unit_for(max(float(row["step_time_ns"] or 0) for row in rows))
    spans = suspect_spans(rows)
    colours = palette.theme(dark)
    return figure(
        window_traces(rows, unit, dark),
        dark=dark,
        title=PLOT.title,
        subtitle="mean exposed step, split by stage; below: severity, and the suspect stage and rank",
        interaction="drag across windows to list only those" if brushes else "",
        alt=_in_words(rows, spans),
        height=height,
        barmode="stack",
        bargap=0.06 if len(rows) <= BARS_UP_TO else 0,
        margin={"l": _LEFT, "r": 12, "t": 30, "b": 8},
        xaxis=_window_axis(rows, dark),
        yaxis=axis(
            dark, domain=[0.42, 1], ticksuffix=f" {unit.name}", nticks=4, rangemode="tozero", fixedrange=True,
            automargin=False,
        ),
        yaxis2={"domain": [0.31, 0.38], "visible": False, "range": [0, 1], "fixedrange": True},
        shapes=[
            *_run_lines(rows if by_run else (), colours), *_brush(brushed, colours),
            *_frames(rows, selected, colours),
        ],
        annotations=[
            *_span_notes(rows, spans, selected, dark, height, by_run),
            *(_run_names(rows, dark) if by_run else ()),
        ],
        showlegend=True,
        legend=legend_above(y=1.02),
        hovermode="closest" if len(rows) <= BARS_UP_TO else "x",
        clickmode="event",
        dragmode="select" if brushes else "zoom",
        selectdirection="h",
        # The server's response draws the brush, so every response removes the browser's own mark.
        selections=[],
        selectionrevision=str(brushed),
        uirevision=f"windows/{rows[0]['run_id']}/{by_run}",
    )  # fmt: skip


def _in_words(rows: Sequence[Row], spans: list[tuple[int, int]]) -> str:
    text = format.counted(len(rows), "window")
    if not spans:
        return f"{text}; all healthy."
    listed = format.listed([span_words(rows[first]) for first, _ in spans], 6)
    return f"{text}; these need attention: {listed}."


def _frames(
    rows: Sequence[Row], selected: tuple[str, int] | None, colours: palette.Theme
) -> list[dict[str, object]]:
    return [
        {
            "type": "rect", "x0": place - 0.5, "x1": place + 0.5, "yref": "paper", "y0": 0.29, "y1": 1.02,
            "line": {"color": colours.ink, "width": 2.5}, "name": "selected",
        }
        for place, row in enumerate(rows)
        if selected == (row["run_id"], row["window"])
    ]  # fmt: skip


def _brush(brushed: tuple[int, int] | None, colours: palette.Theme) -> list[dict[str, object]]:
    """Return the frame of the selected range, below the bars."""
    if brushed is None:
        return []
    return [
        {
            "type": "rect", "x0": brushed[0] - 0.5, "x1": brushed[1] + 0.5,
            "yref": "paper", "y0": 0.29, "y1": 1.02, "layer": "below", "name": "brushed",
            "fillcolor": colours.grid, "line": {"color": colours.ink, "width": 1},
        }
    ]  # fmt: skip


def _window_axis(rows: Sequence[Row], dark: bool) -> dict[str, object]:
    every = max(1, -(-len(rows) // 16))
    shown = list(range(0, len(rows), every))
    return axis(
        dark, showgrid=False, anchor="free", position=0.31, range=[-0.6, len(rows) - 0.4],
        showticklabels=False, tickvals=shown, ticks="", automargin=False,
    )  # fmt: skip


def _run_lines(rows: Sequence[Row], colours: palette.Theme) -> list[dict[str, object]]:
    """Return a line where one run ends and the next begins."""
    return [
        {
            "type": "line", "x0": place - 0.5, "x1": place - 0.5, "yref": "paper", "y0": 0.24, "y1": 1,
            "line": {"color": colours.muted, "width": 1, "dash": "dot"},
        }
        for place in range(1, len(rows))
        if rows[place]["run_id"] != rows[place - 1]["run_id"]
    ][:200]  # fmt: skip


def _span_notes(
    rows: Sequence[Row],
    spans: list[tuple[int, int]],
    selected: tuple[str, int] | None,
    dark: bool,
    height: int,
    by_run: bool,
) -> list[dict[str, object]]:
    """Return suspects below their windows in up to three lines, within their run if they fit.

    If room is short, that of the selected window comes first, then the worst.
    """
    colours = palette.theme(dark)
    width = _CHARACTERS / max(1, len(rows))
    pitch = max(0.075, _NOTE_PIXELS / (height - 38))  # minus the margins
    free: list[list[tuple[float, float]]] = [[] for _ in range(_NOTE_ROWS)]
    notes = []
    worst = sorted(
        spans,
        key=lambda span: (
            not _holds(rows, span, selected),
            not rows[span[0]]["lacks_data"],
            -max(rows[place]["severity"] or 0.0 for place in range(span[0], span[1] + 1)),
        ),
    )
    for first, last in worst:
        text = span_words(rows[first])
        middle = (first + last) / 2
        reach = (len(text) + 2) / width / 2
        low, high = middle - reach, middle + reach
        is_selected = _holds(rows, (first, last), selected)
        if len(rows) > _CROWDED and high - low > 2 * (last - first + 1) and not is_selected:
            continue
        begin, end = _run_around(rows, first) if by_run else (0, len(rows))
        if 2 * reach > end - begin:
            begin, end = 0, len(rows)
        anchor = "center"
        if low < begin - 0.5:
            low, high, anchor = begin - 0.5, begin - 0.5 + 2 * reach, "left"
        if high > end - 0.5:
            low, high, anchor = end - 0.5 - 2 * reach, end - 0.5, "right"
        line = next(
            (line for line, taken in enumerate(free) if all(high < a or low > b for a, b in taken)), None
        )
        if line is None:
            continue
        free[line].append((low, high))
        notes.append(
            note(
                f"<b>{plain(text, 80)}</b>", {"left": low, "right": high}.get(anchor, (low + high) / 2),
                0.275 - pitch * line, dark, yref="paper", yanchor="top", xanchor=anchor,
                font={"size": 12, "color": window_colour(rows[first], colours)},
            )
        )  # fmt: skip
    return notes


def _holds(rows: Sequence[Row], span: tuple[int, int], selected: tuple[str, int] | None) -> bool:
    """Return whether a window is in a range."""
    return any((row["run_id"], row["window"]) == selected for row in rows[span[0] : span[1] + 1])


def _run_around(rows: Sequence[Row], place: int) -> tuple[int, int]:
    """Return the first place of the run at a place, and the first after it."""
    run_id, begin, end = rows[place]["run_id"], place, place + 1
    while begin and rows[begin - 1]["run_id"] == run_id:
        begin -= 1
    while end < len(rows) and rows[end]["run_id"] == run_id:
        end += 1
    return begin, end


def _run_names(rows: Sequence[Row], dark: bool) -> list[dict[str, object]]:
    """Return window numbers at both ends for one run, or run names below their windows for several."""
    starts = [0] + [
        place for place in range(1, len(rows)) if rows[place]["run_id"] != rows[place - 1]["run_id"]
    ]
    ends = [*starts[1:], len(rows)]
    colours = palette.theme(dark)
    style = {"yref": "paper", "yanchor": "bottom", "font": {"size": 12, "color": colours.muted}}
    if len(starts) == 1:
        return [
            note(f"window {rows[0]['window']}", -0.5, 0, dark, xanchor="left", **style),
            note(f"{rows[-1]['window']}", len(rows) - 0.5, 0, dark, xanchor="right", **style),
        ]
    room = _CHARACTERS / len(rows)
    below = style | {"yshift": -8}  # the lowest line of labels
    return [
        note(plain(rows[first]["run_id"], max(4, int(room * (last - first)))), first - 0.4, 0, dark,
             xanchor="left", **below)
        for first, last in zip(starts, ends, strict=True)
        if room * (last - first) >= 6
    ]  # fmt: skip
