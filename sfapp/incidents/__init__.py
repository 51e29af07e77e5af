"""Notes and incidents: an append-only log of edits beside the packets, and what they amount to."""

from sfapp.incidents.author import NOBODY, Author, import_events
from sfapp.incidents.book import Book, Revision, book_of
from sfapp.incidents.events import MAX_NAME, MAX_TEXT, MAX_TITLE, Event
from sfapp.incidents.exchange import document_of, events_of, parse, renamed, runs_named
from sfapp.incidents.log import IncidentLog
from sfapp.incidents.sketch import sketch

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
