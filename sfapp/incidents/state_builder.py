"""Build the state of notes and incidents from edits, and bring it up to date as further edits arrive. Pure.

A log holds all edits that were ever made. A further edit costs what it changes, not what the log holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Generic, TypeVar

from sfapp.incidents.edit_thread import EditThread, incident_of, mark_of, note_of
from sfapp.incidents.events import Event, IncidentEdit, ItemEdit, NoteEdit, ProblemEdit, Undo
from sfapp.incidents.state import IncidentState
from sfapp.model.incidents import Incident, Note
from sfapp.model.problems import ProblemMark

Value = TypeVar("Value")

_NOTHING = ""
"""End of a chain of undos that name each other in a circle: the id of no edit."""


class StateBuilder:
    """All edits so far and what follows from them. An edit that is added twice counts once."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._places: dict[str, int] = {}  # by the event's id
        self._undos: defaultdict[str, list[int]] = defaultdict(list)  # by the id of the event that they undo
        # By the id of an undo: what it names, or the end of a chain from there.
        self._undone: dict[str, str] = {}
        self._edits: defaultdict[str, list[int]] = defaultdict(list)  # by the thing that they edit
        self._threads: dict[str, EditThread] = {}
        self._stale: set[str] = set()  # things of which an edit was undone or restored
        self._changed: set[str] = set()  # things with new edits
        self._shown = _ShownThings()

    def __contains__(self, event_id: str) -> bool:
        return event_id in self._places

    def add(self, event: Event) -> None:
        """Add an edit after all others."""
        if event.id in self._places:
            return
        place = len(self._events)
        self._events.append(event)
        self._places[event.id] = place
        if isinstance(event, Undo):
            self._undos[event.target].append(place)
            self._undone[event.id] = event.target
            edited = self._thing_edited_by(event)
            if edited is not None:
                self._stale.add(edited)
        else:
            self._edits[event.target].append(place)
            if event.target not in self._stale:
                self._add_to_thread(event.target, place)
                self._changed.add(event.target)

    def state(self, notices: Iterable[str] = ()) -> IncidentState:
        """Return the state after all edits."""
        for thing in self._stale:
            self._threads.pop(thing, None)
            for place in self._edits[thing]:
                if self._is_in_effect(place):
                    self._add_to_thread(thing, place)
        self._shown.update({thing: self._threads.get(thing) for thing in self._stale | self._changed})
        self._stale.clear()
        self._changed.clear()
        shown = self._shown
        notes, incidents, marks = shown.notes.in_order(), shown.incidents.in_order(), shown.marks.in_order()
        return IncidentState(notes, incidents, tuple(self._events), tuple(notices), marks)

    def _add_to_thread(self, thing: str, place: int) -> None:
        event = self._events[place]
        assert not isinstance(event, Undo)
        if thing not in self._threads:
            if event.target != event.id and not isinstance(event, ProblemEdit):
                return  # The first edit was undone or is missing.
            self._threads[thing] = EditThread(type(event), thing, place)
        self._threads[thing].add(event, place, seen=self._places.get(event.base or "", -1))

    def _thing_edited_by(self, undo: Undo) -> str | None:
        """Return what the edit at the end of a chain of undos changed; None if it is missing."""
        end, passed = undo.id, dict[str, None]()
        while end in self._undone and end not in passed:
            passed[end] = None
            end = self._undone[end]
        is_cycle = end in passed
        for each in passed:  # The next undo of the chain need not walk it again.
            self._undone[each] = _NOTHING if is_cycle else end
        place = None if is_cycle else self._places.get(end)
        return None if place is None else self._events[place].target

    def _is_in_effect(self, place: int) -> bool:
        """Return whether no undo that is itself in effect follows this edit and names it."""
        chain = {place}
        waiting = [place]
        while waiting:
            undone = waiting.pop()
            later = {undo for undo in self._undos.get(self._events[undone].id, ()) if undo > undone} - chain
            chain |= later
            waiting.extend(later)
        in_effect: dict[int, bool] = {}
        for each in sorted(chain, reverse=True):
            undos = self._undos.get(self._events[each].id, ())
            in_effect[each] = not any(undo > each and in_effect[undo] for undo in undos)
        return in_effect[place]


