"""Define the state of notes and incidents after all edits. Pure.

Every field has the value of the last edit that is in effect. An edit is in effect unless an undo in effect
names it. If an edit replaces a value that its author had not seen, the replaced value is listed until an
author who has seen everything edits again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfapp.errors import IncidentNotFoundError
from sfapp.incidents.events import Event, Undo, fields_of
from sfapp.model.incidents import Incident, Item, Note, Stamp, notes_on
from sfapp.model.problems import Problem, ProblemMark
from sfapp.model.view import WindowKey


@dataclass(frozen=True, slots=True)
class Revision:
    """Edit of a note, incident, item or problem, for its history.

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
    """The present notes and incidents, each in the order of creation.

    Attributes:
        notices: messages about lines that could not be read.
        marks: decisions about problems.
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
        """Return one incident by its id or a unique prefix of it.

        Raises:
            IncidentNotFoundError: no id begins with it, or several do.
        """
        found = [incident for incident in self.incidents if name and incident.id.startswith(name)]
        if len(found) == 1:
            return found[0]
        found_text = f"{len(found)} incidents begin with" if found else "there is no incident"
        raise IncidentNotFoundError(f"{found_text} {name!r}")

    def mark(self, problem: Problem) -> ProblemMark | None:
        """Return the decisions about a problem, by its id or one of its other ids."""
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
        """Return all edits of a note, an incident or an item, in order."""
        standing = _standing(self.events)
        return tuple(
            Revision(event.id, Stamp(event.by, event.at), fields_of(event), event.id in standing)
            for event in self.events
            if not isinstance(event, Undo) and event.target == target
        )


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
