"""Look up the title and the help of a plot in its declaration."""

from __future__ import annotations

from sfapp.views import format
from sfapp.views.plot_registry import PLOTS


def plot_title(name: str) -> str:
    """Return a plot's title; for a plot that this version does not know, its name in words."""
    spec = PLOTS.get(name)
    return format.clip(name).replace("_", " ") if spec is None else spec.title


def plot_help(name: str) -> str:
    """Return how to read a plot, in a few sentences."""
    return PLOTS[name].help
