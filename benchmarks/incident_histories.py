"""Random histories of an incident log against a model of a few lines: a Hypothesis state machine.

Three editors share one log as three processes do. They edit what they last saw, undo any edit, are restarted,
meet full disks and the lines of killed writers, export and import. The log is compacted every few edits.
``tests/incidents/test_incident_histories.py`` runs some histories, ``make fuzz`` many.
"""

from __future__ import annotations

import json
import resource
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sfapp.errors import IncidentError
from sfapp.incidents import (
    Event,
    IncidentEditor,
    IncidentLog,
    IncidentState,
    document_of,
    import_events,
    parse,
)
from sfapp.incidents.events import Undo
from sfapp.model.incidents import Incident, Note

COMPACT_AT = 1_000
EDITORS = ("Ada", "Grace", "Lin")

editors = st.integers(0, len(EDITORS) - 1)
any_of = st.integers(0, 1 << 16)
texts = st.sampled_from(["a", "b", "slow \U0001f525\n", "x" * 1_000])


def expected(events: Sequence[Event]) -> tuple[dict[str, str], dict[str, tuple[str, list[str]]]]:
    """The model: texts of notes, and titles and notes of incidents, after all edits in this order."""
    undone: set[str] = set()
    for event in reversed(events):
        if isinstance(event, Undo) and event.id not in undone:
            undone.add(event.target)
    things: dict[str, dict[str, object]] = {}
    for event in events:
        if not isinstance(event, Undo) and event.id not in undone:
            if event.target == event.id:
                things[event.id] = {"begin": len(things)}
            if event.target in things:
                fields = {name: getattr(event.fields, name) for name in event.fields.__struct_fields__}
                set_fields = {name: value for name, value in fields.items() if type(value) in (str, bool)}
                things[event.target].update(set_fields)
    kept = {thing: fields for thing, fields in things.items() if not fields.get("removed")}
    notes = {thing: str(fields["text"]) for thing, fields in kept.items() if "text" in fields}
    shown = [(str(fields["incident"]), str(fields["note"])) for fields in kept.values() if "item" in fields]
    incidents = {
        thing: (
            str(fields["title"]),
            sorted(note for incident, note in shown if incident == thing and note in notes),
        )
        for thing, fields in kept.items()
        if "title" in fields
    }
    return notes, incidents


