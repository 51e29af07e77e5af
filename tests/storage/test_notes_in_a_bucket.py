"""Notes next to the packets of a bucket: several machines edit them, and no edit is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import obstore
import pytest

from sfapp.errors import IncidentError
from sfapp.incidents import IncidentEditor, IncidentLog
from sfapp.service.incidents import IncidentService, incident_log_of
from sfapp.storage import location
from tests.commands import run_sfapp
from tests.storage.object_server import DENIED, SECRET, SLOW_DOWN, Bucket, ProxyHandler
from tests.store.jobs import put_run


def log_in(bucket: Bucket) -> IncidentLog:
    """Return the log as a machine that has no other copy opens it."""
    return incident_log_of(location(f"{bucket.url}/packets"), None)


def texts(log: IncidentLog) -> list[str]:
    return [note.text for note in log.state().notes]


def write(log: IncidentLog, text: str) -> None:
    IncidentEditor(log, "Ada").write_note(text)


def test_machines_read_each_others_notes(bucket: Bucket) -> None:
    one, other = log_in(bucket), log_in(bucket)
    assert texts(one) == []
    assert one.signature() is None
    write(one, "first")
    assert texts(other) == ["first"]
    before = one.signature()
    write(other, "second")
    assert one.signature() != before
    assert texts(one) == ["first", "second"]
    write(one, "third")
    assert texts(log_in(bucket)) == ["first", "second", "third"]
    assert [meta["path"] for page in obstore.list(bucket.store) for meta in page] == [
        "packets/.sfapp/incidents.jsonl"
    ]


def test_edits_at_the_same_time_are_all_kept(bucket: Bucket) -> None:
    one, other = log_in(bucket), log_in(bucket)
    write(one, "first")

    def edit_before(handler: ProxyHandler) -> None:
        write(other, "by another machine")
        handler.answer(*handler.forwarded())

    for _ in range(2):
        bucket.proxy.faults[:] = [None, edit_before]  # The log is read, then written.
        write(one, "by this machine")
    by_both = ["by another machine", "by this machine"]
    assert texts(one) == texts(other) == ["first", *by_both, *by_both]


def test_two_first_edits_are_both_kept(bucket: Bucket) -> None:
    one, other = log_in(bucket), log_in(bucket)

    def edit_before(handler: ProxyHandler) -> None:
        write(other, "by another machine")
        handler.answer(*handler.forwarded())

    bucket.proxy.faults[:] = [None, edit_before]
    write(one, "by this machine")
    assert texts(one) == ["by another machine", "by this machine"]


def test_an_edit_is_stored_once_if_the_answer_is_lost(bucket: Bucket) -> None:
    log = log_in(bucket)

    def lose_the_answer(handler: ProxyHandler) -> None:
        handler.forwarded()
        handler.close_connection = True

    bucket.proxy.faults[:] = [None, lose_the_answer]
    write(log, "once")
    assert texts(log) == texts(log_in(bucket)) == ["once"]


@pytest.mark.parametrize("damage", ["folder", "file", "emptied"])
def test_notes_are_kept_where_their_copy_on_this_disk_is_removed(bucket: Bucket, damage: str) -> None:
    """Programs that clean /tmp remove what was not changed for some days."""
    log = log_in(bucket)
    write(log, "first")
    for texts_so_far in (["first"], ["first", "second"]):
        if damage == "folder":
            shutil.rmtree(log.path.parent)
        elif damage == "file":
            log.path.unlink()
        else:
            log.path.write_bytes(b"")
        if texts_so_far == ["first"]:
            write(log, "second")
        assert texts(log) == texts(log_in(bucket)) == ["first", "second"]


def test_a_first_note_is_written_after_the_folder_of_the_copy_was_removed(bucket: Bucket) -> None:
    log = log_in(bucket)
    assert texts(log) == []
    shutil.rmtree(log.path.parent)
    assert texts(log) == []
    write(log, "first")
    assert texts(log) == texts(log_in(bucket)) == ["first"]


def test_an_edit_that_the_bucket_refuses_is_reported_and_not_shown(bucket: Bucket) -> None:
    log = log_in(bucket)
    write(log, "first")
    bucket.proxy.faults[:] = [None, DENIED]
    with pytest.raises(IncidentError, match=r"incidents\.jsonl cannot be written: 403 Forbidden") as refused:
        write(log, "second")
    assert SECRET not in str(refused.value)
    assert texts(log) == ["first"]
    write(log, "third")
    assert texts(log) == ["first", "third"]


async def test_notes_that_cannot_be_read_stay_and_are_reported(bucket: Bucket) -> None:
    log = incident_log_of(location(f"{bucket.url}/packets", {"max_retries": 0}), None)
    write(log, "first")
    service = IncidentService(log)
    assert len((await service.current()).notes) == 1
    bucket.proxy.always = SLOW_DOWN
    assert len((await service.current()).notes) == 1
    assert service.problem.startswith(f"{bucket.url}/packets/.sfapp/incidents.jsonl cannot be read: ")
    assert "503" in service.problem
    bucket.proxy.always = None
    assert len((await service.current()).notes) == 1
    assert service.problem == ""


def test_a_report_shows_the_notes_of_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    put_run(tmp_path / "packets", count=1)
    url = bucket.upload(tmp_path / "packets")
    editor = IncidentEditor(log_in(bucket), "Ada")
    incident = editor.open_incident("A slow disk")
    made = run_sfapp("report", incident, url, "-o", tmp_path / "report.md")
    assert made.returncode == 0, made.stderr
    assert "A slow disk" in (tmp_path / "report.md").read_text()


def test_a_log_next_to_the_store_stays_in_use(bucket: Bucket, tmp_path: Path) -> None:
    root, db = location(bucket.url), tmp_path / "fleet.duckdb"
    (tmp_path / "fleet.incidents.jsonl").touch()
    assert incident_log_of(root, db).path == tmp_path / "fleet.incidents.jsonl"
    server = location("http://127.0.0.1/run/00000000.parquet")
    with pytest.raises(IncidentError, match="is on a web server: give --db FILE"):
        write(incident_log_of(server, None), "nowhere")
    assert incident_log_of(server, tmp_path / "web.duckdb").path == tmp_path / "web.incidents.jsonl"
