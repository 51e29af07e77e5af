"""Read the values of a Plotly figure: typed arrays, scalars or lists, number formats."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sfapp.errors import ReportError
from sfapp.views.figures.base import typed_array

Floats = npt.NDArray[np.float64]

_DRAG_MARK = re.compile(r"\s*[⇕⇔]\s*$")
_TEMPLATE = re.compile(r"%\{(\w+)(?::([^}]*))?\}")


def values(data: Any) -> list[Any]:
    """Return a column as a list of numbers and texts, None for gaps."""
    if isinstance(data, Mapping) and "bdata" in data:
        return [None if math.isnan(value) else value for value in _typed(data).ravel().tolist()]
    return [None if isinstance(value, float) and math.isnan(value) else value for value in (data or [])]


def matrix(data: Any) -> Floats:
    """Return a table of numbers [rows, columns], NaN for gaps."""
    if isinstance(data, Mapping):
        return _typed(data).astype(np.float64)
    return np.array([[math.nan if cell is None else cell for cell in row] for row in data], dtype=np.float64)


def _typed(data: Mapping[str, Any]) -> npt.NDArray[Any]:
    try:
        return typed_array(data)
    except KeyError:
        raise unsupported("typed array", data.get("dtype")) from None


def each(value: Any, place: int, default: Any = None) -> Any:
    """Return the value for one point: its element of a list, or the common scalar."""
    if isinstance(value, Mapping) and "bdata" in value:
        value = values(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value[place] if place < len(value) else default
    return default if value is None else value


def formatted(value: float, pattern: str, step: float | None = None) -> str:
    """Format a number by a d3 format of our figures; without one, with the precision of ``step``."""
    if pattern == "":
        digits = 0 if step is None or step <= 0 else max(0, -math.floor(math.log10(step) + 1e-9))
        if step is not None and digits and abs(step * 10**digits - round(step * 10**digits)) > 1e-6:
            digits += 1
        text = f"{value:.{digits}f}"
    elif pattern == "d":
        if abs(value - round(value)) > 1e-9:
            return ""
        text = f"{round(value)}"
    elif found := re.fullmatch(r"\.(\d+)%", pattern):
        text = f"{100 * value:.{found[1]}f}%"
    elif found := re.fullmatch(r"\.(\d+)f", pattern):
        text = f"{value:.{found[1]}f}"
    else:
        raise unsupported("number format", pattern)
    negative_zero = text.startswith("-") and not re.search("[1-9]", text)
    return text[1:] if negative_zero else text.replace("-", "−")


def filled(template: str, found: Mapping[str, Any]) -> str:
    """Replace ``%{x0:.2f}`` and similar fields, and drop the drag mark, which has no meaning on paper."""

    def value(match: re.Match[str]) -> str:
        inner = found.get(match[1], "")
        return formatted(float(inner), match[2]) if match[2] else str(inner)

    return without_drag_mark(_TEMPLATE.sub(value, template))


def without_drag_mark(text: str) -> str:
    """Return a label without the mark that invites to drag."""
    return _DRAG_MARK.sub("", text)


def unsupported(what: str, name: object) -> ReportError:
    """Return the error for a feature that the drawing does not support."""
    return ReportError(f"cannot draw this figure without a browser: its {what} {name!r} is not supported")