class IncidentHistories(RuleBasedStateMachine):
    """One log, three editors with their own view of it, and all acknowledged edits in order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="sfapp-incidents-")
        self.path = Path(self.folder.name) / "incidents.jsonl"
        self.logs = [self.open_log() for _ in EDITORS]
        self.shown: list[IncidentState] = []
        self.acknowledged: list[Event] = []
        self.exported = b""
        self.torn = 0

    def open_log(self) -> IncidentLog:
        return IncidentLog(self.path, compact_at=COMPACT_AT)

    def edit(self, editor: int, change: Callable[[IncidentEditor], str]) -> None:
        edit_id = change(IncidentEditor(self.logs[editor], EDITORS[editor]))
        self.acknowledged.append(self.logs[editor].state().events[-1])
        assert self.acknowledged[-1].id == edit_id

    def note(self, editor: int, pick: int) -> Note | None:
        notes = self.shown[editor].notes
        return notes[pick % len(notes)] if notes else None

    def incident(self, editor: int, pick: int) -> Incident | None:
        incidents = self.shown[editor].incidents
        return incidents[pick % len(incidents)] if incidents else None

    @initialize()
    def begin(self) -> None:
        self.shown = [log.state() for log in self.logs]

    @rule(editor=editors)
    def look(self, editor: int) -> None:
        self.shown[editor] = self.logs[editor].state()
        self.check(self.shown[editor])

    @rule(editor=editors)
    def restart(self, editor: int) -> None:
        self.logs[editor] = self.open_log()

    @rule(editor=editors, text=texts)
    def write_note(self, editor: int, text: str) -> None:
        self.edit(editor, lambda by: by.write_note(text))

    @rule(editor=editors, text=texts, pick=any_of)
    def edit_note(self, editor: int, text: str, pick: int) -> None:
        note = self.note(editor, pick)
        if note is not None:
            self.edit(editor, lambda by: by.edit_note(note, text))

    @rule(editor=editors, pick=any_of)
    def remove_note(self, editor: int, pick: int) -> None:
        note = self.note(editor, pick)
        if note is not None:
            self.edit(editor, lambda by: by.remove_note(note))

    @rule(editor=editors, title=st.sampled_from(["slow loader", "slow disk"]))
    def open_incident(self, editor: int, title: str) -> None:
        self.edit(editor, lambda by: by.open_incident(title))

    @rule(editor=editors, pick=any_of, title=st.sampled_from(["c", "d"]))
    def edit_incident(self, editor: int, pick: int, title: str) -> None:
        incident = self.incident(editor, pick)
        if incident is not None:
            self.edit(editor, lambda by: by.edit_incident(incident, title=title))

    @rule(editor=editors, pick=any_of)
    def add_note_to_incident(self, editor: int, pick: int) -> None:
        incident, note = self.incident(editor, pick), self.note(editor, pick)
        if incident is not None and note is not None:
            self.edit(editor, lambda by: by.add_note(incident, note.id))

    @precondition(lambda self: self.acknowledged)
    @rule(editor=editors, pick=any_of)
    def undo(self, editor: int, pick: int) -> None:
        """Undo any edit, old ones inside packs and undos included."""
        undone = self.acknowledged[pick % len(self.acknowledged)].id
        self.edit(editor, lambda by: by.undo(undone))

    @rule(editor=editors, room=st.sampled_from([0, 100, 600, 3_000]), text=texts)
    def write_note_with_little_room(self, editor: int, room: int, text: str) -> None:
        """On a disk that is nearly full, an edit is acknowledged and kept, or refused and not there."""
        before = self.logs[editor].state().events
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = self.path.stat().st_size if self.path.exists() else 0
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, limits[1]))
        try:
            self.edit(editor, lambda by: by.write_note(text))
        except IncidentError:
            assert self.logs[editor].state().events == before
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, ignored)

    @precondition(lambda self: self.acknowledged)
    @rule(cut=any_of)
    def kill_a_writer(self, cut: int) -> None:
        """A writer is killed in the middle of a line, another one while it compacts."""
        line = b'{"kind":"note","v":1,"id":"0123456789abcdef","at":"2026-11-21T09:14:03Z"'
        with self.path.open("r+b") as file:
            end = file.seek(0, 2)
            file.seek(end - 1)
            if file.read(1) == b"\n":
                file.write(line[: 1 + cut % len(line)])
                self.torn += 1
        self.path.with_name(f".{self.path.name}.1.0.tmp").write_bytes(self.path.read_bytes()[: cut % 5_000])

    @rule(editor=editors)
    def export(self, editor: int) -> None:
        self.exported = json.dumps(document_of(self.logs[editor].state())).encode()

    @precondition(lambda self: self.exported)
    @rule(editor=editors)
    def import_what_was_exported(self, editor: int) -> None:
        assert import_events(self.logs[editor], parse(self.exported)) == 0
        elsewhere = IncidentLog(self.path.with_name("elsewhere.jsonl"), compact_at=COMPACT_AT)
        import_events(elsewhere, parse(self.exported))
        assert json.dumps(document_of(elsewhere.state())).encode() == self.exported

    @rule(editor=editors, text=texts)
    def import_from_another_log(self, editor: int, text: str) -> None:
        other = IncidentLog(self.path.with_name(f"other-{len(self.acknowledged)}.jsonl"))
        by = IncidentEditor(other, "Mei")
        note_id = by.write_note(text)
        by.undo(by.edit_note(other.state().note(note_id), "no"))
        new = import_events(self.logs[editor], parse(json.dumps(document_of(other.state())).encode()))
        self.acknowledged.extend(self.logs[editor].state().events[len(self.acknowledged) :])
        assert new == 3

    @invariant()
    def every_acknowledged_edit_is_there_once_and_in_order(self) -> None:
        self.check(self.open_log().state())

    def check(self, state: IncidentState) -> None:
        notes, incidents = expected(self.acknowledged)
        assert list(state.events) == self.acknowledged
        assert {note.id: note.text for note in state.notes} == notes
        found = {
            incident.id: (incident.title, sorted(item.note.id for item in incident.items if item.note))
            for incident in state.incidents
        }
        assert found == incidents
        assert len(state.notices) == self.torn

    def teardown(self) -> None:
        self.folder.cleanup()
