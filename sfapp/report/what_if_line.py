"""What a chosen fix would bring, as one line of a report."""

from __future__ import annotations

from sfapp.accounting import Measures, what_if_of
from sfapp.errors import WindowNotFoundError
from sfapp.model import Fix
from sfapp.service.window_evidence import WindowEvidence
from sfapp.views.text import what_if_text


def what_if_line(evidence: WindowEvidence, measures: Measures, fix: Fix | None) -> str:
    """Return what a fix would bring; empty without one."""
    if fix is None:
        return ""
    try:
        found = what_if_of(measures, evidence.diagnosis, fix)
    except WindowNotFoundError as error:
        return f"No prediction for {fix}: {error}."
    return what_if_text(found, evidence.diagnosis, evidence.window.ranks).sentence
