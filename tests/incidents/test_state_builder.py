"""Edits one by one give the same state as all at once, whatever is undone, restored or removed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sfapp.incidents import IncidentLog, state_from_events
from sfapp.incidents.edit_thread import EditThread, incident_of, mark_of, note_of
from sfapp.incidents.events import (
    Event,
    IncidentEdit,
    IncidentFields,
    ItemEdit,
    ItemFields,
    MuteFields,
    NoteEdit,
    NoteFields,
    ProblemEdit,
    ProblemFields,
    Undo,
    encode,
)
from sfapp.incidents.state_builder import StateBuilder
from tests.incidents.incident_editors import author

WHEN = datetime(2026, 11, 25, tzinfo=UTC)
WINDOW = "run/3"


def name(number: int) -> str:
    return f"{number:08}"


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Edits of a few things by two people, with undos of any of them, also of undos."""
    events: list[Event] = []
    for number in range(draw(st.integers(1, 30))):
        head: dict[str, Any] = {"id": name(number), "at": WHEN, "by": draw(st.sampled_from(["Ada", "Grace"]))}
        earlier = st.sampled_from([*(event.id for event in events), name(number), name(99)])
        first = draw(st.booleans())
        target = head["id"] if first else draw(earlier)
        edit = head | {"target": target, "base": None if first else draw(st.none() | earlier)}
        removed: dict[str, Any] = draw(st.sampled_from([{}, {}, {}, {"removed": True}, {"removed": False}]))
        kind = draw(st.sampled_from(["note", "incident", "item", "problem", "undo"]))
        if kind == "note":
            events.append(NoteEdit(**edit, fields=NoteFields(text=draw(st.sampled_from("abc")), **removed)))
        elif kind == "incident":
            events.append(IncidentEdit(**edit, fields=IncidentFields(title=head["id"], **removed)))
        elif kind == "item":
            shown: dict[str, Any] = draw(
                st.sampled_from(
                    [{"item": "window", "window": WINDOW}, {"item": "note", "note": draw(earlier)}]
                )
            )
            fields = ItemFields(incident=draw(earlier), place=float(number % 3), **shown, **removed)
            events.append(ItemEdit(**edit, fields=fields))
        elif kind == "problem":
            mute = draw(st.none() | st.just(MuteFields(reason="known")))
            events.append(ProblemEdit(**edit | {"target": name(77)}, fields=ProblemFields(mute=mute)))
        else:
            events.append(Undo(**head, target=draw(earlier)))
    return events


def expected(events: Sequence[Event]) -> tuple[list[Any], list[Any], list[Any]]:
    """Notes, incidents and decisions after all edits, from their definition."""
    undone: set[str] = set()
    for event in reversed(events):
        if isinstance(event, Undo) and event.id not in undone:
            undone.add(event.target)
    places = {event.id: place for place, event in enumerate(events)}
    threads: dict[str, EditThread] = {}
    for place, event in enumerate(events):
        if isinstance(event, Undo) or event.id in undone:
            continue
        if event.target not in threads:
            if event.target != event.id and not isinstance(event, ProblemEdit):
                continue
            threads[event.target] = EditThread(type(event), event.target, place)
        threads[event.target].add(event, place, seen=places.get(event.base or "", -1))
    kept = [thread for thread in threads.values() if not thread.value("removed", False)]
    notes = {one.id: note_of(one) for one in kept if one.kind is NoteEdit and one.has("text")}
    items = [one for one in kept if one.kind is ItemEdit]
    incidents = [
        incident_of(one, [item for item in items if item.value("incident") == one.id], notes)
        for one in kept
        if one.kind is IncidentEdit and one.has("title")
    ]
    return [*notes.values()], incidents, [mark_of(one) for one in kept if one.kind is ProblemEdit]


@settings(max_examples=200, deadline=None)
@given(histories(), st.data())
def test_any_history_gives_the_state_that_it_defines(events: list[Event], data: st.DataObject) -> None:
    builder = StateBuilder()
    for place, event in enumerate(events):
        builder.add(event)
        if data.draw(st.booleans()):
            state = builder.state()
            assert ([*state.notes], [*state.incidents], [*state.marks]) == expected(events[: place + 1])
    state = builder.state()
    assert ([*state.notes], [*state.incidents], [*state.marks]) == expected(events)
    assert state == state_from_events(events)


def test_an_edit_of_a_large_log_costs_what_it_changes(log: IncidentLog) -> None:
    log.path.parent.mkdir()
    text = "x" * 400
    edits = (
        NoteEdit(id=name(number), at=WHEN, by="Ada", target=name(number), fields=NoteFields(text=text))
        for number in range(30_000)
    )
    log.path.write_bytes(b"".join(map(encode, edits)))
    begin = time.perf_counter()
    assert len(log.state().notes) == 30_000
    read = time.perf_counter() - begin

    ada = author(log, "Ada")
    begin = time.perf_counter()
    for _ in range(5):
        ada.undo(ada.write_note("one more"))
        assert len(log.state().notes) == 30_000
    edited = (time.perf_counter() - begin) / 10

    assert edited < read / 5
