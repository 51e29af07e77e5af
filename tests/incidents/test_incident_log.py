"""Notes and incidents: kept for good next to the packets, shared, undoable, nothing lost in silence."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from sfapp.errors import IncidentError, IncidentNotFoundError
from sfapp.incidents import MAX_TEXT, IncidentEditor, IncidentLog, document_of, parse, renamed
from sfapp.model.incidents import Pin
from sfapp.model.onsets import StepEstimate
from sfapp.model.problems import Problem
from sfapp.model.view import WindowKey, Zoom

WINDOW = WindowKey("team/run 1", 13)


@pytest.fixture
def log(tmp_path: Path) -> IncidentLog:
    return IncidentLog.for_packets(tmp_path)


def author(log: IncidentLog, name: str) -> IncidentEditor:
    ticks = count()
    return IncidentEditor(
        log, name, lambda: datetime(2026, 11, 21, tzinfo=UTC) + timedelta(seconds=next(ticks))
    )


def test_a_note_is_kept_beside_the_packets_with_its_pin_author_and_time(log: IncidentLog) -> None:
    pin = Pin(
        window=WINDOW,
        step=161,
        stage="callbacks.cpu_wall",
        rank=3,
        plot="frontier_steps",
        region=(Zoom("frontier_steps", "x", 1.0, 2.5),),
    )
    author(log, "Ada").write_note("It begins here.", pin)

    (note,) = IncidentLog(log.path).state().notes_on(WINDOW)
    assert (note.text, note.pin, note.written.by) == ("It begins here.", pin, "Ada")
    assert note.written.at == datetime(2026, 11, 21, tzinfo=UTC)
    assert note.changed is None
    assert log.path.parent.name == ".sfapp"


def test_an_edit_shows_its_author_and_keeps_what_was_there_in_the_history(log: IncidentLog) -> None:
    ada, grace = author(log, "Ada"), author(log, "Grace")
    note_id = ada.write_note("rank 3?", Pin(window=WINDOW))
    grace.edit_note(log.state().note(note_id), "rank 3, its disk")

    note = log.state().note(note_id)
    assert note.text == "rank 3, its disk"
    assert note.changed is not None
    assert note.changed.by == "Grace"
    assert note.overwritten == ()
    history = log.state().history(note_id)
    assert [revision.fields.get("text") for revision in history] == ["rank 3?", "rank 3, its disk"]


def test_two_who_write_at_once_lose_nothing(log: IncidentLog) -> None:
    ada, grace, lin = (author(log, name) for name in ("Ada", "Grace", "Lin"))
    note_id = ada.write_note("first", Pin(window=WINDOW))
    shown = log.state().note(note_id)  # both have this on their screens

    grace.edit_note(shown, "from Grace")
    lin.edit_note(shown, "from Lin")

    note = log.state().note(note_id)
    assert note.text == "from Lin"
    assert [(lost.value, lost.stamp.by) for lost in note.overwritten] == [("from Grace", "Grace")]

    ada.edit_note(note, "from Grace and Lin")  # having seen both
    assert log.state().note(note_id).overwritten == ()


def test_two_who_edit_different_fields_of_an_incident_both_prevail(log: IncidentLog) -> None:
    ada, grace = author(log, "Ada"), author(log, "Grace")
    incident_id = ada.open_incident("slow loader")
    shown = log.state().incident(incident_id)

    ada.edit_incident(shown, severity="high")
    grace.edit_incident(shown, status="mitigated", summary="moved the data")

    incident = log.state().incident(incident_id)
    assert (incident.severity, incident.status, incident.summary) == ("high", "mitigated", "moved the data")
    assert incident.overwritten == ()


def test_undo_takes_back_one_edit_whatever_came_after_it_and_can_be_undone(log: IncidentLog) -> None:
    ada = author(log, "Ada")
    incident_id = ada.open_incident("slow loader", severity="low")
    raised = ada.edit_incident(log.state().incident(incident_id), severity="critical")
    ada.edit_incident(log.state().incident(incident_id), title="slow disk")

    undone = ada.undo(raised)
    incident = log.state().incident(incident_id)
    assert (incident.severity, incident.title) == ("low", "slow disk")

    ada.undo(undone)
    assert log.state().incident(incident_id).severity == "critical"


def test_a_removed_note_comes_back_by_undo_with_its_place_in_the_incident(log: IncidentLog) -> None:
    ada = author(log, "Ada")
    incident_id = ada.open_incident("slow loader")
    note_id = ada.write_note("look", Pin(window=WINDOW))
    ada.add_note(log.state().incident(incident_id), note_id)

    removed = ada.remove_note(log.state().note(note_id))
    assert log.state().notes == ()
    assert log.state().incident(incident_id).items == ()
    with pytest.raises(IncidentNotFoundError, match="may have been removed"):
        log.state().note(note_id)

    ada.undo(removed)
    (item,) = log.state().incident(incident_id).items
    assert item.note == log.state().note(note_id)


def test_items_are_told_in_the_order_they_were_put_in(log: IncidentLog) -> None:
    ada = author(log, "Ada")
    incident_id = ada.open_incident("slow loader")
    for number in range(4):
        ada.add_window(log.state().incident(incident_id), WindowKey("r", number), "tau_c=0.9")

    def numbers() -> list[int]:
        items = log.state().incident(incident_id).items
        return [item.window.window for item in items if item.window is not None]

    def move(number: int, index: int) -> None:
        incident = log.state().incident(incident_id)
        ada.move_item(incident, incident.items[numbers().index(number)], index)

    move(3, 0)
    assert numbers() == [3, 0, 1, 2]
    move(0, 2)
    assert numbers() == [3, 1, 0, 2]
    move(3, 99)
    assert numbers() == [1, 0, 2, 3]
    ada.remove_item(log.state().incident(incident_id).items[0])
    assert numbers() == [0, 2, 3]


def test_plots_and_comparisons_are_collected_as_shown(log: IncidentLog) -> None:
    ada = author(log, "Ada")
    incident_id = ada.open_incident("slow loader")
    ada.add_plot(log.state().incident(incident_id), WINDOW, "prefix_crossings", "step=161&ranks=3")
    ada.add_comparison(log.state().incident(incident_id), "a=r/12&b=r/13&c=r/14")

    plot, comparison = log.state().incident(incident_id).items
    assert (plot.kind, plot.window, plot.plot, plot.view) == (
        "plot",
        WINDOW,
        "prefix_crossings",
        "step=161&ranks=3",
    )
    assert (comparison.kind, comparison.view) == ("comparison", "a=r/12&b=r/13&c=r/14")


def test_an_incident_is_found_by_the_beginning_of_its_id(log: IncidentLog) -> None:
    incident_id = author(log, "Ada").open_incident("slow loader")
    assert log.state().incident(incident_id[:8]).id == incident_id
    assert log.state().incident(incident_id).short_id == incident_id[:8]
    with pytest.raises(IncidentNotFoundError, match="no incident 'zzz'"):
        log.state().incident("zzz")
    with pytest.raises(IncidentNotFoundError):
        log.state().incident("")


# --- the file ----------------------------------------------------------------------------------------------


WRITER = """
import sys
from pathlib import Path
from sfapp.incidents import IncidentEditor, IncidentLog
log = IncidentLog(Path(sys.argv[1]))
for number in range(50):
    IncidentEditor(log, sys.argv[2]).write_note(f"{sys.argv[2]} {number} " + "x" * 5000)
