"""Severity level of a window, for a row of the store on any surface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfapp.views import palette

Row = Mapping[str, Any]
"""One window as returned by ``Store.timeline`` or ``Store.windows``."""


def window_level(row: Row) -> palette.SeverityLevel:
    """Return the level of a window; one with missing data is always an alarm."""
    if row["lacks_data"]:
        return "alarm"
    return palette.severity_level(row["needs_attention"], row["severity"])


def window_colour(row: Row, theme: palette.Theme) -> str:
    """Return the colour of ``window_level``."""
    return palette.level_colour(window_level(row), theme)
