"""Derive the state of notes and incidents from all edits. Pure.

Every field has the value of the last edit that is in effect. An edit is in effect unless an undo in effect
names it. If an edit replaces a value that its author had not seen, the replaced value is listed until an
author who has seen everything edits again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sfapp.errors import IncidentNotFoundError
from sfapp.incidents.events import (
    Edit,
    Event,
    IncidentEdit,
    ItemEdit,
    NoteEdit,
    PinFields,
    ProblemEdit,
    Undo,
    fields_of,
)
from sfapp.model.incidents import Incident, Item, Note, Overwritten, Pin, Stamp, notes_on
from sfapp.model.problems import Problem, ProblemMark
from sfapp.model.view import WindowKey, Zoom


@dataclass(frozen=True, slots=True)
class Revision:
    """Edit of a thing, for its history.

    Attributes:
        fields: the fields that it set.
        stands: False if it was undone.
    """

    event: str
    stamp: Stamp
    fields: dict[str, Any]
    stands: bool


@dataclass(frozen=True, slots=True)
class IncidentState:
    """Notes and incidents as they are, each in the order of creation.

    Attributes:
        notices: messages about lines that could not be read.
        marks: what was decided about problems.
    """

    notes: tuple[Note, ...]
    incidents: tuple[Incident, ...]
    events: tuple[Event, ...]
    notices: tuple[str, ...] = ()
    marks: tuple[ProblemMark, ...] = ()

    def notes_on(self, window: WindowKey) -> tuple[Note, ...]:
        """Return the notes pinned to a window or to a part of it."""
        return notes_on(window, self.notes)

    def note(self, note_id: str) -> Note:
        """Return one note.

        Raises:
            IncidentNotFoundError: there is none, or it was removed.
        """
        for note in self.notes:
            if note.id == note_id:
                return note
        raise IncidentNotFoundError(f"there is no note {note_id!r}; it may have been removed")

    def incident(self, name: str) -> Incident:
        """Return one incident by its id, or by enough of its beginning.

        Raises:
            IncidentNotFoundError: no id begins with it, or several do.
        """
        found = [incident for incident in self.incidents if name and incident.id.startswith(name)]
        if len(found) == 1:
            return found[0]
        found_text = f"{len(found)} incidents begin with" if found else "there is no incident"
        raise IncidentNotFoundError(f"{found_text} {name!r}")

    def mark(self, problem: Problem) -> ProblemMark | None:
        """Return what was decided about a problem, under its id or another that it is known by."""
        by_id = {mark.problem: mark for mark in self.marks}
        return next((by_id[one] for one in (problem.id, *problem.other_ids) if one in by_id), None)

    def item(self, item_id: str) -> Item:
        """Return one item of any incident.

        Raises:
            IncidentNotFoundError: there is none, or it was removed.
        """
        for incident in self.incidents:
            for item in incident.items:
                if item.id == item_id:
                    return item
        raise IncidentNotFoundError(f"there is no item {item_id!r}; it may have been removed")

    def history(self, target: str) -> tuple[Revision, ...]:
        """Return all edits of a note, an incident or an item, the first one first."""
        standing = _standing(self.events)
        return tuple(
            Revision(event.id, Stamp(event.by, event.at), fields_of(event), event.id in standing)
            for event in self.events
            if not isinstance(event, Undo) and event.target == target
        )


def state_from_events(events: Sequence[Event], notices: Iterable[str] = ()) -> IncidentState:
    """Return the state after all events, in their order."""
    standing = _standing(events)
    threads: dict[str, _EditThread] = {}
    places = {event.id: place for place, event in enumerate(events)}
    for place, event in enumerate(events):
        if not isinstance(event, Undo) and event.id in standing:
            is_first = event.target == event.id or isinstance(event, ProblemEdit)
            if event.target not in threads and not is_first:
                continue  # The first edit was undone or is missing.
            thread = threads.setdefault(event.target, _EditThread(type(event), event.target))
            thread.add(event, place, seen=places.get(event.base or "", -1))
    kept = [thread for thread in threads.values() if not thread.value("removed", False)]
    notes = {thread.id: _note(thread) for thread in kept if thread.kind is NoteEdit and thread.has("text")}
    items = [thread for thread in kept if thread.kind is ItemEdit]
    incidents = [
        _incident(thread, [item for item in items if item.value("incident") == thread.id], notes)
        for thread in kept
        if thread.kind is IncidentEdit and thread.has("title")
    ]
    marks = tuple(_mark(thread) for thread in kept if thread.kind is ProblemEdit)
    return IncidentState(tuple(notes.values()), tuple(incidents), tuple(events), tuple(notices), marks)


def _standing(events: Sequence[Event]) -> set[str]:
    """Return the ids of the edits in effect. An undo comes after the edit that it names."""
    undone: set[str] = set()
    standing: set[str] = set()
    for event in reversed(events):
        if event.id in undone:
            continue
        standing.add(event.id)
        if isinstance(event, Undo):
            undone.add(event.target)
    return standing


@dataclass(slots=True)
class _EditThread:
    """Edits in effect of one thing."""

    kind: type[Edit]
    id: str
    edits: list[Edit] = field(default_factory=list)
    last: int = -1
    fields: dict[str, tuple[Any, Edit, int]] = field(default_factory=dict)
    overwritten: dict[str, list[Overwritten]] = field(default_factory=dict)

    def add(self, event: Edit, place: int, seen: int) -> None:
        """Add an edit at a position among all events, whose author had seen everything up to ``seen``."""
        if not isinstance(event, self.kind):
            return  # Things of two kinds never share an id, except in a forged line.
        for name, value in fields_of(event).items():
            before = self.fields.get(name)
            if seen >= self.last:
                self.overwritten.pop(name, None)
            elif before is not None and before[2] > seen and before[0] != value:
                lost = Overwritten(name, str(before[0]), _stamp(before[1]), before[1].id)
                self.overwritten.setdefault(name, []).append(lost)
            self.fields[name] = (value, event, place)
        self.edits.append(event)
        self.last = place

    def has(self, name: str) -> bool:
        return name in self.fields

    def value(self, name: str, default: Any = None) -> Any:
        return self.fields[name][0] if name in self.fields else default

    def stamp_of(self, name: str) -> Stamp:
        """Return who set a field last, and when."""
        return _stamp(self.fields[name][1])

    @property
    def written(self) -> Stamp:
        return _stamp(self.edits[0])

    @property
    def changed(self) -> Stamp | None:
        return _stamp(self.edits[-1]) if len(self.edits) > 1 else None

    @property
    def revision(self) -> str:
        return self.edits[-1].id

    @property
    def lost(self) -> tuple[Overwritten, ...]:
        return tuple(one for name in self.overwritten for one in self.overwritten[name])


def _note(thread: _EditThread) -> Note:
    return Note(
        id=thread.id,
        text=thread.value("text"),
        pin=_pin(thread.value("pin")),
        written=thread.written,
        changed=thread.changed,
        revision=thread.revision,
        overwritten=thread.lost,
    )


def _incident(thread: _EditThread, items: Sequence[_EditThread], notes: dict[str, Note]) -> Incident:
    found = [item for item in (_item(one, notes) for one in items) if item is not None]
    stamps = [thread.changed, *(item.changed or item.written for item in items)]
    changes = [stamp for stamp in stamps if stamp is not None]
    return Incident(
        id=thread.id,
        title=thread.value("title"),
        severity=thread.value("severity", "medium"),
        status=thread.value("status", "open"),
        summary=thread.value("summary", ""),
        items=tuple(sorted(found, key=lambda item: (item.place, item.id))),
        written=thread.written,
        changed=max(changes, key=lambda stamp: stamp.at, default=None),
        revision=thread.revision,
        overwritten=thread.lost,
    )


def _mark(thread: _EditThread) -> ProblemMark:
    mute, fixed_through = thread.value("mute"), thread.value("fixed_through")
    return ProblemMark(
        problem=thread.id,
        muted=None if mute is None else thread.stamp_of("mute"),
        muted_until=None if mute is None else mute.until,
        reason="" if mute is None else mute.reason,
        fixed=None if fixed_through is None else thread.stamp_of("fixed_through"),
        fixed_through=fixed_through,
        revision=thread.revision,
        overwritten=thread.lost,
    )


def _item(thread: _EditThread, notes: dict[str, Note]) -> Item | None:
    """Return the item, or None if what it shows was removed or never named."""
    kind = thread.value("item")
    key, note = thread.value("window"), notes.get(thread.value("note", ""))
    missing = {
        "window": key is None,
        "plot": key is None or not thread.has("plot"),
        "comparison": not thread.has("view"),
        "note": note is None,
    }
    if missing.get(kind, True):
        return None
    return Item(
        id=thread.id,
        kind=kind,
        place=thread.value("place", 0.0),
        window=None if key is None else WindowKey.parse(key),
        view=thread.value("view", ""),
        plot=thread.value("plot"),
        note=note,
        written=thread.written,
        revision=thread.revision,
    )


def _pin(fields: PinFields | None) -> Pin | None:
    if fields is None:
        return None
    pin = Pin(
        window=WindowKey.parse(fields.window),
        step=fields.step,
        stage=fields.stage,
        rank=fields.rank,
        plot=fields.plot,
    )
    try:
        return replace(pin, region=tuple(Zoom.parse(part) for part in fields.region))
    except ValueError:
        return pin  # An invalid region of a plot is left out; the note's text is kept.


def _stamp(event: Edit) -> Stamp:
    return Stamp(event.by, event.at)
