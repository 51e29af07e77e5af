"""Read any figure as a table, so that every plot has its numbers as text: one mechanism for all plots."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfapp.views import format
from sfapp.views.figures.base import Figure, Trace, typed_array

MOST_ROWS = 200
"""Rows of a table; the CSV files and the JSON of the page have all values."""

MOST_COLUMNS = 40

_BREAK = re.compile(r"<br\s*/?>")
_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True, slots=True)
class PlotTable:
    """A figure in words and numbers.

    Attributes:
        sentence: what the plot shows. columns: their titles.
        rows: texts, as many as columns. left_out: rows and columns beyond the limits.
    """

    sentence: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: str = ""


def plot_table(figure: Figure) -> PlotTable:
    """Return a figure's sentence and its values as a table.

    Bars and lines have a row per place on the axis and a column per trace, a heatmap its cells, and a plot
    whose marks have words these words.
    """
    layout, traces = figure["layout"], [trace for trace in figure["data"] if _has_values(trace)]
    sentence = str(layout["meta"]["alt"])
    worded = [trace for trace in traces if _is_worded(trace)]
    if worded and len(worded) == len(traces):
        columns, rows = _of_words(worded)
    elif traces and traces[0]["type"] == "heatmap":
        columns, rows = _of_cells(traces[0], layout)
    else:
        columns, rows = _of_series([trace for trace in traces if trace["type"] != "heatmap"], layout)
    return _bounded(sentence, columns, rows)


def values_of(data: Any) -> list[Any]:
    """Return a column or table of a trace as lists, from a typed array too; None for gaps."""
    if isinstance(data, Mapping) and "bdata" in data:
        return [_without_gaps(each) for each in typed_array(data).tolist()]
    return [_without_gaps(each) for each in ([] if data is None else data)]


def _without_gaps(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_without_gaps(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _has_values(trace: Trace) -> bool:
    """Return whether a trace holds values: keys of legends and guides do not."""
    if trace["type"] == "heatmap":
        return True
    if trace.get("hoverinfo") == "skip" and not trace.get("stackgroup"):
        return False
    return any(value is not None for value in values_of(trace.get("y")) or values_of(trace.get("x")))


def _is_worded(trace: Trace) -> bool:
    """Return whether the marks of a trace have hover texts that say everything."""
    texts = trace.get("hovertext")
    return isinstance(texts, list) and "%{z" not in str(trace.get("hovertemplate", "")) and bool(texts)


def _of_words(traces: Sequence[Trace]) -> tuple[list[str], list[list[str]]]:
    rows: dict[tuple[str, ...], None] = {}
    for trace in traces:
        for text in _flat(trace["hovertext"]):
            parts = tuple(part for part in (plain_words(each) for each in _BREAK.split(text)) if part)
            if parts:
                rows[parts[0], "; ".join(parts[1:])] = None
    return ["Item", "Values"], [list(row) for row in rows]


def _flat(texts: Sequence[Any]) -> Iterator[str]:
    for text in texts:
        if isinstance(text, list | tuple):
            yield from _flat(text)
        elif text:
            yield str(text)


def plain_words(markup: str) -> str:
    """Return the text of a label without tags and entities."""
    return " ".join(html.unescape(_TAG.sub("", markup)).replace("\u200b", "").split())


def _of_cells(trace: Trace, layout: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    cells = values_of(trace["z"])
    across = [_label(each) for each in values_of(trace.get("x")) or range(len(cells[0]) if cells else 0)]
    down = [_label(each) for each in values_of(trace.get("y")) or range(len(cells))]
    unit = trace.get("colorbar", {}).get("ticksuffix", "").strip()
    x_title, _ = _axis_texts(layout.get("xaxis", {}))
    head = f"{f'{unit}, ' if unit else ''}by {x_title or 'column'}"
    rows = {name: [name, *(_number(value) for value in row)] for name, row in zip(down, cells, strict=False)}
    return [head, *across], list(rows.values())


def _of_series(traces: Sequence[Trace], layout: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    is_horizontal = any(trace.get("orientation") == "h" for trace in traces)
    along, over = ("y", "x") if is_horizontal else ("x", "y")
    place_title, _ = _axis_texts(layout.get(f"{along}axis", {}))
    columns: dict[str, dict[Any, str]] = {}
    places: dict[Any, None] = {}
    for number, trace in enumerate(traces):
        title, unit = _axis_texts(layout.get(_axis_name(trace, over), {}))
        name = plain_words(str(trace.get("name") or (f"series {number + 1}" if number else title or "value")))
        if _is_stacked(trace):
            lanes = _tick_names(layout.get(f"{over}axis", {})).values()
            for lane, points in zip(lanes, _segments(trace), strict=False):
                for place, value in points:
                    places.setdefault(place, None)
                    columns.setdefault(f"{name}, {lane}", {}).setdefault(place, _number(value))
            continue
        values = values_of(trace.get(over))
        at = values_of(trace.get(along)) or list(range(len(values)))
        column = columns.setdefault(f"{name}, {unit}" if unit else name, {})
        for place, value in zip(at, values, strict=False):
            if place is not None and value is not None:
                places.setdefault(place, None)
                column.setdefault(place, _number(value))
    names = _tick_names(layout.get(f"{along}axis", {}))
    rows = [
        [names.get(place, _label(place)), *(column.get(place, "") for column in columns.values())]
        for place in places
    ]
    return [place_title or "place", *columns], rows


def _is_stacked(trace: Trace) -> bool:
    """Return whether a trace holds several lines, one below the other, with their values as custom data."""
    template = str(trace.get("hovertemplate", ""))
    return "%{customdata" in template and "%{text}" in template


def _segments(trace: Trace) -> Iterator[list[tuple[Any, Any]]]:
    """Yield the place and value of each point of one line after the other; gaps lie between them."""
    points: list[tuple[Any, Any]] = []
    values, places = values_of(trace["customdata"]), values_of(trace["text"])
    for place, value in zip(places, values, strict=False):
        if value is not None and place:
            points.append((place, value))
        elif points:
            yield points
            points = []
    if points:
        yield points


def _axis_name(trace: Trace, letter: str) -> str:
    return f"{letter}axis{str(trace.get(f'{letter}axis', letter))[1:]}"


def _axis_texts(axis: Mapping[str, Any]) -> tuple[str, str]:
    """Return the title and the unit of an axis."""
    title = axis.get("title", {})
    text = title.get("text", "") if isinstance(title, Mapping) else str(title)
    unit = str(axis.get("ticksuffix", "")).strip()
    if not unit and "%" in str(axis.get("tickformat", "")):
        unit = "as a fraction"
    return plain_words(text or ""), unit


def _tick_names(axis: Mapping[str, Any]) -> dict[Any, str]:
    places, texts = axis.get("tickvals"), axis.get("ticktext")
    if not isinstance(places, list) or not isinstance(texts, list):
        return {}
    return {place: plain_words(str(text)) for place, text in zip(places, texts, strict=False)}


def _label(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return plain_words(str(value))


def _number(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return plain_words(str(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}".replace("-", "−")


def _bounded(sentence: str, columns: list[str], rows: list[list[str]]) -> PlotTable:
    parts = []
    if len(rows) > MOST_ROWS:
        parts.append(f"the first {MOST_ROWS} of {format.count(len(rows))} rows")
    if len(columns) > MOST_COLUMNS:
        parts.append(f"the first {MOST_COLUMNS} of {format.count(len(columns))} columns")
    shown = tuple(tuple(row[:MOST_COLUMNS]) for row in rows[:MOST_ROWS])
    left_out = f"Shown are {' and '.join(parts)}." if parts else ""
    return PlotTable(sentence, tuple(columns[:MOST_COLUMNS]), shown, left_out)
