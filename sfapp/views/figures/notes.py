"""Draw pinned notes on finished figures as numbered marks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from sfapp.model.incidents import Note, Pin
from sfapp.model.view import Zoom
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, plain
from sfapp.views.plot_registry import PLOTS

MARK = 18
"""Height of a numbered mark in pixels; marks at the same place are put next to each other."""

HOVER_CHARACTERS = 240

Numbered = tuple[int, Note]


def notes_in(name: str, notes: Sequence[Note], step: int | None = None) -> tuple[Numbered, ...]:
    """Return the notes that belong in a plot, each with its number among all notes of the window.

    Args:
        name: of the plot.
        notes: every note on the window, in order.
        step: the shown step; None for the mean.
    """
    return tuple(
        (number, note)
        for number, note in enumerate(notes, start=1)
        if note.pin is not None and _has_place(note.pin, name, step)
    )


def with_notes(
    figure: Figure, name: str, notes: Sequence[Note], *, step: int | None = None, dark: bool = False
) -> Figure:
    """Return the figure with its pinned notes: lines at steps, dashed frames around regions, numbers.

    The given figure is not changed. Numbers are those of ``notes_in``; hovering shows a note's text.
    """
    placed = notes_in(name, notes, step)
    if not placed:
        return figure
    layout = figure["layout"]
    # In plots with draggable thresholds, any shape above the traces could be dragged too.
    layer = "below" if "edits" in figure.get("config", {}) else "above"
    shapes: list[dict[str, Any]] = []
    marks: list[dict[str, Any]] = []
    crowd: dict[tuple[Any, ...], int] = {}
    for number, note in placed:
        assert note.pin is not None
        for shape, place in _places(note.pin, name, dark):
            if shape is not None:
                shapes.append(shape | {"layer": layer})
            spot = tuple(place.values())
            if place:
                marks.append(_mark(number, note, place, crowd.get(spot, 0), dark))
                crowd[spot] = crowd.get(spot, 0) + 1
    meta = layout["meta"]
    summary = f"{_counted([number for number, _ in placed])} pinned here."
    return figure | {
        "layout": layout
        | {
            # After the figure's own shapes, which are identified by their position.
            "shapes": [*layout.get("shapes", ()), *shapes],
            "annotations": [*layout.get("annotations", ()), *marks],
            "meta": meta | {"alt": f"{meta['alt']} {summary}"},
        }
    }


def _has_place(pin: Pin, name: str, step: int | None) -> bool:
    if _has_step_axis(name) and pin.step is not None:
        return True
    if pin.plot != name:
        return False
    spec = PLOTS.get(name)
    return spec is None or not spec.shows_one_step or pin.step == step


def _has_step_axis(name: str) -> bool:
    spec = PLOTS.get(name)
    return spec is not None and spec.has_step_axis


def _places(pin: Pin, name: str, dark: bool) -> Iterable[tuple[dict[str, Any] | None, dict[str, Any]]]:
    """Yield a note's shape and the position of its number: a region, a step, else the plot's corner.

    The number is drawn once: at the region, if the note has one in this plot.
    """
    colour = palette.theme(dark).accent
    region = [zoom for zoom in pin.region if zoom.plot == name] if pin.plot == name else []
    if region:
        for x, y in product(_ends(region, "x"), _ends(region, "y")):
            frame = {
                "type": "rect", "xref": x[0], "x0": x[1], "x1": x[2], "yref": y[0], "y0": y[1], "y1": y[2],
                "line": {"color": colour, "width": 1.6, "dash": "dash"},
                "fillcolor": palette.alpha(colour, 0.05), "name": "note",
            }  # fmt: skip
            yield frame, {"xref": x[0], "x": x[1], "yref": y[0], "y": y[2]}
    if _has_step_axis(name) and pin.step is not None:
        line = {
            "type": "line", "x0": pin.step, "x1": pin.step, "yref": "paper", "y0": 0, "y1": 1,
            "line": {"color": colour, "width": 1.6, "dash": "dot"}, "name": "note",
        }  # fmt: skip
        yield line, {} if region else {"xref": "x", "x": pin.step, "yref": "paper", "y": 1}
    elif not region:
        yield None, {"xref": "paper", "x": 1, "yref": "paper", "y": 1}


def _ends(region: Sequence[Zoom], letter: str) -> list[tuple[str, float, float]]:
    """Return the part of every axis of one direction that a region covers; without one, the whole plot."""
    named = [(zoom.axis, zoom.low, zoom.high) for zoom in region if zoom.axis[0] == letter]
    return named or [("paper", 0, 1)]


def _mark(number: int, note: Note, place: dict[str, Any], before: int, dark: bool) -> dict[str, Any]:
    colours = palette.theme(dark)
    corner = place["xref"] == "paper" and place["x"] == 1
    step = -MARK - 2 if corner else MARK + 2
    return place | {
        "text": f"<b>{number}</b>",
        "showarrow": False,
        "xanchor": "right" if corner else "left",
        "yanchor": "top",
        "xshift": before * step,
        "width": MARK - 6 if number < 10 else MARK,
        "height": MARK - 4,
        "bgcolor": colours.accent,
        "borderpad": 2,
        "font": {"size": 12, "color": colours.surface},
        "hovertext": _hover(note),
        "hoverlabel": {"bgcolor": colours.surface, "bordercolor": colours.accent},
        "name": "note",
    }


def _hover(note: Note) -> str:
    """Return the note's text in short lines, escaped for Plotly, and its author."""
    lines = textwrap.wrap(format.clip(" ".join(note.text.split()), HOVER_CHARACTERS), 60)
    return "<br>".join([*(plain(line, 80) for line in lines), f"– {plain(note.written.by)}"])


def _counted(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"Note {numbers[0]} is"
    return f"Notes {format.listed([str(number) for number in numbers], limit=len(numbers))} are"
