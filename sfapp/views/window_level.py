"""How bad a window is, for a row of the store on any surface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfapp.views import palette

Row = Mapping[str, Any]
"""One window as ``Store.timeline`` or ``Store.windows`` gives it."""


def window_level(row: Row) -> palette.SeverityLevel:
    """Return how a window is marked; one without all its data is an alarm, whatever the rest shows."""
    if row["lacks_data"]:
        return "alarm"
    return palette.severity_level(row["needs_attention"], row["severity"])


def window_colour(row: Row, theme: palette.Theme) -> str:
    """Return the colour of ``window_level``."""
    return palette.level_colour(window_level(row), theme)
