"""Which moved thresholds the headline of a verdict cannot depend on."""

from __future__ import annotations

from sfapp.model import Diagnosis
from sfapp.model.gates import GATE_BY_NAME, LABEL_GATES
from sfapp.views import format


def headline_stays(diagnosis: Diagnosis) -> str:
    """Return that moved thresholds decide labels only; empty where none of them is moved.

    The suspect and its cost follow from effects beyond noise (accounting.md §17), not from these thresholds.
    """
    moved = [GATE_BY_NAME[name].symbol for name in diagnosis.gates.changed() if name in LABEL_GATES]
    if not moved:
        return ""
    them = "it" if len(moved) == 1 else "them"
    return f"{format.listed(moved, 6)} cannot change this headline: labels and routing set depend on {them}."
