"""Editors of an incident log, and an incident that holds one item of each kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

from sfapp.incidents import IncidentEditor, IncidentLog
from sfapp.model.incidents import Pin
from sfapp.model.view import WindowKey

WINDOW = WindowKey("team/run 1", 13)


def author(log: IncidentLog, name: str) -> IncidentEditor:
    ticks = count()
    return IncidentEditor(
        log, name, lambda: datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=next(ticks))
    )


def write_incident(log: IncidentLog) -> str:
    """An incident of everything, by two people, undone edits included."""
    ada, grace = author(log, "Ada"), author(log, "Grace")
    ada.write_note("not part of it", Pin(window=WINDOW))
    incident_id = ada.open_incident("slow loader on node-a7", severity="high", summary="seen on team/run 1")
    note_id = ada.write_note("from here on", Pin(window=WINDOW, step=161, rank=3))
    ada.add_window(log.state().incident(incident_id), WINDOW, "tau_c=0.9&reference=team/run%201/12")
    ada.add_note(log.state().incident(incident_id), note_id)
    grace.add_comparison(log.state().incident(incident_id), "a=team/run%201/12&b=team/run%201/13")
    grace.undo(grace.edit_note(log.state().note(note_id), "no, later"))
    grace.edit_incident(log.state().incident(incident_id), status="investigating")
    return incident_id
