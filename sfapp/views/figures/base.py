"""What every figure shares: theme, axes, escaping, typed arrays, alternatives in words."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt

from sfapp.model import Diagnosis, Window
from sfapp.views import format, palette
from sfapp.views.plot_registry import Figure

Trace = dict[str, Any]

FONT = 'Inter, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Liberation Sans", sans-serif'

CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "showSendToCloud": False,
    "responsive": True,
    "doubleClick": "reset",
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}

_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "%": "&#37;", "$": "&#36;"})


def plain(text: str, limit: int = 48) -> str:
    """Text from a file, harmless for Plotly: no tags, no ``%{…}`` templates, no TeX, one bounded line."""
    return format.clip(text, limit).translate(_ENTITIES)


def f4(values: npt.ArrayLike) -> dict[str, Any]:
    """Values as a base64 float32 typed array, 1-D or 2-D; plotly.js reads it without parsing numbers."""
    array = np.ascontiguousarray(values, dtype="<f4")
    spec: dict[str, Any] = {"dtype": "f4", "bdata": base64.b64encode(array.tobytes()).decode("ascii")}
    if array.ndim == 2:
        spec["shape"] = f"{array.shape[0]}, {array.shape[1]}"
    return spec


def revision(source: Diagnosis | Window, *extra: object) -> str:
    """``uirevision``: zoom survives updates of one window and ends with it."""
    number = source.number if isinstance(source, Window) else source.window
    return "/".join(str(part) for part in (source.run_id, number, source.group, *extra))


def axis(dark: bool, **settings: Any) -> dict[str, Any]:
    """One cartesian axis in the house style."""
    colours = palette.theme(dark)
    title = settings.pop("title", None)
    style: dict[str, Any] = {
        "gridcolor": colours.grid,
        "linecolor": colours.axis,
        "zeroline": False,
        "showline": False,
        "exponentformat": "none",
        "ticks": "",
        "tickfont": {"color": colours.muted, "size": 12},
        "automargin": True,
        "fixedrange": False,
    }
    if title is not None:
        style["title"] = {"text": title, "font": {"color": colours.muted, "size": 12}, "standoff": 8}
    return style | settings


def step_axis(dark: bool, steps: int, **settings: Any) -> dict[str, Any]:
    """An axis of logical step numbers; every one of a few, never a fraction."""
    ticks: dict[str, Any] = {"dtick": 1} if steps <= 12 else {"nticks": 12}
    return axis(dark, showgrid=False, tickformat="d", title="step", **(ticks | settings))


def figure(
    traces: list[Trace],
    *,
    dark: bool,
    alt: str,
    title: str,
    subtitle: str = "",
    interaction: str = "",
    notes: tuple[str, ...] = (),
    height: int = 320,
    draggable: bool = False,
    **layout: Any,
) -> Figure:
    """Put a figure together: transparent, themed, with its words in ``layout.meta``.

    Args:
        interaction: what can be done with it in the app; reports and notebooks leave it out.
        draggable: shapes above the traces can be dragged (those below never get the pointer).
    """
    colours = palette.theme(dark)
    base: dict[str, Any] = {
        "autosize": True,
        "height": height,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": colours.ink},
        "margin": {"l": 8, "r": 12, "t": 28, "b": 8},
        "showlegend": False,
        "hoverlabel": {
            "bgcolor": colours.surface,
            "bordercolor": colours.axis,
            "font": {"family": FONT, "size": 12, "color": colours.ink},
            "align": "left",
            "namelength": -1,
        },
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": colours.muted, "activecolor": colours.ink},
        "legend": {"font": {"color": colours.ink}, "bgcolor": "rgba(0,0,0,0)"},
        # Thresholds are dragged; the answer to a drag must not be overruled by the drag itself.
        "editrevision": False,
        "dragmode": "zoom",
        "meta": {
            "title": title,
            "subtitle": subtitle,
            "interaction": interaction,
            "alt": alt,
            "notes": list(notes),
        },
    }
    config = CONFIG | {"edits": {"shapePosition": True}} if draggable else dict(CONFIG)
    return {"data": traces, "layout": base | layout, "config": config}


def note(text: str, x: float, y: float | str, dark: bool, **settings: Any) -> dict[str, Any]:
    """A text annotation without an arrow; ``text`` must be escaped where it holds names from files."""
    colours = palette.theme(dark)
    style: dict[str, Any] = {
        "text": text,
        "x": x,
        "y": y,
        "showarrow": False,
        "font": {"size": 12, "color": colours.ink},
    }
    return style | settings


def legend_above(**settings: Any) -> dict[str, Any]:
    """A horizontal legend above the plot."""
    return {
        "orientation": "h",
        "x": 0,
        "y": 1.0,
        "yanchor": "bottom",
        "xanchor": "left",
        "traceorder": "normal",
        "itemwidth": 30,
    } | settings


def legend_key(name: str, colour: str) -> Trace:
    """A legend entry of its own, for bars whose first one is hatched."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [None],
        "y": [None],
        "name": plain(name, 28),
        "marker": {"symbol": "square", "size": 11, "color": colour},
        "hoverinfo": "skip",
    }


def empty_figure(
    message: str, *, dark: bool, title: str, subtitle: str = "", height: int = 320, heading: str = "n/a"
) -> Figure:
    """A figure with nothing to draw: hatched, ``n/a`` (or what else the heading says), and why, in words."""
    colours = palette.theme(dark)
    hatched: Trace = {
        "type": "bar",
        "x": [0.5],
        "y": [1],
        "width": [1],
        "marker": {
            "color": "rgba(0,0,0,0)",
            "line": {"color": colours.axis, "width": 1},
            "pattern": {"shape": "/", "fgcolor": colours.grid, "size": 12, "solidity": 0.25},
        },
        "hoverinfo": "skip",
    }
    hidden = {"visible": False, "fixedrange": True}
    text = f"<b>{heading}</b><br>{'<br>'.join(plain(line, 120) for line in _wrapped(message))}"
    return figure(
        [hatched],
        dark=dark,
        alt=f"{title}: {heading}. {message.removesuffix('.')}.",
        title=title,
        subtitle=subtitle,
        height=height,
        xaxis=hidden | {"range": [0, 1]},
        yaxis=hidden | {"range": [0, 1]},
        annotations=[note(text, 0.5, 0.5, dark, bgcolor=colours.surface, borderpad=8)],
    )


def _wrapped(text: str, width: int = 56) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
