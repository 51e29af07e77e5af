"""Traces of the timeline of windows: bars, or areas where there are many."""

from __future__ import annotations

from collections.abc import Sequence

from sfapp.views import format, palette
from sfapp.views.figures.base import Trace, f4, plain
from sfapp.views.figures.window_spans import span_words
from sfapp.views.window_level import Row, window_colour

BARS_UP_TO = 120
"""Number of windows above which bars have no room for a gap; stages are then areas, which a browser draws ten
times faster."""


def window_traces(rows: Sequence[Row], unit: format.Unit, dark: bool) -> list[Trace]:
    """Return windows side by side, split by stage, above a strip of their severity.

    ``customdata`` is ``[run_id, window]``, as in the store.
    """
    stages = stage_order(rows)
    if len(rows) <= BARS_UP_TO:
        return [*_bars(rows, stages, unit, dark), *_missing(rows, unit, dark), _strip(rows, dark)]
    return [*_areas(rows, stages, unit, dark), _reader(rows, unit), _image_strip(rows, dark)]


def stage_order(rows: Sequence[Row]) -> list[str]:
    """Return every stage of any row, in order of first appearance."""
    return list(dict.fromkeys(stage for row in rows for stage in (row["shares"] or {})))


def _heights(rows: Sequence[Row], stage: str, unit: format.Unit) -> list[float]:
    return [(row["shares"] or {}).get(stage, 0.0) * (row["step_time_ns"] or 0) / unit.ns for row in rows]


def _bars(rows: Sequence[Row], stages: list[str], unit: format.Unit, dark: bool) -> list[Trace]:
    by_stage = palette.stage_colours(stages, dark)
    short = format.short_stages(stages)
    edge = {"color": palette.theme(dark).surface, "width": 0.5}
    hover = [hover_of(row) for row in rows]
    return [
        {
            "type": "bar",
            "x": list(range(len(rows))),
            "y": f4(_heights(rows, stage, unit)),
            "name": plain(short[stage], 28),
            "marker": {"color": by_stage[stage], "line": edge},
            "customdata": [[row["run_id"], row["window"]] for row in rows],
            "hovertext": hover,
            "hovertemplate": f"%{{hovertext}}<br>{plain(short[stage])} %{{y:.1f}} {unit.name}<extra></extra>",
        }
        for stage in stages
    ]


def _areas(rows: Sequence[Row], stages: list[str], unit: format.Unit, dark: bool) -> list[Trace]:
    """Return one filled path per stage, and a hatched one for windows without shares."""
    by_stage = palette.stage_colours(stages, dark)
    short = format.short_stages(stages)
    areas: list[Trace] = [
        {"y": f4(_heights(rows, stage, unit)), "name": plain(short[stage], 28), "fillcolor": by_stage[stage]}
        for stage in stages
    ]
    if not all(row["shares"] for row in rows):
        height = _height_of_missing(rows, unit)
        heights = [0 if row["shares"] else height for row in rows]
        areas.append({"y": heights, "name": "n/a", "fillpattern": _hatch(dark)})
    for area in areas:
        area |= {"type": "scatter", "mode": "lines", "stackgroup": "windows", "hoverinfo": "skip"}
        area["line"] = {"shape": "hvh", "width": 0, "color": area.get("fillcolor", "rgba(0,0,0,0)")}
    return areas


def _reader(rows: Sequence[Row], unit: format.Unit) -> Trace:
    """Return an invisible line with hover texts and click targets, for many windows drawn as areas."""
    return {
        "type": "scatter",
        "mode": "lines",
        "line": {"width": 0, "color": "rgba(0,0,0,0)"},
        "y": f4([(row["step_time_ns"] or 0) / unit.ns for row in rows]),
        "customdata": [[row["run_id"], row["window"]] for row in rows],
        "hovertext": [hover_of(row) for row in rows],
        "hoverinfo": "text",  # With the default, Plotly also shows the place on the axis.
        "showlegend": False,
        "name": "window",
    }


def _missing(rows: Sequence[Row], unit: format.Unit, dark: bool) -> list[Trace]:
    """Return windows without shares as hatched bars, so that they do not look fast."""
    places = [place for place, row in enumerate(rows) if not row["shares"]]
    if not places:
        return []
    height = _height_of_missing(rows, unit)
    return [
        {
            "type": "bar",
            "x": places,
            "y": [height] * len(places),
            "name": "n/a",
            "marker": {
                "color": "rgba(0,0,0,0)",
                "line": {"color": palette.theme(dark).axis, "width": 1},
                "pattern": _hatch(dark),
            },
            "customdata": [[rows[place]["run_id"], rows[place]["window"]] for place in places],
            "hovertext": [hover_of(rows[place]) for place in places],
            "hovertemplate": "%{hovertext}<extra></extra>",
        }
    ]


def _height_of_missing(rows: Sequence[Row], unit: format.Unit) -> float:
    """Return half of the tallest bar."""
    return 0.5 * (max(float(row["step_time_ns"] or 0) for row in rows) / unit.ns or 1.0)


def _hatch(dark: bool) -> dict[str, object]:
    return {"shape": "/", "fgcolor": palette.theme(dark).axis, "size": 6, "solidity": 0.3}


def hover_of(row: Row) -> str:
    text = f"<b>{plain(row['run_id'])} · window {row['window']}</b>"
    text += f"<br>mean step {format.duration(row['step_time_ns'])}"
    if not row["shares"]:
        text += "<br>n/a: below the denominator floor"
    if row["needs_attention"]:
        text += f"<br>severity {format.severity(row['severity'])}"
    elif not row["lacks_data"]:
        return f"{text}<br>healthy"
    found = span_words(row)
    return f"{text}<br>{plain(found, 80)}" if found else text


def _strip(rows: Sequence[Row], dark: bool) -> Trace:
    """Return one mark per window: thin and grey for healthy ones, full and coloured for the others."""
    colours = palette.theme(dark)
    return {
        "type": "bar",
        "x": list(range(len(rows))),
        "y": [1.0 if row["needs_attention"] or row["lacks_data"] else 0.45 for row in rows],
        "yaxis": "y2",
        "marker": {"color": [window_colour(row, colours) for row in rows]},
        "customdata": [[row["run_id"], row["window"]] for row in rows],
        "hovertext": [hover_of(row) for row in rows],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "showlegend": False,
        "name": "severity",
    }


def _image_strip(rows: Sequence[Row], dark: bool) -> Trace:
    """Return the strip as one image, for many windows."""
    theme = palette.theme(dark)
    colour_of = [window_colour(row, theme) for row in rows]
    colours = list(dict.fromkeys(colour_of))
    last = max(1, len(colours) - 1)
    return {
        "type": "heatmap",
        "z": [[colours.index(colour) for colour in colour_of]],
        "y": [0.5],
        "zmin": 0,
        "zmax": last,
        "colorscale": [[place / last, colour] for place, colour in enumerate(colours)]
        if len(colours) > 1
        else [[0, colours[0]], [1, colours[0]]],
        "showscale": False,
        "hoverinfo": "skip",
        "yaxis": "y2",
        "name": "severity",
    }
