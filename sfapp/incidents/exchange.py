"""Export and import incidents as a readable file that holds every edit.

An import reads the edits only; ``incidents`` and ``notes`` are for people and other tools.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from sfapp.errors import IncidentError
from sfapp.incidents.events import Event, ItemEdit, Undo, checked, fields_of
from sfapp.incidents.state import IncidentState
from sfapp.incidents.state_builder import state_from_events
from sfapp.model.parse import UNREADABLE_JSON, parse_run_window
from sfapp.model.sides import SideKey

FORMAT = "sfapp-incidents"
VERSION = 1

MAX_BYTES = 64 << 20
"""Size limit of an imported file, bytes."""


_AT_ONCE = 200
"""Incidents, notes, marks or edits in one part of a document."""

_KEYS = ("reference", "a", "b", "c")
"""Query parameters of a page that name a window or a run."""


class _ExportDocument(msgspec.Struct):
    format: str
    version: int
    events: list[Event]


Rename = Callable[[str], str]


def document_of(state: IncidentState, incident_id: str | None = None) -> dict[str, Any]:
    """Return everything, or one incident with its items and notes, as plain data for JSON.

    Raises:
        IncidentNotFoundError: there is no such incident.
    """
    document: dict[str, Any] = msgspec.to_builtins(_document(state, incident_id))
    return document


def document_parts(state: IncidentState, incident_id: str | None = None) -> Iterator[bytes]:
    """Return the same as JSON, in parts that are made as they are read.

    Raises:
        IncidentNotFoundError: there is no such incident.
    """
    return _parts(_document(state, incident_id))


def _document(state: IncidentState, incident_id: str | None) -> dict[str, Any]:
    shown = state
    if incident_id is not None:
        shown = state_from_events(events_of(state, state.incident(incident_id).id))
    return {
        "format": FORMAT,
        "version": VERSION,
        "incidents": shown.incidents,
        "notes": shown.notes,
        "problems": shown.marks,
        "events": shown.events,
    }


def _parts(document: dict[str, Any]) -> Iterator[bytes]:
    begin = b"{"
    for name, value in document.items():
        yield begin + msgspec.json.encode(name) + b":"
        begin = b","
        if not isinstance(value, tuple):
            yield msgspec.json.encode(value)
            continue
        for at in range(0, len(value), _AT_ONCE):
            yield (b"," if at else b"[") + msgspec.json.encode(value[at : at + _AT_ONCE])[1:-1]
        yield b"]" if value else b"[]"
    yield b"}"


def events_of(state: IncidentState, incident_id: str) -> tuple[Event, ...]:
    """Return every edit of one incident, undone ones included, in order."""
    items = {
        event.target
        for event in state.events
        if isinstance(event, ItemEdit) and event.fields.incident == incident_id
    }
    notes = {
        event.fields.note
        for event in state.events
        if isinstance(event, ItemEdit) and event.target in items and isinstance(event.fields.note, str)
    }
    return _all_about(state, {incident_id} | items | notes)


def events_of_notes(state: IncidentState, notes: Collection[str]) -> tuple[Event, ...]:
    """Return every edit of some notes, undone ones included, in order."""
    return _all_about(state, notes)


def _all_about(state: IncidentState, targets: Collection[str]) -> tuple[Event, ...]:
    """Return the edits of these things and their undos."""
    found: list[Event] = []
    ids: set[str] = set()
    for event in state.events:
        if event.target in (ids if isinstance(event, Undo) else targets):
            found.append(event)
            ids.add(event.id)
    return tuple(found)


def parse(content: bytes) -> list[Event]:
    """Parse an exported file into edits for ``IncidentLog.append``.

    Raises:
        IncidentError: it is no such file, is of a newer version, or holds invalid edits; the message gives
            the reason and the place.
    """
    if len(content) > MAX_BYTES:
        raise IncidentError(f"the file has over {MAX_BYTES >> 20} MB: it is not an exported incident")
    try:
        found = msgspec.json.decode(content, type=_ExportDocument)
    except UNREADABLE_JSON as error:
        raise IncidentError(f"the file is not an incident exported by sfapp: {error}") from None
    if found.format != FORMAT:
        raise IncidentError(f"the file is not an incident exported by sfapp: its format is {found.format!r}")
    if found.version != VERSION:
        raise IncidentError(f"the file is of version {found.version}; this sfapp reads version {VERSION}")
    return checked(found.events)


def renamed(events: Iterable[Event], run: Rename, text: Rename, id_of: Rename) -> list[Event]:
    """Return the edits with their runs, texts and ids replaced, for a report without names.

    Args:
        run: the new name of a run.
        text: a text without names.
        id_of: a new id for every old one, so that the copy cannot be mistaken for the original.
    """

    def key(window: str) -> str:
        run_id, number = parse_run_window(window)
        return f"{run(run_id)}/{number}"

    def named(old: str) -> str:
        try:
            side = SideKey.parse(old)
        except ValueError:
            return text(old)
        return str(replace(side, run_id=run(side.run_id)))

    def query(view: str) -> str:
        pairs = [
            (name, named(old) if name in _KEYS else text(old))
            for name, old in parse_qsl(view, keep_blank_values=True)
        ]
        return urlencode(pairs, quote_via=quote, safe=":,/")

    def value(name: str, old: Any) -> Any:
        if name == "pin":
            return None if old is None else msgspec.structs.replace(old, window=key(old.window))
        if name == "window":
            return key(old)
        if name in ("incident", "note"):
            return id_of(old)
        if name == "view":
            return query(old)
        if name == "mute":
            return None if old is None else msgspec.structs.replace(old, reason=text(old.reason))
        return text(old) if name in ("text", "title", "summary") else old

    found: list[Event] = []
    for event in events:
        head: dict[str, Any] = {"id": id_of(event.id), "target": id_of(event.target), "by": text(event.by)}
        if not isinstance(event, Undo):
            new = {name: value(name, old) for name, old in fields_of(event).items()}
            head["base"] = None if event.base is None else id_of(event.base)
            head["fields"] = msgspec.structs.replace(event.fields, **new)
        found.append(msgspec.structs.replace(event, **head))
    return found


def runs_named(events: Iterable[Event]) -> set[str]:
    """Return every run that pins, items and views of the edits refer to."""
    found: set[str] = set()

    def note(run_id: str) -> str:
        found.add(run_id)
        return run_id

    renamed(events, note, str, str)
    return found
