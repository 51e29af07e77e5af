"""Draw windows over wall-clock time: runs that overlap have lanes of their own (accounting.md §12)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, Trace, axis, empty_figure, figure, legend_above, note, plain
from sfapp.views.figures.window_spans import span_words, suspect_spans
from sfapp.views.figures.window_timeline import PLOT
from sfapp.views.figures.window_traces import hover_of, stage_order
from sfapp.views.window_level import Row, window_colour

MOST_LANES = 6
"""Runs drawn at one time; a note counts further ones."""

MOST_BARS = 400
"""Bars drawn at most; of more windows, a bar stands for several, of which it shows the worst."""

_LABELS, _STRIP, _BARS = (0.0, 0.2), (0.23, 0.29), (0.33, 0.97)
"""Parts of a lane's height: names of suspects, severity, and step times."""

_LANE_PIXELS = 150


@dataclass(frozen=True, slots=True)
class ClockBar:
    """One bar: a window, or the worst of several.

    Attributes:
        row: the window. lane: its lane, from the top.
        start, end: in milliseconds since 1970.
    """

    row: Row
    lane: int
    start: float
    end: float


def window_clock(rows: Sequence[Row], *, dark: bool = False) -> Figure:
    """Return windows at the times at which they ran: step time split by stage, severity, suspects.

    ``customdata`` of every bar is ``[run_id, window]``, as in the store.
    """
    timed = [row for row in rows if row["started_at"] is not None]
    if not timed:
        return empty_figure(
            "these windows hold no times" if rows else "no window to show",
            dark=dark,
            title=PLOT.title,
            height=200,
        )
    lanes, hidden = _lanes(timed)
    every = [bar for lane, runs in enumerate(lanes) for bar in _bars_of(runs, lane)]
    bars, each = _worst(every)
    colours = palette.theme(dark)
    tallest = max(float(bar.row["step_time_ns"] or 0) for bar in bars) or 1.0
    spans = suspect_spans([bar.row for bar in bars])
    return figure(
        [*_stage_bars(bars, len(lanes), tallest, dark), _strip(bars, len(lanes), colours)],
        dark=dark,
        title=PLOT.title,
        subtitle=f"over time (UTC); height: mean exposed step by stage, up to {format.duration(tallest)}",
        alt=_in_words(timed, bars, spans),
        notes=_notes(len(rows) - len(timed), hidden, each),
        height=60 + _LANE_PIXELS * len(lanes),
        barmode="overlay",
        margin={"l": 8, "r": 12, "t": 30, "b": 8},
        xaxis=axis(dark, type="date", showgrid=False, range=_extent(bars)),
        yaxis=axis(
            dark, range=[0, len(lanes)], showgrid=False, fixedrange=True,
            tickvals=[len(lanes) - lane - 0.35 for lane in range(len(lanes))],
            ticktext=[_lane_name(runs) if len(lanes) > 1 or len(runs) == 1 else "" for runs in lanes],
        ),
        shapes=[_lane_line(place, colours) for place in range(1, len(lanes))],
        annotations=[_suspect(bars, span, len(lanes), dark) for span in spans],
        showlegend=True,
        legend=legend_above(y=1.02),
        hovermode="closest",
        clickmode="event",
        uirevision=f"windows/{rows[0]['run_id']}/time",
    )  # fmt: skip


def _lanes(rows: Sequence[Row]) -> tuple[list[list[list[Row]]], int]:
    """Return the runs of each lane, and how many runs have none: a lane holds runs one after the other."""
    by_run = sorted(rows, key=lambda row: (row["run_id"], row["started_at"]))
    runs = [list(group) for _, group in groupby(by_run, key=lambda row: row["run_id"])]
    lanes: list[list[list[Row]]] = []
    ends: list[float] = []
    hidden = 0
    for run in sorted(runs, key=lambda run: _ms(run[0]["started_at"])):
        start, end = _ms(run[0]["started_at"]), max(_end(row) for row in run)
        free = next((lane for lane, last in enumerate(ends) if last <= start), None)
        if free is not None:
            lanes[free].append(run)
            ends[free] = end
        elif len(lanes) < MOST_LANES:
            lanes.append([run])
            ends.append(end)
        else:
            hidden += 1
    return lanes, hidden


def _bars_of(runs: Iterable[Sequence[Row]], lane: int) -> list[ClockBar]:
    return [ClockBar(row, lane, _ms(row["started_at"]), _end(row)) for run in runs for row in run]


def _ms(moment: datetime) -> float:
    return moment.timestamp() * 1000


def _end(row: Row) -> float:
    """Return when a window ended; from its steps where it holds no end."""
    start = _ms(row["started_at"])
    steps = row["last_step"] - row["first_step"] + 1
    took = steps * (row["step_time_ns"] or 0.0) / 1e6
    return max(start + 1, start + took if row["ended_at"] is None else _ms(row["ended_at"]))


