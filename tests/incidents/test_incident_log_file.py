"""The file of the incident log: many writers, torn lines, full disks, hostile text."""

from __future__ import annotations

import fcntl
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sfapp.errors import IncidentError
from sfapp.incidents import MAX_TEXT, IncidentLog
from tests.incidents.incident_editors import author

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


def test_a_log_that_another_process_keeps_locked_is_an_error_that_leaves_it_readable(
    log: IncidentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    author(log, "Ada").write_note("before")
    monkeypatch.setattr("sfapp.incidents.log._LOCK_S", 0.1)
    with log.path.open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        with pytest.raises(IncidentError, match="another process has locked it"):
            author(log, "Grace").write_note("meanwhile")
        assert [note.text for note in log.state().notes] == ["before"]
    author(log, "Grace").write_note("after")
    assert [note.text for note in log.state().notes] == ["before", "after"]


def test_edits_wait_side_by_side_for_a_log_that_is_locked_and_it_can_be_read_meanwhile(
    log: IncidentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    author(log, "Ada").write_note("before")
    monkeypatch.setattr("sfapp.incidents.log._LOCK_S", 1.0)

    def edit(name: str) -> str:
        with pytest.raises(IncidentError) as refused:
            author(log, name).write_note("meanwhile")
        return str(refused.value)

    with log.path.open("rb") as other, ThreadPoolExecutor(8) as threads:
        fcntl.flock(other, fcntl.LOCK_SH)
        began = time.monotonic()
        refusals = [threads.submit(edit, name) for name in "abcdefgh"]
        time.sleep(0.1)
        assert [note.text for note in log.state().notes] == ["before"]
        assert time.monotonic() - began < 1.0
        assert all("another process has locked it" in refusal.result() for refusal in refusals)
        assert time.monotonic() - began < 4.0  # 8 s and more one after the other


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
    ("line", "message"),
    [
        (b"\xff\xfe nonsense", "line 2: not an edit"),
        (b'{"v":2,"kind":"poem","id":"00000000"}', "line 2: written in format 2"),
        (b'{"v":1,"kind":"poem"}', "line 2: not an edit of format 1: Invalid value 'poem'"),
        (b"[" * 100_000, "line 2: not an edit"),
        (b'{"v":1,"more":' + b"[" * 100_000, "line 2: not an edit"),
    ],
)
def test_a_line_that_cannot_be_read_is_reported_and_passed_over(
    log: IncidentLog, line: bytes, message: str
) -> None:
    ada = author(log, "Ada")
    ada.write_note("before")
    with log.path.open("ab") as file:
        file.write(line + b"\n")
    ada.write_note("after")

    book = IncidentLog(log.path).state()
    assert [note.text for note in book.notes] == ["before", "after"]
    (notice,) = book.notices
    assert notice.startswith(message)


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


def test_an_author_without_a_name_is_anonymous(log: IncidentLog) -> None:
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


def test_an_impossible_place_for_a_log_is_an_error_with_a_reason(log: IncidentLog) -> None:
    log.path.parent.write_text("a file where the folder should be")
    with pytest.raises(IncidentError, match=r"cannot be written: .*; notes need a folder"):
        author(log, "Ada").write_note("no")
    with pytest.raises(IncidentError, match="cannot be read"):
        log.state()
