"""What a chosen fix would bring, as one line of a report."""

from __future__ import annotations

from sfapp.accounting import Measures, what_if_of
from sfapp.errors import WindowNotFoundError
from sfapp.model.view import ViewState
from sfapp.service.evidence import WindowEvidence
from sfapp.views.text import what_if_text


def what_if_line(evidence: WindowEvidence, measures: Measures, view: ViewState) -> str:
    """Return what the fix of a view would bring; empty without one, or where the group does not have it."""
    if view.fix is None:
        return ""
    try:
        found = what_if_of(measures, evidence.diagnosis, view.fix)
    except WindowNotFoundError:
        return ""
    return what_if_text(found, evidence.diagnosis, evidence.window.ranks).sentence
