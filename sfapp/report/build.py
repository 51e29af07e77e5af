"""From an order to the files of a report: the one way of the command and of the app. Pure; the caller does
the reading and the writing."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sfapp.incidents import Book, sketch
from sfapp.model.view import ViewState, WindowKey
from sfapp.report.command import TITLE, command
from sfapp.report.document import Look, Report, document
from sfapp.report.formats import Files, render
from sfapp.report.redact import Pseudonyms


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be reported, and how; in the real names.

    Attributes:
        output: name of the report's file; its ending says the format.
        paths: where the packets are.
        incident: its id; None for a report on windows.
        called: how the command names the incident, where it is not by its id.
        windows, view: which windows, and how they are looked at; an incident knows this itself.
        title: of a report on windows.
        at: when a report on windows is dated.
    """

    output: str
    paths: tuple[str, ...]
    incident: str | None = None
    called: str | None = None
    windows: tuple[WindowKey, ...] = ()
    view: ViewState = field(default_factory=ViewState)
    title: str = TITLE
    at: datetime


def make(
    order: Order, look: Look, book: Book, *, version: str, names: Pseudonyms | None = None
) -> tuple[Report, Files]:
    """The report, and the files it is written as.

    Args:
        look: finds windows and judges them, under their pseudonyms where there are some.
        book: notes and incidents, in the real names.
        names: redact under these; no real name is in what is returned, but for the name of the file itself.

    Raises:
        ReportError: the file's ending is of no format, or the format cannot show what is to be reported.
        IncidentNotFoundError: there is no such incident.
    """
    notes = names.book(book) if names else book
    said = names.text(order.output) if names else order.output
    # A path may hold a name too; whoever runs the command knows where the packets are.
    paths = ["packets"] if names else list(order.paths)
    if order.incident is None:
        windows = tuple(map(names.key, order.windows)) if names else order.windows
        view = names.view(order.view) if names else order.view
        title = names.text(order.title) if names else order.title
        notes, incident_id = sketch(title, [(key, view) for key in windows], order.at, notes)
        again = command(paths, said, windows=windows, view=view, title=title, redact=names is not None)
    else:
        incident_id = names.id_of(order.incident) if names else order.incident
        called = order.called or order.incident
        again = command(paths, said, incident=called, redact=names is not None)
    incident = notes.incident(incident_id)
    made = document(incident, look, command=again, version=version, opened=order.incident is not None)
    return made, render(order.output, made, notes, incident_id)
