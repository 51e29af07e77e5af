"""Write notes, incidents and decisions about problems under a name."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET

from sfapp.errors import IncidentNotFoundError
from sfapp.incidents.events import (
    MAX_NAME,
    Event,
    IncidentEdit,
    IncidentFields,
    ItemEdit,
    ItemFields,
    MuteFields,
    NoteEdit,
    NoteFields,
    PinFields,
    ProblemEdit,
    ProblemFields,
    Undo,
)
from sfapp.incidents.log import IncidentLog
from sfapp.model.incidents import Incident, Item, ItemKind, Note, Pin, Severity, Status
from sfapp.model.problems import Problem, ProblemMark
from sfapp.model.view import WindowKey

ANONYMOUS = "anonymous"
"""Name of a user without a chosen name."""


def utc_now() -> datetime:
    """Return the time of an edit."""
    return datetime.now(UTC)


class IncidentEditor:
    """Editor of notes, incidents and decisions about problems under one name.

    Every edit is on disk when the call returns its id, which ``undo`` accepts. Edits refer to a note,
    incident or item *as it was shown*, so that other users' later edits are kept. All methods raise
    IncidentError if a text is too long or the log cannot be written.
    """

    def __init__(self, log: IncidentLog, name: str, clock: Callable[[], datetime] = utc_now) -> None:
        self._log = log
        self.name = _clean(name).strip()[:MAX_NAME] or ANONYMOUS
        self._clock = clock

    def write_note(self, text: str, pin: Pin | None = None) -> str:
        """Write a new note; the id of the edit is the note's."""
        return self._note(None, NoteFields(text=_clean(text), pin=_pin_fields(pin)))

    def edit_note(self, note: Note, text: str) -> str:
        """Replace a note's text; its pin does not change."""
        return self._note(note, NoteFields(text=_clean(text)))

    def remove_note(self, note: Note) -> str:
        """Remove a note, also from incidents."""
        return self._note(note, NoteFields(removed=True))

    def open_incident(
        self, title: str, severity: Severity = "medium", status: Status = "open", summary: str = ""
    ) -> str:
        """Open a new incident; the id of the edit is the incident's."""
        fields = IncidentFields(
            title=_clean(title), severity=severity, status=status, summary=_clean(summary)
        )
        return self._incident(None, fields)

    def edit_incident(
        self,
        incident: Incident,
        *,
        title: str | None = None,
        severity: Severity | None = None,
        status: Status | None = None,
        summary: str | None = None,
    ) -> str:
        """Change an incident's fields; those that are None do not change."""
        fields = IncidentFields(
            title=UNSET if title is None else _clean(title),
            severity=UNSET if severity is None else severity,
            status=UNSET if status is None else status,
            summary=UNSET if summary is None else _clean(summary),
        )
        return self._incident(incident, fields)

    def remove_incident(self, incident: Incident) -> str:
        """Remove an incident; its notes stay where they are pinned."""
        return self._incident(incident, IncidentFields(removed=True))

    def add_window(self, incident: Incident, window: WindowKey, view: str = "") -> str:
        """Add a window with its verdict and plots to an incident, as shown (the query of its page)."""
        return self._collect(incident, "window", window=str(window), view=view)

    def add_plot(self, incident: Incident, window: WindowKey, plot: str, view: str = "") -> str:
        """Add one plot to an incident, as shown."""
        return self._collect(incident, "plot", window=str(window), plot=plot, view=view)

    def add_comparison(self, incident: Incident, view: str) -> str:
        """Add a comparison to an incident, by the query of its page."""
        return self._collect(incident, "comparison", view=view)

    def add_note(self, incident: Incident, note_id: str) -> str:
        """Add an existing note to an incident."""
        return self._collect(incident, "note", note=note_id)

    def move_item(self, incident: Incident, item: Item, index: int) -> list[str]:
        """Move an item to another position among the incident's items, 0 for first.

        Where no number lies between its new neighbours' places, all items get new ones.

        Returns:
            The ids of the edits.
        """
        others = [other for other in incident.items if other.id != item.id]
        index = min(max(index, 0), len(others))
        before = others[index - 1].place if index else others[0].place - 2 if others else 0.0
        after = others[index].place if index < len(others) else before + 2
        place = (before + after) / 2
        placed = [(item, place)]
        if not before < place < after:
            moved = [*others[:index], item, *others[index:]]
            placed = [(one, float(number)) for number, one in enumerate(moved, 1)]
        edits = [ItemEdit(**self._head(one), fields=ItemFields(place=place)) for one, place in placed]
        self._write(*edits)
        return [edit.id for edit in edits]

    def remove_item(self, item: Item) -> str:
        """Remove an item from its incident; a note stays where it is pinned."""
        return self._item(item, ItemFields(removed=True))

    def mute_problem(
        self, problem: Problem, mark: ProblemMark | None, reason: str = "", until: datetime | None = None
    ) -> str:
        """Mute a problem until a time, or without end.

        Args:
            mark: the decisions about it as shown; None without any.
        """
        return self._mark(problem, mark, ProblemFields(mute=MuteFields(until, _clean(reason))))

    def unmute_problem(self, problem: Problem, mark: ProblemMark | None) -> str:
        """End the mute of a problem."""
        return self._mark(problem, mark, ProblemFields(mute=None))

    def mark_fixed(self, problem: Problem, mark: ProblemMark | None, through: int) -> str:
        """Mark a problem as fixed; it has returned if a window after ``through`` has it."""
        return self._mark(problem, mark, ProblemFields(fixed_through=through))

    def mark_not_fixed(self, problem: Problem, mark: ProblemMark | None) -> str:
        """Remove the mark that a problem is fixed."""
        return self._mark(problem, mark, ProblemFields(fixed_through=None))

    def undo(self, event_id: str) -> str:
        """Undo an edit, or redo it if the edit was an undo; the undo's own id can be undone too."""
        return self._write(Undo(id=_new_id(), at=self._clock(), by=self.name, target=event_id))

    def _collect(self, incident: Incident, kind: ItemKind, **fields: Any) -> str:
        with suppress(IncidentNotFoundError):  # It can come back by an undo.
            incident = self._log.state().incident(incident.id)  # with what was added meanwhile
        place = max((item.place for item in incident.items), default=0.0) + 1
        return self._item(None, ItemFields(incident=incident.id, item=kind, place=place, **fields))

    def _note(self, note: Note | None, fields: NoteFields) -> str:
        return self._write(NoteEdit(**self._head(note), fields=fields))

    def _incident(self, incident: Incident | None, fields: IncidentFields) -> str:
        return self._write(IncidentEdit(**self._head(incident), fields=fields))

    def _item(self, item: Item | None, fields: ItemFields) -> str:
        return self._write(ItemEdit(**self._head(item), fields=fields))

    def _mark(self, problem: Problem, mark: ProblemMark | None, fields: ProblemFields) -> str:
        target, base = (problem.id, None) if mark is None else (mark.problem, mark.revision)
        edit = ProblemEdit(
            id=_new_id(), at=self._clock(), by=self.name, target=target, base=base, fields=fields
        )
        return self._write(edit)

    def _head(self, edited: Note | Incident | Item | None) -> dict[str, Any]:
        """Return the fields that all edits share. A first edit targets itself; a later one the edited
        thing and revision.
        """
        new = _new_id()
        target, base = (new, None) if edited is None else (edited.id, edited.revision)
        return {"id": new, "at": self._clock(), "by": self.name, "target": target, "base": base}

    def _write(self, *events: Event) -> str:
        self._log.append(events)
        return events[-1].id


def import_events(log: IncidentLog, events: Sequence[Event]) -> int:
    """Add exported edits and return the number of new ones. Importing twice changes nothing."""
    before = len(log.state().events)
    return len(log.append(events).events) - before


def _pin_fields(pin: Pin | None) -> PinFields | None:
    if pin is None:
        return None
    return PinFields(
        window=str(pin.window),
        step=pin.step,
        stage=pin.stage,
        rank=pin.rank,
        plot=pin.plot,
        region=tuple(map(str, pin.region)),
    )


def _clean(text: str) -> str:
    """Return text that UTF-8 can encode: a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _new_id() -> str:
    return uuid.uuid4().hex
