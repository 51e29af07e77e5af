"""Values of gates in words, with their unit."""

from __future__ import annotations

from sfapp.model.gates import GateDoc
from sfapp.views import format


def gate_value(doc: GateDoc, value: float) -> str:
    """Return ``0.8`` for a part, ``40`` for a number of things, ``1.00 ms`` for a time."""
    if doc.unit == "ns":
        return format.duration(value)
    return format.count(round(value)) if doc.whole else f"{value:.3g}"