def _worst(bars: list[ClockBar]) -> tuple[list[ClockBar], int]:
    """Return at most about ``MOST_BARS`` bars, and how many windows one of them stands for at most."""
    if len(bars) <= MOST_BARS:
        return bars, 1
    first, last = min(bar.start for bar in bars), max(bar.end for bar in bars)
    lanes = 1 + max(bar.lane for bar in bars)
    width = (last - first) / (MOST_BARS // lanes)
    kept, most = [], 1
    for (lane, _), group in groupby(bars, key=lambda bar: (bar.lane, int((bar.start - first) / width))):
        merged = list(group)
        worst = max(merged, key=_badness)
        kept.append(ClockBar(worst.row, lane, merged[0].start, max(bar.end for bar in merged)))
        most = max(most, len(merged))
    return kept, most


def _badness(bar: ClockBar) -> tuple[bool, bool, float, float]:
    row = bar.row
    return (
        bool(row["lacks_data"]),
        bool(row["needs_attention"]),
        row["severity"] or 0.0,
        row["step_time_ns"] or 0.0,
    )


def _placed(bars: Sequence[ClockBar]) -> dict[str, object]:
    """Return the places and the click targets of bars, which every trace shares."""
    return {
        "type": "bar",
        "x": [round((bar.start + bar.end) / 2) for bar in bars],
        "width": [bar.end - bar.start for bar in bars],
        "customdata": [[bar.row["run_id"], bar.row["window"]] for bar in bars],
    }


def _stage_bars(bars: Sequence[ClockBar], lanes: int, tallest: float, dark: bool) -> list[Trace]:
    stages = stage_order([bar.row for bar in bars])
    by_stage = palette.stage_colours(stages, dark)
    short = format.short_stages(stages)
    hover = [hover_of(bar.row) for bar in bars]
    base = [lanes - 1 - bar.lane + _BARS[0] for bar in bars]
    traces = []
    for stage in stages:
        shares = [(bar.row["shares"] or {}).get(stage, 0.0) for bar in bars]
        times = [share * (bar.row["step_time_ns"] or 0) for share, bar in zip(shares, bars, strict=True)]
        heights = [(_BARS[1] - _BARS[0]) * time / tallest for time in times]
        traces.append({
            **_placed(bars),
            "y": [round(height, 5) for height in heights],
            "base": [round(low, 5) for low in base],
            "name": plain(short[stage], 28),
            "marker": {"color": by_stage[stage], "line": {"width": 0}},
            "hovertext": [
                f"{text}<br>{plain(short[stage])} {format.duration(time)}"
                for text, time in zip(hover, times, strict=True)
            ],
            "hovertemplate": "%{hovertext}<extra></extra>",
        })  # fmt: skip
        base = [low + height for low, height in zip(base, heights, strict=True)]
    return traces


def _strip(bars: Sequence[ClockBar], lanes: int, colours: palette.Theme) -> Trace:
    return {
        **_placed(bars),
        "y": [_STRIP[1] - _STRIP[0]] * len(bars),
        "base": [lanes - 1 - bar.lane + _STRIP[0] for bar in bars],
        "marker": {"color": [window_colour(bar.row, colours) for bar in bars]},
        "hovertext": [hover_of(bar.row) for bar in bars],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "showlegend": False,
        "name": "severity",
    }


def _extent(bars: Sequence[ClockBar]) -> list[float]:
    """Return the ends of the axis: the browser would make room for names, too."""
    first, last = min(bar.start for bar in bars), max(bar.end for bar in bars)
    room = 0.01 * (last - first)
    return [round(first - room), round(last + room)]


def _lane_name(runs: Sequence[Sequence[Row]]) -> str:
    return plain(runs[0][0]["run_id"], 14) if len(runs) == 1 else format.counted(len(runs), "run")


def _lane_line(place: int, colours: palette.Theme) -> dict[str, object]:
    line = {"color": colours.grid, "width": 1}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": place, "y1": place, "line": line}


def _suspect(bars: Sequence[ClockBar], span: tuple[int, int], lanes: int, dark: bool) -> dict[str, object]:
    """Return the name of a suspect below its windows; the browser leaves out what has no room."""
    first, last = bars[span[0]], bars[span[1]]
    row = first.row
    return note(
        f"<b>{plain(span_words(row), 80)}</b>",
        round((first.start + last.end) / 2),
        lanes - 1 - first.lane + _LABELS[1],
        dark,
        yanchor="top",
        font={"size": 12, "color": window_colour(row, palette.theme(dark))},
    )


def _in_words(rows: Sequence[Row], bars: Sequence[ClockBar], spans: Sequence[tuple[int, int]]) -> str:
    when = (
        f"from {rows[0]['started_at']:%Y-%m-%d %H:%M} UTC"
        if len(rows) == 1
        else (
            f"from {min(row['started_at'] for row in rows):%Y-%m-%d %H:%M} "
            f"to {max(row['started_at'] for row in rows):%Y-%m-%d %H:%M} UTC"
        )
    )
    text = f"{format.counted(len(rows), 'window')} {when}"
    if not spans:
        return f"{text}; all healthy."
    listed = format.listed([span_words(bars[first].row) for first, _ in spans], 6)
    return f"{text}; these need attention: {listed}."


def _notes(untimed: int, hidden: int, each: int) -> tuple[str, ...]:
    notes = []
    if each > 1:
        notes.append(
            f"Each bar stands for up to {format.counted(each, 'window')}: the worst of them is shown."
        )
    if hidden:
        notes.append(
            f"{format.counted(hidden, 'run')} more ran at the same time; choose a run to see its windows."
        )
    if untimed:
        notes.append(f"{format.counted(untimed, 'window')} without times: see the other axes.")
    return tuple(notes)
