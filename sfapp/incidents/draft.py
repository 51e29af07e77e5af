"""Build an incident for a report without one, as ``sfapp report PATH`` does.

The same windows and notes always give the same edits, ids and times included, so that a report can be
repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

from sfapp.incidents.events import Event, IncidentEdit, IncidentFields, ItemEdit, ItemFields
from sfapp.incidents.exchange import events_of_notes
from sfapp.incidents.state import IncidentState
from sfapp.incidents.state_builder import state_from_events
from sfapp.model.view import ViewState, WindowKey

AUTHOR = "sfapp report"


def draft_incident(
    title: str, windows: Sequence[tuple[WindowKey, ViewState]], at: datetime, notes: IncidentState
) -> tuple[IncidentState, str]:
    """Return the notes' state with an incident of these windows, each followed by its notes, and the
    incident's id.

    Args:
        at: time of the edits, for example the end of the newest window.
        notes: state that holds the notes.
    """
    name = "\n".join([title, *(f"{key}?{view.query}" for key, view in windows)])
    incident_id = _digest(name)
    events: list[Event] = [
        IncidentEdit(id=incident_id, target=incident_id, at=at, by=AUTHOR, fields=IncidentFields(title=title))
    ]

    def collect(fields: ItemFields) -> None:
        item_id = _digest(f"{incident_id} {len(events)}")
        events.append(ItemEdit(id=item_id, target=item_id, at=at, by=AUTHOR, fields=fields))

    for key, view in windows:
        place = float(len(events))
        collect(
            ItemFields(incident=incident_id, item="window", window=str(key), view=view.query, place=place)
        )
        for note in notes.notes_on(key):
            place = float(len(events))
            collect(ItemFields(incident=incident_id, item="note", note=note.id, place=place))
    collected = {event.fields.note for event in events if isinstance(event, ItemEdit)}
    known = events_of_notes(notes, {note for note in collected if isinstance(note, str)})
    return state_from_events([*known, *events]), incident_id


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
