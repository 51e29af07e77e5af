"""A recorder puts its packets into a bucket: each once, none replaced, and none lost in an outage."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import NoReturn

import obstore
import pytest

import sfapp
from sfapp.errors import RecorderError, StorageError
from sfapp.packets import output
from sfapp.packets import uploader as uploading
from sfapp.packets.spool import SPOOL_VARIABLE
from tests.forked_programs import TORCH, ForkedProgram, run_forked
from tests.storage.bucket_jobs import numbers_in, record, train, until, waiting_in
from tests.storage.object_server import DENIED, EXPIRED, SECRET, SLOW_DOWN, Bucket, ProxyHandler, refused

FULL = {"spool_bytes": 20_000}
"""Room for a few windows."""


pytestmark = pytest.mark.usefixtures("spool")


def puts(bucket: Bucket) -> list[str]:
    """Return the names of the objects that were put so far, in order."""
    return [each.target.rpartition("/")[2] for each in bucket.proxy.requests if each.method == "PUT"]


def listed(bucket: Bucket) -> list[str]:
    return [meta["path"] for page in obstore.list(bucket.store) for meta in page]


def test_windows_of_a_recorder_are_read_from_the_bucket(bucket: Bucket, spool: Path) -> None:
    url = f"{bucket.url}/packets"
    perf = record(url, windows=2)
    until(lambda: len(listed(bucket)) == 2)  # while the job runs
    assert numbers_in(url) == [0, 1]
    train(perf, windows=1)
    perf.close()
    assert perf.failures == ()
    assert waiting_in(spool) == []
    assert listed(bucket) == [f"packets/run/0000000{number}.parquet" for number in range(3)]
    with sfapp.open(url) as opened:
        assert opened.runs["windows"].to_list() == [3]


def test_a_restarted_run_continues_after_the_windows_in_the_bucket(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(bucket.url, windows=2).close()
    monkeypatch.setenv(SPOOL_VARIABLE, str(tmp_path / "another machine"))
    record(bucket.url).close()
    assert numbers_in(bucket.url) == [0, 1, 2]


def test_packets_wait_on_disk_until_the_bucket_is_reachable_again(bucket: Bucket, spool: Path) -> None:
    for fault in (SLOW_DOWN, EXPIRED, DENIED):
        bucket.proxy.always = fault
        perf = record(bucket.url, windows=3)
        first = perf.written[0].name
        until(lambda perf=perf: len(perf.failures) == 2)
        assert len(waiting_in(spool)) == 3
        bucket.proxy.requests.clear()
        bucket.proxy.always = None
        until(lambda: not waiting_in(spool))
        assert first in puts(bucket)[0]
        assert puts(bucket) == sorted(set(puts(bucket)))  # in order, each once
        perf.close()
        # Listing failed when the recorder was created, and then uploading, each reported once
        assert len(perf.failures) == 2
        assert "windows are numbered after those on this disk" in perf.failures[0]
        assert f"packets wait in {spool}" in perf.failures[1]
    assert numbers_in(bucket.url) == list(range(9))


def test_training_goes_on_while_a_request_hangs(bucket: Bucket) -> None:
    is_over = threading.Event()

    def hang(handler: ProxyHandler) -> None:
        if handler.command == "PUT":
            is_over.wait(60)
        handler.answer(*handler.forwarded())

    bucket.proxy.always = hang
    perf = record(bucket.url, windows=3)
    assert numbers_in(bucket.url) == []
    is_over.set()
    perf.close()
    assert numbers_in(bucket.url) == [0, 1, 2]
    assert perf.failures == ()


def test_a_recorder_does_not_wait_long_for_a_listing(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()

    def hang(handler: ProxyHandler) -> None:
        is_over.wait(60)
        handler.answer(*handler.forwarded())

    for module in (output, uploading):
        monkeypatch.setattr(module, "LISTING_SECONDS", 0.1)
    bucket.proxy.always = hang
    perf = record(bucket.url)
    assert perf.failures == (f"windows are numbered after those on this disk: {bucket.url} does not answer",)
    is_over.set()
    perf.close()
    assert numbers_in(bucket.url) == [0]


def test_closing_does_not_wait_long_for_a_bucket_that_cannot_be_reached(bucket: Bucket, spool: Path) -> None:
    bucket.proxy.always = SLOW_DOWN
    perf = record(bucket.url, timeout=600.0)
    perf.close()
    assert "1 files wait in" in perf.failures[-1]
    bucket.proxy.always = None
    record(bucket.url).close()  # the next process delivers them
    assert numbers_in(bucket.url) == [0, 1]
    assert waiting_in(spool) == []


def killed_job(url: str, windows: int, **environment: str) -> None:
    """Run a job of another process that is killed while its packets wait."""
    code, root = "from tests.storage.bucket_jobs import main; main()", Path(__file__).parents[2]
    options = {"stdout": subprocess.PIPE, "cwd": root, "env": {**os.environ, **environment}}
    with ForkedProgram(TORCH, code, url, windows, **options) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "recorded\n"
        job.kill()


def test_a_killed_process_leaves_its_packets_to_the_next_one(bucket: Bucket, spool: Path) -> None:
    killed_job(bucket.url, 2, AWS_ENDPOINT_URL="http://127.0.0.1:9")
    assert waiting_in(spool) == ["00000000.parquet", "00000001.parquet"]
    (run,) = spool.glob("*/*/run")
    (left := run / ".00000002.parquet.4711.01234567.tmp").touch()
    os.utime(left, (0, 0))
    record(bucket.url).close()
    assert waiting_in(spool) == []
    assert not left.exists()
    assert numbers_in(bucket.url) == [0, 1, 2]


def test_processes_of_one_machine_take_over_what_others_left(
    bucket: Bucket, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.proxy.always = SLOW_DOWN
    one, other = record(bucket.url), record(bucket.url, run_id="other")
    assert one.written[0].parents[1] != other.written[0].parents[1]
    other.close()
    one.close()
    bucket.proxy.always = None
    monkeypatch.setattr("sfapp.packets.spool._RESTART_SECONDS", 0.0)
    third = record(bucket.url, run_id="third")  # in the folder of the first
    until(lambda: not waiting_in(spool))
    third.close()
    assert {key.split("/")[0] for key in listed(bucket)} == {"run", "other", "third"}


def test_what_others_left_is_taken_over_after_the_clock_was_set_back(bucket: Bucket, spool: Path) -> None:
    # Given packets of a process that ended in an outage, and a clock that was set back by a day since
    bucket.proxy.always = SLOW_DOWN
    one, other = record(bucket.url), record(bucket.url, run_id="other")
    left = other.written[0].parents[1] / ".lock"
    other.close()
    one.close()
    bucket.proxy.always = None
    ahead = time.time() + 86_400
    os.utime(left, (ahead, ahead))
    # When another process records
    third = record(bucket.url, run_id="third")
    # Then it does not wait a day for a successor of the ended one
    until(lambda: not waiting_in(spool))
    third.close()


def test_a_packet_is_stored_once_if_the_answer_is_lost(bucket: Bucket) -> None:
    def lose_the_answer(handler: ProxyHandler) -> None:
        handler.forwarded()
        handler.close_connection = True

    perf = record(bucket.url, windows=0)
    bucket.proxy.faults[:] = [lose_the_answer]
    train(perf, windows=1)
    perf.close()
    assert puts(bucket) == ["00000000.parquet"] * 2
    assert listed(bucket) == ["run/00000000.parquet"]
    assert len(perf.failures) == 1


def test_an_object_is_never_replaced(bucket: Bucket) -> None:
    perf = record(bucket.url, windows=0)
    bucket.put("run/00000000.parquet", b"of another process")
    train(perf, windows=1)
    perf.close()
    first, second = listed(bucket)
    assert bytes(obstore.get(bucket.store, second).bytes()) == b"of another process"
    (failure,) = perf.failures
    assert failure == (
        f"{bucket.url}/run/00000000.parquet exists with other content and was not replaced: "
        f"stored as {first.rpartition('/')[2]}"
    )
    assert numbers_in(f"{bucket.url}/{first}") == [0]


def test_a_packet_stays_on_disk_where_a_server_has_other_content_under_any_name(
    bucket: Bucket, spool: Path
) -> None:
    """A gateway may answer that an object exists, and with another one, whatever is asked."""
    perf = record(bucket.url, windows=0)
    modified = {"Last-Modified": "Wed, 25 Nov 2026 10:00:00 GMT"}
    exists = refused(412, "PreconditionFailed", "At least one of the pre-conditions did not hold.")

    def answer(handler: ProxyHandler) -> None:
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        if handler.command == "PUT":
            exists(handler)
        else:
            handler.answer(200, b"other", modified)

    bucket.proxy.always = answer
    train(perf, windows=1)
    perf.close()
    assert any("exists with other content than its digest" in failure for failure in perf.failures)
    assert waiting_in(spool) == ["00000000.parquet"]


def test_a_full_spool_counts_and_names_the_packets_that_it_discards(
    bucket: Bucket, spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.proxy.always = SLOW_DOWN
    perf = record(bucket.url, windows=8, **FULL)
    until(lambda: sum(path.stat().st_size for path in spool.rglob("*.parquet")) <= FULL["spool_bytes"])
    bucket.proxy.always = None
    perf.close()
    discarded = [failure for failure in perf.failures if "was discarded" in failure]
    assert discarded[0] == "run/00000000.parquet was discarded: more than 20,000 bytes wait"
    assert f" packets for {bucket.url} were discarded so far: the spool {spool}" in caplog.text
    assert numbers_in(bucket.url) == list(range(len(discarded), 8))


def test_credentials_are_neither_logged_nor_kept(
    bucket: Bucket, spool: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    options = {"secret_access_key": SECRET}
    with caplog.at_level(logging.DEBUG):
        bucket.proxy.always = EXPIRED
        perf = record(bucket.url, storage_options=options)
        until(lambda: perf.failures)
        files = [path for path in spool.rglob("*") if path.is_file()]
        assert any(path.name == "00000000.parquet" or "uploading" in path.name for path in files)
        assert not [path for path in files if SECRET.encode() in path.read_bytes()]
        bucket.proxy.always = None
        perf.close()
    assert SECRET not in caplog.text + "".join(perf.failures) + "".join(map(str, spool.rglob("*")))
    assert SECRET.encode() not in bytes(obstore.get(bucket.store, "run/00000000.parquet").bytes())


def test_what_can_hold_no_packets_is_refused_before_training(
    bucket: Bucket, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageError, match="not to web servers"):
        record("http://127.0.0.1/packets/run")
    with pytest.raises(StorageError, match="no user"):
        record(f"s3://user:{SECRET}@bucket/packets")
    with pytest.raises(RecorderError, match="spool_bytes"):
        record(bucket.url, spool_bytes=0)
    spool.write_text("a file")
    with pytest.raises(StorageError, match=r"no folder on this disk .* set SFAPP_SPOOL to one"):
        record(bucket.url)


def test_a_folder_needs_no_obstore(tmp_path: Path) -> None:
    code = (
        "import sys, sfapp\n"
        f"with sfapp.Recorder({str(tmp_path)!r}) as perf, perf.step(): pass\n"
        "assert perf.written and 'obstore' not in sys.modules\n"
    )
    ended = run_forked(TORCH, code)
    assert ended.returncode == 0, ended.stderr


def test_credentials_that_may_only_write_keep_no_packet_waiting(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given windows in the bucket, whose numbers another machine cannot list
    record(bucket.url, windows=2).close()
    monkeypatch.setenv(SPOOL_VARIABLE, str(tmp_path / "another machine"))

    def answer(handler: ProxyHandler) -> None:
        if handler.command == "PUT":
            handler.answer(*handler.forwarded())
        else:
            DENIED(handler)

    bucket.proxy.always = answer
    # When it records windows of the same numbers
    perf = record(bucket.url, windows=3)
    perf.close()
    # Then all are stored beside those
    bucket.proxy.always = None
    assert waiting_in(tmp_path) == []
    assert len(listed(bucket)) == 5
    assert "00000000.parquet exists (cannot be read: 403" in perf.failures[1]
    assert sum("and was not replaced: stored as 0000000" in failure for failure in perf.failures) == 2


@pytest.mark.parametrize("kind", ["folder", "pipe", "unreadable"])
def test_what_is_no_packet_in_a_spool_keeps_no_packet_waiting(
    bucket: Bucket, spool: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    perf = record(bucket.url)  # The spool has its folder then.
    until(lambda: numbers_in(bucket.url) == [0])
    foreign = perf.written[0].with_name("00000000.foreign.parquet")
    if kind == "folder":
        foreign.mkdir()
    elif kind == "pipe":
        os.mkfifo(foreign)
    else:
        rename = Path.rename
        monkeypatch.setattr(
            Path, "rename", lambda path, to: fail(path) if path == foreign else rename(path, to)
        )
        foreign.touch()
    os.utime(foreign, (0, 0))  # so that it comes first
    train(perf, windows=1)
    until(lambda: numbers_in(bucket.url) == [0, 1])
    perf.close()
    assert foreign.exists()
    expected = [] if kind != "unreadable" else ["run/00000000.foreign.parquet cannot be uploaded"]
    assert [failure.partition(":")[0] for failure in perf.failures[:1]] == expected


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "file"])
def test_what_is_no_spool_keeps_no_packet_waiting(
    bucket: Bucket, spool: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given what is no spool, between those of two recorders
    monkeypatch.setattr("sfapp.packets.spool._RESTART_SECONDS", 0.0)
    bucket.proxy.always = SLOW_DOWN
    one = record(bucket.url)
    parent = one.written[0].parents[2]
    foreign, lock = parent / "recorder-1", parent / "recorder-1" / ".lock"
    if kind == "file":
        foreign.touch()
    elif kind == "folder":
        lock.mkdir(parents=True)
    else:
        foreign.mkdir()
        os.mkfifo(lock) if kind == "pipe" else lock.symlink_to(lock)
    (parent / "loop").symlink_to("loop")
    (parent / "recorder-0" / "loop").symlink_to("loop")
    other = record(bucket.url, run_id="other")
    assert other.written[0].parents[1].name == "recorder-2"
    for perf in (other, one):
        perf.close()
    # When a recorder starts in the folder of the first, then it uploads the packets of both
    bucket.proxy.always = None
    third = record(bucket.url, run_id="third")
    until(lambda: not waiting_in(spool))
    third.close()
    assert {key.split("/")[0] for key in listed(bucket)} == {"run", "other", "third"}


def test_packets_next_to_a_link_to_nothing_are_not_numbered_again(bucket: Bucket, spool: Path) -> None:
    bucket.proxy.always = SLOW_DOWN
    perf = record(bucket.url, windows=2)
    perf.close()
    for name in ("a", "z", "00000000.foreign.parquet"):
        perf.written[0].with_name(name).symlink_to("nowhere")
    again = record(bucket.url)
    again.close()
    assert [path.name for path in again.written] == ["00000002.parquet"]


def fail(path: Path) -> NoReturn:
    raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
