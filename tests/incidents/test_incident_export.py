"""Export, import and redaction of incidents."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from sfapp.errors import IncidentError, IncidentNotFoundError
from sfapp.incidents import IncidentLog, document_of, document_parts, parse, renamed
from sfapp.model.incidents import Pin
from sfapp.model.view import WindowKey
from tests.incidents.incident_editors import author, write_incident


def test_an_exported_incident_comes_back_identical_and_only_once(log: IncidentLog, tmp_path: Path) -> None:
    incident_id = write_incident(log)
    exported = json.dumps(document_of(log.state(), incident_id)).encode()

    elsewhere = IncidentLog(tmp_path / "other.jsonl")
    elsewhere.append(parse(exported))
    elsewhere.append(parse(exported))

    assert elsewhere.state().incidents == (log.state().incident(incident_id),)
    assert [note.text for note in elsewhere.state().notes] == ["from here on"]
    assert json.dumps(document_of(elsewhere.state(), incident_id)).encode() == exported


def test_everything_can_be_exported_at_once(log: IncidentLog, tmp_path: Path) -> None:
    write_incident(log)
    elsewhere = IncidentLog(tmp_path / "other.jsonl")
    elsewhere.append(parse(json.dumps(document_of(log.state())).encode()))
    assert elsewhere.state() == log.state()


def test_an_export_in_parts_is_the_same_and_no_part_has_much_of_it(log: IncidentLog) -> None:
    empty = log.state()
    incident_id = write_incident(log)
    ada = author(log, "Ada")
    for number in range(900):
        ada.write_note(f"note {number}")
    state = log.state()
    for exported, incident in ((empty, None), (state, None), (state, incident_id)):
        whole = msgspec.json.encode(document_of(exported, incident))
        assert b"".join(document_parts(exported, incident)) == whole
    parts = list(document_parts(state))
    assert max(map(len, parts)) < sum(map(len, parts)) / 5
    with pytest.raises(IncidentNotFoundError):
        document_parts(state, "absent")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", "not an incident exported"),
        (b'{"format":"other","version":1,"events":[]}', "its format is 'other'"),
        (b'{"format":"sfapp-incidents","version":9,"events":[]}', "version 9"),
        (b'{"format":"sfapp-incidents","version":1,"events":[{"v":1,"kind":"note"}]}', r"events\[0\]"),
        (b"PAR1", "not an incident exported"),
    ],
)
def test_a_file_that_is_no_export_is_refused_in_words(content: bytes, message: str) -> None:
    with pytest.raises(IncidentError, match=message):
        parse(content)


def test_a_redacted_copy_names_no_run_and_no_host_and_is_another_incident(log: IncidentLog) -> None:
    write_incident(log)

    def text(words: str) -> str:
        return words.replace("team/run 1", "run-1").replace("node-a7", "host-1")

    copy = renamed(log.state().events, {"team/run 1": "run-1"}.__getitem__, text, lambda old: old[::-1])
    elsewhere = IncidentLog(log.path.with_name("copy.jsonl"))
    book = elsewhere.append(copy)

    content = elsewhere.path.read_text()
    for name in ("team", "node-a7", "run%201"):
        assert name not in content
    (incident,) = book.incidents
    assert (incident.title, incident.summary) == ("slow loader on host-1", "seen on run-1")
    window, note, comparison = incident.items
    assert (window.window, window.view) == (WindowKey("run-1", 13), "tau_c=0.9&reference=run-1/12")
    assert note.note is not None
    assert note.note.pin == Pin(window=WindowKey("run-1", 13), step=161, rank=3)
    assert comparison.view == "a=run-1/12&b=run-1/13"
    assert incident.id != log.state().incidents[0].id
