"""A second editor of the incident log, as another process has it."""

from __future__ import annotations

from sfapp.incidents import IncidentEditor, IncidentLog


def second_editor(log: IncidentLog, name: str = "Grace") -> IncidentEditor:
    """Return an editor with a log of its own over the same file; the app reads its edits from the file."""
    return IncidentEditor(IncidentLog(log.path), name)
