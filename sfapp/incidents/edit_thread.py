"""Derive one note, incident, item or problem mark from its edits. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sfapp.incidents.events import Edit, PinFields, fields_of
from sfapp.model.incidents import Incident, Item, Note, Overwritten, Pin, Stamp
from sfapp.model.problems import ProblemMark
from sfapp.model.view import WindowKey, Zoom


@dataclass(slots=True)
class EditThread:
    """The edits in effect of one note, incident, item or problem mark.

    Attributes:
        begin: place of the first edit among all events.
        last: place of the last edit.
        fields: by name the newest value, the edit that set it, and that edit's place.
        overwritten: by field the values that an author replaced without having seen them.
    """

    kind: type[Edit]
    id: str
    begin: int
    edits: list[Edit] = field(default_factory=list)
    last: int = -1
    fields: dict[str, tuple[Any, Edit, int]] = field(default_factory=dict)
    overwritten: dict[str, list[Overwritten]] = field(default_factory=dict)

    def add(self, event: Edit, place: int, seen: int) -> None:
        """Add an edit at a place among all events, whose author had seen everything up to ``seen``."""
        if not isinstance(event, self.kind):
            return  # Two kinds share an id only in a forged line.
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
        """Return whether a field was ever set."""
        return name in self.fields

    def value(self, name: str, default: Any = None) -> Any:
        """Return the newest value of a field."""
        return self.fields[name][0] if name in self.fields else default

    def stamp_of(self, name: str) -> Stamp:
        """Return who set a field last, and when."""
        return _stamp(self.fields[name][1])

    @property
    def written(self) -> Stamp:
        """Author and time of the first edit."""
        return _stamp(self.edits[0])

    @property
    def changed(self) -> Stamp | None:
        """Author and time of the last edit; None if there is only one."""
        return _stamp(self.edits[-1]) if len(self.edits) > 1 else None

    @property
    def revision(self) -> str:
        """Id of the last edit."""
        return self.edits[-1].id

    @property
    def lost(self) -> tuple[Overwritten, ...]:
        """Every overwritten value, field by field."""
        return tuple(one for name in self.overwritten for one in self.overwritten[name])


def note_of(thread: EditThread) -> Note:
    """Return the note that its edits result in."""
    return Note(
        id=thread.id,
        text=thread.value("text"),
        pin=_pin(thread.value("pin")),
        written=thread.written,
        changed=thread.changed,
        revision=thread.revision,
        overwritten=thread.lost,
    )


def incident_of(thread: EditThread, items: Sequence[EditThread], notes: Mapping[str, Note]) -> Incident:
    """Return the incident that its edits and those of its items result in.

    Args:
        notes: by id the notes that its items may show.
    """
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


def mark_of(thread: EditThread) -> ProblemMark:
    """Return the mark of a problem that its edits result in."""
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


def _item(thread: EditThread, notes: Mapping[str, Note]) -> Item | None:
    """Return the item, or None if the content that it refers to was removed or never named."""
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
