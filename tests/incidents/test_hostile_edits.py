"""Files written to do harm: impossible times and numbers, costly chains of undos, millions of lines."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest

from sfapp.errors import IncidentError
from sfapp.incidents import IncidentLog, document_of, parse, state_from_events
from sfapp.incidents import log as log_module
from sfapp.incidents.compaction import pack
from sfapp.incidents.events import Undo, decode
from sfapp.model.view import WindowKey
from tests.incidents.incident_editors import WINDOW, author


def edit(kind: str = "note", **changed: Any) -> dict[str, Any]:
    """One edit as its line holds it."""
    id_ = changed.pop("id", "0" * 8)
    head = {"v": 1, "kind": kind, "id": id_, "target": id_, "at": "2026-11-21T00:00:00Z", "by": "Eve"}
    return head | changed


def exported(*edits: dict[str, Any]) -> bytes:
    return json.dumps({"format": "sfapp-incidents", "version": 1, "events": edits}).encode()


HOSTILE = {
    "a time without a zone": edit(at="2026-11-21T00:00:00", fields={"text": "x"}),
    "a time before all others": edit(at="0001-01-01T00:00:00+14:00", fields={"text": "x"}),
    "a time after all others": edit(at="9999-12-31T23:59:59-14:00", fields={"text": "x"}),
    "a mute without a zone": edit("problem", fields={"mute": {"until": "2099-01-01T00:00:00"}}),
    "a mute after all times": edit("problem", fields={"mute": {"until": "9999-12-31T23:59:59-14:00"}}),
    "a huge step": edit(fields={"text": "x", "pin": {"window": "run/1", "step": 10**30}}),
    "a huge rank": edit(fields={"text": "x", "pin": {"window": "run/1", "rank": -(10**30)}}),
    "a huge window": edit("problem", fields={"fixed_through": 10**30}),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_an_import_with_an_impossible_value_is_refused_in_words(hostile: dict[str, Any]) -> None:
    with pytest.raises(IncidentError, match=r"not an (edit|incident exported)"):
        parse(exported(edit(id="1" * 8, fields={"text": "fine"}), hostile))


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_a_line_with_an_impossible_value_is_passed_over_and_all_else_stays(
    log: IncidentLog, hostile: dict[str, Any]
) -> None:
    ada = author(log, "Ada")
    incident = ada.open_incident("slow loader")
    note = ada.write_note("from here on")
    ada.add_note(log.state().incident(incident), note)
    with log.path.open("ab") as file:
        file.write(json.dumps(hostile).encode() + b"\n")
    ada.add_window(log.state().incident(incident), WindowKey.parse(str(WINDOW)))

    state = IncidentLog(log.path).state()

    assert len(state.notices) == 1
    assert [item.kind for item in state.incident(incident).items] == ["note", "window"]
    assert json.dumps(document_of(state))


@pytest.mark.parametrize("begin", ["a note", "nothing", "a cycle"])
def test_a_long_chain_of_undos_is_read_in_time_that_grows_with_its_length(begin: str) -> None:
    """Twice as many take about twice as long; each used to walk to the beginning of the chain."""

    def seconds(length: int) -> float:
        ids = [f"{number:08d}" for number in range(length)]
        first = edit(id=ids[0], fields={"text": "x"})
        chain = [edit("undo", id=ids[at], target=ids[at - 1]) for at in range(1, length)]
        if begin == "a cycle":
            chain.insert(0, edit("undo", id=ids[0], target=ids[length // 2]))
        lines = [first, *chain] if begin == "a note" else chain
        events = [decode(json.dumps(line).encode()) for line in lines]
        start = time.process_time()
        state_from_events(events)
        return time.process_time() - start

    assert seconds(8_000) < 1.0  # 10 s and more before


def test_an_undone_undo_in_a_chain_counts_as_before() -> None:
    note, first, second = (
        decode(json.dumps(line).encode())
        for line in (
            edit(id="0" * 8, fields={"text": "x"}),
            edit("undo", id="1" * 8, target="0" * 8),
            edit("undo", id="2" * 8, target="1" * 8),
        )
    )
    assert isinstance(first, Undo)
    histories = ([note], [note, first], [note, first, second])
    assert [len(state_from_events(events).notes) for events in histories] == [1, 0, 1]
    # an undo that arrives before what it undoes does not count, and what it undoes later is found
    assert len(state_from_events([second, note, first]).notes) == 0


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_a_log_of_millions_of_lines_is_refused_within_bounded_memory(log: IncidentLog, packed: bool) -> None:
    log.path.parent.mkdir()
    lines = b"x\n" * (8 << 20)
    log.path.write_bytes(pack(lines) if packed else lines)
    tracemalloc.start()
    try:
        if packed:  # its pack is reported and passed over, as a damaged one
            assert "lines" in log.state().notices[0]
        else:
            with pytest.raises(IncidentError, match="lines: it is not a log of notes"):
                log.state()
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_the_largest_log_takes_less_memory_than_a_gigabyte_however_short_its_edits_are(
    log: IncidentLog,
) -> None:
    log.path.parent.mkdir()
    pin = {"window": "r/1", "step": 1, "stage": "d", "rank": 1, "plot": "p", "region": ["a:0:1"] * 8}
    edits = 5_000
    lines = (json.dumps(edit(id=f"{n:08}", fields={"text": "x", "pin": pin})) for n in range(edits))
    log.path.write_bytes(pack("".join(f"{line}\n" for line in lines).encode()))
    tracemalloc.start()
    try:
        assert len(log.state().notes) == edits
        assert tracemalloc.get_traced_memory()[0] / edits * log_module.MAX_LINES < 1 << 30
    finally:
        tracemalloc.stop()


def test_a_log_with_as_many_lines_as_it_may_hold_refuses_an_edit_and_stays_readable(
    log: IncidentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "MAX_LINES", 10)
    ada = author(log, "Ada")
    for number in range(8):
        ada.write_note(str(number))
    with log.path.open("ab") as file:
        file.write(b"cut off")
    ada.write_note("8")
    with pytest.raises(IncidentError, match="is full: it holds at most 256 MB and 10 lines of edits"):
        ada.write_note("9")
    # Neither do packs bring more lines into it
    more = json.dumps(edit(fields={"text": "x"})).encode() + b"\n"
    log.path.write_bytes(pack(log.path.read_bytes()) + more)
    for each in (log, IncidentLog(log.path)):
        assert [note.text for note in each.state().notes] == [str(number) for number in range(9)]
    assert "line 11: not read, after 10 others; kept and skipped" in log.state().notices


def test_of_many_lines_that_cannot_be_read_some_are_named_and_all_are_counted(log: IncidentLog) -> None:
    log.path.parent.mkdir()
    log.path.write_bytes(b"x\n" * 5_000)
    notices = log.state().notices
    assert len(notices) <= 101
    assert "4,900 more" in notices[-1]
