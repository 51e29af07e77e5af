"""Notes and incidents: an append-only log of edits next to the packets, and the resulting state."""

from sfapp.incidents.draft import draft_incident
from sfapp.incidents.editor import ANONYMOUS, IncidentEditor, import_events
from sfapp.incidents.events import MAX_NAME, MAX_TEXT, MAX_TITLE, Event
from sfapp.incidents.exchange import document_of, document_parts, events_of, parse, renamed, runs_named
from sfapp.incidents.log import MAX_BYTES, NAME, IncidentLog, UnavailableLog
from sfapp.incidents.state import IncidentState, Revision
from sfapp.incidents.state_builder import state_from_events

__all__ = [
    "ANONYMOUS",
    "MAX_BYTES",
    "MAX_NAME",
    "MAX_TEXT",
    "MAX_TITLE",
    "NAME",
    "Event",
    "IncidentEditor",
    "IncidentLog",
    "IncidentState",
    "Revision",
    "UnavailableLog",
    "document_of",
    "document_parts",
    "draft_incident",
    "events_of",
    "import_events",
    "parse",
    "renamed",
    "runs_named",
    "state_from_events",
]