class _Ordered(Generic[Value]):
    """Values of things in the order in which the things began, in which they nearly always arrive."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self._begins: dict[str, int] = {}
        self._last = -1
        self._is_ordered = True

    def put(self, thing: str, begin: int, value: Value | None) -> None:
        """Set the value of a thing that began at this place; None removes it."""
        if value is None:
            self.values.pop(thing, None)
            return
        if thing not in self.values:
            self._is_ordered &= begin > self._last
        elif begin != self._begins[thing]:
            self._is_ordered = False
        self.values[thing], self._begins[thing] = value, begin
        self._last = max(self._last, begin)

    def in_order(self) -> tuple[Value, ...]:
        """Return all values."""
        if not self._is_ordered:
            ordered = sorted(self.values, key=self._begins.__getitem__)
            self.values = {thing: self.values[thing] for thing in ordered}
            self._is_ordered = True
        return tuple(self.values.values())


class _ShownThings:
    """Notes, incidents and decisions that are not removed, by the id of the thing."""

    def __init__(self) -> None:
        self.notes: _Ordered[Note] = _Ordered()
        self.incidents: _Ordered[Incident] = _Ordered()
        self.marks: _Ordered[ProblemMark] = _Ordered()
        self._incident_threads: dict[str, EditThread] = {}
        self._items: defaultdict[str, dict[str, EditThread]] = defaultdict(dict)  # by incident
        self._shown_in: dict[str, tuple[str, str]] = {}  # incident and note of an item
        self._showing: defaultdict[str, set[str]] = defaultdict(set)  # items that show a note

    def update(self, threads: Mapping[str, EditThread | None]) -> None:
        """Take over the threads of changed things; None for one without any edit in effect."""
        affected: set[str] = set()
        for thing, thread in threads.items():
            is_shown = thread is not None and not thread.value("removed", False)
            affected |= self._take_over(thing, thread if is_shown else None)
        for incident in affected:
            thread = self._incident_threads.get(incident)
            if thread is not None:
                items = sorted(self._items.get(incident, {}).values(), key=attrgetter("begin"))
                self.incidents.put(incident, thread.begin, incident_of(thread, items, self.notes.values))

    def _take_over(self, thing: str, thread: EditThread | None) -> set[str]:
        """Set or remove one thing, and return the incidents that show it."""
        affected = {self._shown_in[item][0] for item in self._showing.get(thing, ())}
        begin, kind = (-1, None) if thread is None else (thread.begin, thread.kind)
        is_note = thread is not None and kind is NoteEdit and thread.has("text")
        self.notes.put(thing, begin, note_of(thread) if thread is not None and is_note else None)
        is_mark = kind is ProblemEdit
        self.marks.put(thing, begin, mark_of(thread) if thread is not None and is_mark else None)
        if thread is not None and kind is IncidentEdit and thread.has("title"):
            self._incident_threads[thing] = thread
            affected.add(thing)
        elif self._incident_threads.pop(thing, None) is not None:
            self.incidents.put(thing, begin, None)
        affected |= self._remove_item(thing)
        if thread is not None and kind is ItemEdit:
            incident, note = thread.value("incident", ""), thread.value("note", "")
            self._shown_in[thing] = incident, note
            self._items[incident][thing] = thread
            self._showing[note].add(thing)
            affected.add(incident)
        return affected

    def _remove_item(self, thing: str) -> set[str]:
        """Remove an item, if it is one, and return its incident."""
        if thing not in self._shown_in:
            return set()
        incident, note = self._shown_in.pop(thing)
        del self._items[incident][thing]
        self._showing[note].discard(thing)
        return {incident}


def state_from_events(events: Iterable[Event], notices: Iterable[str] = ()) -> IncidentState:
    """Return the state after all events, in their order."""
    builder = StateBuilder()
    for event in events:
        builder.add(event)
    return builder.state(notices)
