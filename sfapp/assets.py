"""Paths of the logo, the styles, the scripts and the plot library."""

from __future__ import annotations

from functools import cache
from pathlib import Path

PLOTLY = "vendor/plotly-cartesian-3.7.0.min.js"
"""The plot library, as ``assets/plotly.js`` imports it."""

EXAMPLES = "examples"
"""The folder of the built-in examples' packets."""


@cache
def assets() -> Path:
    """Return the folder of assets: in the wheel, or next to the package in a checkout."""
    package = Path(__file__).parent
    packed = package / "_assets"
    return packed if packed.is_dir() else package.parent / "assets"