"""


def test_many_processes_write_at_once_and_every_line_is_whole(log: IncidentLog) -> None:
    log.path.parent.mkdir()
    names = ["a", "b", "c"]
    jobs = [subprocess.Popen([sys.executable, "-c", WRITER, str(log.path), name]) for name in names]
    assert [job.wait(60) for job in jobs] == [0, 0, 0]

    book = log.state()
    assert book.notices == ()
    for name in names:
        mine = [note.text.split()[1] for note in book.notes if note.written.by == name]
        assert mine == [str(number) for number in range(50)]


def test_a_writer_killed_at_any_moment_leaves_a_log_that_others_go_on_writing(log: IncidentLog) -> None:
    log.path.parent.mkdir()
    job = subprocess.Popen([sys.executable, "-c", WRITER, str(log.path), "killed"])
    while not log.path.exists() or log.path.stat().st_size < 50_000:
        assert job.poll() is None or log.path.exists()
    job.send_signal(signal.SIGKILL)
    job.wait()

    author(log, "Ada").write_note("still here")
    assert log.state().notes[-1].text == "still here"


def test_a_torn_last_line_is_kept_reported_and_written_after(log: IncidentLog) -> None:
    ada = author(log, "Ada")
    ada.write_note("whole")
    with log.path.open("ab") as file:
        file.write(b'{"v":1,"kind":"note","id":"0123')

    book = log.state()
    assert [note.text for note in book.notes] == ["whole"]
    assert "line 2" in book.notices[0]

    ada.write_note("next")
    book = IncidentLog(log.path).state()
    assert [note.text for note in book.notes] == ["whole", "next"]
    assert len(book.notices) == 1
    assert b'"id":"0123\n' in log.path.read_bytes()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"\xff\xfe nonsense", "line 2: not an edit"),
        (b'{"v":2,"kind":"poem","id":"00000000"}', "line 2: written in format 2"),
        (b'{"v":1,"kind":"poem"}', "line 2: not an edit of format 1: Invalid value 'poem'"),
        (b"[" * 100_000, "line 2: not an edit"),
    ],
)
def test_a_line_that_cannot_be_read_is_reported_and_passed_over(
    log: IncidentLog, line: bytes, said: str
) -> None:
    ada = author(log, "Ada")
    ada.write_note("before")
    with log.path.open("ab") as file:
        file.write(line + b"\n")
    ada.write_note("after")

    book = IncidentLog(log.path).state()
    assert [note.text for note in book.notes] == ["before", "after"]
    (notice,) = book.notices
    assert notice.startswith(said)


def test_what_another_process_appends_or_replaces_is_seen(log: IncidentLog) -> None:
    author(log, "Ada").write_note("mine")
    author(IncidentLog(log.path), "Grace").write_note("hers")
    assert [note.text for note in log.state().notes] == ["mine", "hers"]

    log.path.rename(log.path.with_suffix(".old"))
    assert log.state().notes == ()
    author(log, "Ada").write_note("new file")
    assert [note.text for note in log.state().notes] == ["new file"]


def test_text_out_of_bounds_is_refused_and_nothing_is_written(log: IncidentLog) -> None:
    ada = author(log, "Ada")
    with pytest.raises(IncidentError, match="text"):
        ada.write_note("x" * (MAX_TEXT + 1))
    with pytest.raises(IncidentError, match="title"):
        ada.open_incident("")
    assert not log.path.exists()


def test_any_text_survives(log: IncidentLog) -> None:
    text = "</script>\n\x00 \u2028 \ud83d \U0001f525 'quoted' \"twice\""
    author(log, "\ud800 \n").write_note(text)
    (note,) = IncidentLog(log.path).state().notes
    assert note.text == text.replace("\ud83d", "?")
    assert note.written.by == "?"


def test_whoever_chose_no_name_is_anonymous(log: IncidentLog) -> None:
    author(log, "  ").write_note("hello")
    assert log.state().notes[0].written.by == "anonymous"


def test_a_full_disk_is_an_error_and_leaves_no_half_line(log: IncidentLog) -> None:
    author(log, "Ada").write_note("fits")
    before = log.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with pytest.raises(IncidentError, match="cannot be written"):
            author(log, "Ada").write_note("x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert log.path.read_bytes() == before


def test_a_place_where_no_log_can_be_is_an_error_that_says_so(log: IncidentLog) -> None:
    log.path.parent.write_text("a file where the folder should be")
    with pytest.raises(IncidentError, match=r"cannot be written: .*; notes need a folder"):
        author(log, "Ada").write_note("no")
    with pytest.raises(IncidentError, match="cannot be read"):
        log.state()


# --- export and import --------------------------------------------------------------------------------------


def told(log: IncidentLog) -> str:
    """An incident of everything, by two people, undone edits included."""
    ada, grace = author(log, "Ada"), author(log, "Grace")
    ada.write_note("not part of it", Pin(window=WINDOW))
    incident_id = ada.open_incident("slow loader on node-a7", severity="high", summary="seen on team/run 1")
    note_id = ada.write_note("from here on", Pin(window=WINDOW, step=161, rank=3))
    ada.add_window(log.state().incident(incident_id), WINDOW, "tau_c=0.9&reference=team/run%201/12")
    ada.add_note(log.state().incident(incident_id), note_id)
    grace.add_comparison(log.state().incident(incident_id), "a=team/run%201/12&b=team/run%201/13")
    grace.undo(grace.edit_note(log.state().note(note_id), "no, later"))
    grace.edit_incident(log.state().incident(incident_id), status="investigating")
    return incident_id


def test_an_exported_incident_comes_back_identical_and_only_once(log: IncidentLog, tmp_path: Path) -> None:
    incident_id = told(log)
    exported = json.dumps(document_of(log.state(), incident_id)).encode()

    elsewhere = IncidentLog(tmp_path / "other.jsonl")
    elsewhere.append(parse(exported))
    elsewhere.append(parse(exported))

    assert elsewhere.state().incidents == (log.state().incident(incident_id),)
    assert [note.text for note in elsewhere.state().notes] == ["from here on"]
    assert json.dumps(document_of(elsewhere.state(), incident_id)).encode() == exported


def test_everything_can_be_exported_at_once(log: IncidentLog, tmp_path: Path) -> None:
    told(log)
    elsewhere = IncidentLog(tmp_path / "other.jsonl")
    elsewhere.append(parse(json.dumps(document_of(log.state())).encode()))
    assert elsewhere.state() == log.state()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{}", "not an incident exported"),
        (b'{"format":"other","version":1,"events":[]}', "its format is 'other'"),
        (b'{"format":"sfapp-incidents","version":9,"events":[]}', "version 9"),
        (b'{"format":"sfapp-incidents","version":1,"events":[{"v":1,"kind":"note"}]}', r"events\[0\]"),
        (b"PAR1", "not an incident exported"),
    ],
)
def test_a_file_that_is_no_export_is_refused_in_words(content: bytes, said: str) -> None:
    with pytest.raises(IncidentError, match=said):
        parse(content)


def test_a_redacted_copy_names_no_run_and_no_host_and_is_another_incident(log: IncidentLog) -> None:
    told(log)

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


def problem(problem_id: str = "a1b2c3d4", *other_ids: str) -> Problem:
    return Problem(
        id=problem_id, other_ids=other_ids, run_id="job", kind="rank", stage="data.next_wait", ranks=(3,),
        hostname="node-0", windows=(3, 4), world=8, began=StepEstimate(120, 118, 121), ended=None,
    )  # fmt: skip


def test_a_mute_is_kept_with_reason_end_and_author_and_can_be_undone(log: IncidentLog) -> None:
    ada, end = author(log, "Ada"), datetime(2026, 11, 22, tzinfo=UTC)
    muting = ada.mute_problem(problem(), None, "node is drained", until=end)

    mark = log.state().mark(problem())
    assert mark is not None
    assert mark.muted is not None
    assert (mark.muted.by, mark.muted_until, mark.reason) == ("Ada", end, "node is drained")

    ada.undo(muting)
    assert log.state().mark(problem()) is None


def test_two_decisions_about_a_problem_at_once_are_both_kept(log: IncidentLog) -> None:
    ada, grace = author(log, "Ada"), author(log, "Grace")
    ada.mute_problem(problem(), None, "known")
    grace.mark_fixed(problem(), None, through=4)  # without having seen the mute

    mark = log.state().mark(problem())
    assert mark is not None
    assert mark.fixed is not None
    assert (mark.reason, mark.fixed_through, mark.fixed.by) == ("known", 4, "Grace")
    ada.unmute_problem(problem(), mark)
    ada.mark_not_fixed(problem(), log.state().mark(problem()))
    mark = log.state().mark(problem())
    assert mark is not None
    assert mark.muted is mark.fixed is None


def test_a_decision_follows_a_problem_that_got_another_id(log: IncidentLog) -> None:
    author(log, "Ada").mute_problem(problem("0ld0ld0ld0"), None, "known")
    mark = log.state().mark(problem("newnewnew", "0ld0ld0ld0"))
    assert mark is not None
    assert mark.reason == "known"
    assert log.state().mark(problem("newnewnew")) is None
