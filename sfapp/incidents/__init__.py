"""Notes and incidents: an append-only log of edits beside the packets, and what they amount to."""

from sfapp.incidents.draft import sketch
from sfapp.incidents.editor import NOBODY, Author, import_events
from sfapp.incidents.events import MAX_NAME, MAX_TEXT, MAX_TITLE, Event
from sfapp.incidents.exchange import document_of, events_of, parse, renamed, runs_named
from sfapp.incidents.log import IncidentLog
from sfapp.incidents.state import Book, Revision, book_of

__all__ = [
    "MAX_NAME",
    "MAX_TEXT",
    "MAX_TITLE",
    "NOBODY",
    "Author",
    "Book",
    "Event",
    "IncidentLog",
    "Revision",
    "book_of",
    "document_of",
    "events_of",
    "import_events",
    "parse",
    "renamed",
    "runs_named",
    "sketch",
]
