"""Paths of the logo, the styles, the scripts, the plot library and the sample job."""

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
    return _packed("_assets", "assets")


def sample_packets() -> Path:
    """Return the folder of the recorded sample job's packets, which nothing may be written to."""
    return _packed("_sample", "sample_data/packets")


def _packed(packed: str, in_checkout: str) -> Path:
    """Return a folder of the wheel or, in a checkout, the one that the wheel is built from."""
    package = Path(__file__).parent
    folder = package / packed
    return folder if folder.is_dir() else package.parent / in_checkout
