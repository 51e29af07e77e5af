"""Contents of a figure: its numbers, its annotations, one of its traces."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from sfapp.views import figures


def numbers(spec: Any) -> np.ndarray:
    """A typed array, or a list, as numbers."""
    if not isinstance(spec, dict):
        return np.asarray(spec, dtype=np.float64)
    flat = np.frombuffer(base64.b64decode(spec["bdata"]), dtype="<f4")
    return flat.reshape([int(part) for part in spec["shape"].split(",")]) if "shape" in spec else flat


def texts(figure: figures.Figure) -> str:
    """All annotations, one after the other."""
    return " | ".join(note.get("text", "").replace("<br>", " ") for note in figure["layout"]["annotations"])


def trace(figure: figures.Figure, name: str) -> dict[str, Any]:
    return next(found for found in figure["data"] if found.get("name", "").startswith(name))
