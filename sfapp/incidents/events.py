"""Define the edits in the log: one JSON object per line, never changed afterwards (docs/incidents.md).

An edit lists the fields that it sets of a note, incident, item or problem, and the last edit of it that its
author had seen (``base``). An undo is an edit too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from sfapp.errors import IncidentError
from sfapp.model.incidents import ItemKind, Severity, Status
from sfapp.model.parse import UNREADABLE_JSON

FORMAT = 1
"""Version of an edit; newer ones are kept and reported."""

MAX_TEXT = 20_000
MAX_TITLE = 200
MAX_NAME = 80

Id = Annotated[str, Meta(pattern=r"^[0-9a-z]{8,64}\Z")]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
Title = Annotated[str, Meta(min_length=1, max_length=MAX_TITLE)]
Summary = Annotated[str, Meta(max_length=MAX_TEXT)]
View = Annotated[str, Meta(max_length=4_000)]
Key = Annotated[str, Meta(pattern=r"(?s)^.+/[0-9]{1,18}\Z", max_length=1_200)]
Word = Annotated[str, Meta(min_length=1, max_length=200)]
Place = Annotated[float, Meta(gt=-1e15, lt=1e15)]
Number = Annotated[int, Meta(ge=-(2**62), le=2**62)]
Moment = Annotated[datetime, Meta(tz=True)]
"""A time with its zone: others cannot be compared with it."""

_FIRST_YEAR, _LAST_YEAR = 1000, 9000
"""Years that a time may have, so that it exists in every zone."""


class PinFields(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``Pin`` as written: the window as ``RUN/WINDOW``, a region as ``PLOT.AXIS:LOW:HIGH``."""

    window: Key
    step: Number | None = None
    stage: Word | None = None
    rank: Number | None = None
    plot: Word | None = None
    region: Annotated[tuple[Word, ...], Meta(max_length=8)] = ()


class NoteFields(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    text: Text | UnsetType = UNSET
    pin: PinFields | UnsetType | None = UNSET
    removed: bool | UnsetType = UNSET


class IncidentFields(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    title: Title | UnsetType = UNSET
    severity: Severity | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    summary: Summary | UnsetType = UNSET
    removed: bool | UnsetType = UNSET


class ItemFields(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    incident: Id | UnsetType = UNSET
    item: ItemKind | UnsetType = UNSET
    window: Key | UnsetType = UNSET
    view: View | UnsetType = UNSET
    plot: Word | UnsetType = UNSET
    note: Id | UnsetType = UNSET
    place: Place | UnsetType = UNSET
    removed: bool | UnsetType = UNSET


class MuteFields(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A mute: its end (None: without end) and its reason."""

    until: Moment | None = None
    reason: Summary = ""


class ProblemFields(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Decisions about a problem: its mute, and the last window of its run when it was marked as fixed; None
    removes either."""

    mute: MuteFields | UnsetType | None = UNSET
    fixed_through: Annotated[int, Meta(ge=0, le=2**62)] | UnsetType | None = UNSET


class _EditHeader(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Fields of every line.

    Attributes:
        id: unique; the first edit of a thing is the thing's id.
        at: time of the edit, UTC.
        by: the name chosen by its author.
        v: the format.
    """

    v: int = FORMAT
    id: Id
    at: Moment
    by: Name


class NoteEdit(_EditHeader, frozen=True, kw_only=True, tag="note"):
    target: Id
    base: Id | None = None
    fields: NoteFields


class IncidentEdit(_EditHeader, frozen=True, kw_only=True, tag="incident"):
    target: Id
    base: Id | None = None
    fields: IncidentFields


class ItemEdit(_EditHeader, frozen=True, kw_only=True, tag="item"):
    target: Id
    base: Id | None = None
    fields: ItemFields


class ProblemEdit(_EditHeader, frozen=True, kw_only=True, tag="problem"):
    """A decision about a problem, whose id does not come from an edit."""

    target: Id
    base: Id | None = None
    fields: ProblemFields


class Undo(_EditHeader, frozen=True, kw_only=True, tag="undo"):
    """Undo of one edit, whatever edits followed; the undo of an undo restores the edit."""

    target: Id


Edit = NoteEdit | IncidentEdit | ItemEdit | ProblemEdit
Event = NoteEdit | IncidentEdit | ItemEdit | ProblemEdit | Undo


class _FormatVersion(Struct):
    v: int


_VERSION = msgspec.json.Decoder(_FormatVersion)
_EVENT: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    """Return the edit as one line, with its newline."""
    return msgspec.json.encode(event) + b"\n"


def decode(line: bytes) -> Event:
    """Parse one line without its newline.

    Raises:
        IncidentError: it is no edit of this format; the message gives the reason.
    """
    try:
        version = _VERSION.decode(line).v
        if version != FORMAT:
            raise IncidentError(f"written in format {version}; this sfapp reads format {FORMAT}")
        event = _EVENT.decode(line)
    except UNREADABLE_JSON as error:
        raise IncidentError(f"not an edit of format {FORMAT}: {error}") from None
    for moment in _moments(event):
        if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
            raise IncidentError(f"not an edit of format {FORMAT}: the year {moment.year}")
    return event


def _moments(event: Event) -> Iterator[datetime]:
    yield event.at
    mute = event.fields.mute if isinstance(event, ProblemEdit) else None
    if isinstance(mute, MuteFields) and mute.until is not None:
        yield mute.until


def checked(events: Sequence[Event]) -> list[Event]:
    """Return the same edits in the form in which they will be read.

    Raises:
        IncidentError: a field is too long or has an impossible value; the message names it.
    """
    return [decode(encode(event)) for event in events]


def fields_of(event: Edit) -> dict[str, Any]:
    """Return the fields that an edit sets."""
    found = {name: getattr(event.fields, name) for name in event.fields.__struct_fields__}
    return {name: value for name, value in found.items() if value is not UNSET}
