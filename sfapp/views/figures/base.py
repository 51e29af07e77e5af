"""Build figures: theme, axes, escaping, typed arrays, alternative texts."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sfapp.model import Diagnosis, Window
from sfapp.terminal import without_controls
from sfapp.views import format, palette
from sfapp.views.plot_registry import Figure as Figure

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
    """Return text from a file escaped for Plotly: no tags, ``%{…}`` templates or TeX, one bounded line."""
    return without_controls(format.clip(text, limit)).translate(_ENTITIES)


def f4(values: npt.ArrayLike) -> dict[str, Any]:
    """Return values as a base64 float32 array, 1-D or 2-D, which plotly.js reads without parsing numbers."""
    array = np.ascontiguousarray(values, dtype="<f4")
    spec: dict[str, Any] = {"dtype": "f4", "bdata": base64.b64encode(array.tobytes()).decode("ascii")}
    if array.ndim == 2:
        spec["shape"] = f"{array.shape[0]}, {array.shape[1]}"
    return spec


_DTYPES = {"f4": "<f4", "f8": "<f8", "i4": "<i4", "i2": "<i2", "i1": "<i1", "u1": "<u1", "u2": "<u2"}


def typed_array(spec: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return the values of a typed array, such as ``f4`` makes.

    Raises:
        KeyError: it has an element type that no figure uses.
    """
    array = np.frombuffer(base64.b64decode(spec["bdata"]), dtype=_DTYPES[spec["dtype"]])
    shape = spec.get("shape")
    return array.reshape([int(size) for size in shape.split(",")]) if shape else array


def revision(source: Diagnosis | Window, *extra: object) -> str:
    """Return a ``uirevision`` that keeps the zoom across updates of one window."""
    number = source.number if isinstance(source, Window) else source.window
    return "/".join(str(part) for part in (source.run_id, number, source.group, *extra))


def axis(dark: bool, **settings: Any) -> dict[str, Any]:
    """Return a cartesian axis in the style of all figures."""
    colours = palette.theme(dark)
    title = settings.pop("title", None)
    style: dict[str, Any] = {
        "gridcolor": colours.grid,
        "linecolor": colours.axis,
        "zeroline": False,
        "showline": False,
        "exponentformat": "none",
        "ticks": "",
        # Otherwise the labels of two axes overlap if both begin at their common corner.
        "ticklabelstandoff": 4,
        "tickfont": {"color": colours.muted, "size": 12},
        "automargin": True,
        "fixedrange": False,
    }
    if title is not None:
        style["title"] = {"text": title, "font": {"color": colours.muted, "size": 12}, "standoff": 8}
    return style | settings


def name_axis(dark: bool, names: int, **settings: Any) -> dict[str, Any]:
    """Return a horizontal axis of names, turned according to the plot's width; many names are always
    turned."""
    turned: dict[str, Any] = {"autotickangles": [0, -30, -60, -90]} if names <= 8 else {"tickangle": -45}
    font = {"color": palette.theme(dark).ink, "size": 12}
    return axis(dark, showgrid=False, tickfont=font, **(turned | settings))


def colour_key(dark: bool, unit: str = "") -> dict[str, Any]:
    """Return the key of a colour scale, with the unit at its numbers, because a title would overlap the top
    one."""
    return {
        "thickness": 10, "outlinewidth": 0, "len": 0.9, "nticks": 5,
        "tickfont": {"color": palette.theme(dark).muted, "size": 12},
        **({"ticksuffix": f" {unit}"} if unit else {}),
    }  # fmt: skip


def step_axis(dark: bool, steps: int, **settings: Any) -> dict[str, Any]:
    """Return an axis of logical step numbers, without fractions; if there are few steps, all are labelled."""
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
    """Return a figure: transparent, themed, with its texts in ``layout.meta``.

    Args:
        interaction: possible actions in the app; reports and notebooks leave it out.
        draggable: whether shapes above the traces can be dragged; those below get no pointer events.
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
        # After a drag, the server's position of a threshold must replace the browser's.
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
    """Return a text annotation without an arrow; names from files in ``text`` must be escaped."""
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
    """Return a horizontal legend above the plot."""
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
    """Return a separate legend entry, for bars whose first one is hatched."""
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
    """Return a hatched figure that says why there is nothing to draw, below ``n/a`` or another heading."""
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


def _wrapped(text: str, width: int = 40) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
