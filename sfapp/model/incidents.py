"""Notes, which users pin to the evidence, and incidents, which collect it (docs/incidents.md).

All are plain and frozen. `sfapp.incidents` stores edits and derives these from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from sfapp.model.view import WindowKey, Zoom

Severity = Literal["low", "medium", "high", "critical"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

Status = Literal["open", "investigating", "mitigated", "resolved"]
STATUSES: tuple[Status, ...] = get_args(Status)

ItemKind = Literal["window", "plot", "comparison", "note"]


@dataclass(frozen=True, slots=True)
class Stamp:
    """Author of an edit, under a name of their choice, and its time (UTC)."""

    by: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The subject of a note: a window, or the part of it that is named.

    Attributes:
        step: logical step number.
        stage: broad stage.
        rank: global rank.
        plot: a plot's name, as in ``sfapp.views.plot_registry.PLOTS``.
        region: the part of that plot, one entry per axis.
    """

    window: WindowKey
    step: int | None = None
    stage: str | None = None
    rank: int | None = None
    plot: str | None = None
    region: tuple[Zoom, ...] = ()


@dataclass(frozen=True, slots=True)
class Overwritten:
    """A value that a later edit replaced although its author had not seen it.

    Attributes:
        event: the edit that wrote it.
    """

    field: str
    value: str
    stamp: Stamp
    event: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A text by a user, pinned to the evidence or (``pin`` None) standalone.

    Attributes:
        written: author and time of the first version; ``changed``: of the last edit, None without edits.
        revision: the newest edit, which shows whether an edit was made from an older state.
        overwritten: values replaced by concurrent edits; empty after an edit made with all of them seen.
    """

    id: str
    text: str
    pin: Pin | None
    written: Stamp
    changed: Stamp | None
    revision: str
    overwritten: tuple[Overwritten, ...] = ()


def notes_on(window: WindowKey | None, notes: Iterable[Note]) -> tuple[Note, ...]:
    """Return the notes pinned to a window or to a part of it; their positions are their numbers."""
    return tuple(note for note in notes if note.pin is not None and note.pin.window == window)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One piece of evidence in an incident.

    Attributes:
        kind: a ``window`` with its verdict and plots, one ``plot``, a ``comparison``, a ``note``.
        window: of a window and a plot.
        view: the query of its page's address; for a comparison, this includes the windows.
        plot: the plot's name.
        note: the note.
        place: items are listed in ascending order of it.
    """

    id: str
    kind: ItemKind
    place: float
    window: WindowKey | None
    view: str
    plot: str | None
    note: Note | None
    written: Stamp
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A finding to hand over: what happened, its severity, and the evidence in order.

    Attributes:
        changed: the last edit of its head or of its list, None if there was none.
        revision: the newest edit of its head.
    """

    id: str
    title: str
    severity: Severity
    status: Status
    summary: str
    items: tuple[Item, ...]
    written: Stamp
    changed: Stamp | None
    revision: str
    overwritten: tuple[Overwritten, ...] = ()

    @property
    def short_id(self) -> str:
        """The short form of the id."""
        return self.id[:8]
