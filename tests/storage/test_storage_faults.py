"""Requests that fail: repeated while that may help, with the reason shown, and without any credentials."""

from __future__ import annotations

import logging
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sfapp.errors import StorageError
from sfapp.packets import Packet, find_packets, load_packet, read_window
from sfapp.storage import location, storage_of
from sfapp.storage.object_storage import TAIL_BYTES
from sfapp.store import Store
from tests.commands import run_sfapp
from tests.storage.object_server import (
    DENIED,
    EXPIRED,
    SECRET,
    SLOW_DOWN,
    Bucket,
    ProxyHandler,
    cut_off,
    files_of,
    silent,
)
from tests.store.jobs import put_run

WINDOWS = 3
BUSY = "503 Service Unavailable"


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packets")
    put_run(root, count=WINDOWS)
    return root


def logged(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


def test_requests_are_repeated_while_the_server_is_busy_cuts_answers_off_or_is_slow(
    packets: Path, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    url = bucket.upload(packets)
    options = {"read_timeout": "300ms"}
    with caplog.at_level(logging.WARNING, "sfapp"):
        bucket.proxy.faults[:] = [SLOW_DOWN, SLOW_DOWN]
        assert len(find_packets([location(url)])) == WINDOWS
        assert f"{url}: {BUSY}" in logged(caplog)
        assert "attempt 2 of 7 follows in" in logged(caplog)
        for fault in (SLOW_DOWN, cut_off, silent(2.0)):
            caplog.clear()
            bucket.proxy.faults[:] = [fault]
            path = location(f"{url}/run/00000000.parquet", options)
            found = load_packet(path)
            assert isinstance(found, Packet)
            assert found.sha256 == load_packet(packets / "run" / "00000000.parquet").sha256
            assert f"{path}: " in logged(caplog)
    assert SECRET not in logged(caplog)


def test_a_failure_that_stays_ends_the_command_with_the_reason(packets: Path, bucket: Bucket) -> None:
    url = bucket.upload(packets)
    few = ("--storage-option", "max_retries=1")
    for fault, reason in (
        (SLOW_DOWN, f"{BUSY}: SlowDown: Please reduce your request rate. (2 attempts in "),
        (EXPIRED, "400 Bad Request: ExpiredToken: The provided token has expired."),
        (DENIED, "403 Forbidden: AccessDenied: Access Denied"),
    ):
        bucket.proxy.always = fault
        for command in ("analyze", "validate"):
            ended = run_sfapp(command, url, *few)
            assert ended.returncode == 2
            assert f"sfapp: {url}: {reason}" in ended.stderr
            assert SECRET not in ended.stderr
    bucket.proxy.always = None
    nowhere = run_sfapp("analyze", "s3://no-such-bucket-here/packets", *few)
    assert nowhere.returncode == 2
    assert "NoSuchBucket" in nowhere.stderr


def test_a_server_that_is_not_there_is_named(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    ended = run_sfapp("analyze", bucket.url, "--storage-option", "max_retries=0")
    assert ended.returncode == 2
    assert "Connection refused" in ended.stderr


def test_credentials_that_expire_lose_nothing_and_quarantine_nothing(packets: Path, bucket: Bucket) -> None:
    url = bucket.upload(packets)
    with Store.open([location(url, {"max_retries": "0"})]) as store:
        bucket.proxy.faults[:] = [None, None, EXPIRED]
        with pytest.raises(StorageError, match="ExpiredToken"):
            store.ingest()
        assert store.quarantine() == []
        bucket.proxy.faults.clear()
        assert store.ingest().added == WINDOWS
        # A window's page reads its packet again
        bucket.proxy.always = EXPIRED
        with pytest.raises(StorageError, match="ExpiredToken"):
            store.window("run", 0)


def test_one_object_that_is_refused_leaves_the_others_and_is_read_once_it_is_not(
    packets: Path, bucket: Bucket
) -> None:
    url = bucket.upload(packets)

    def deny_one(handler: ProxyHandler) -> None:
        if "00000001.parquet" in handler.path:
            DENIED(handler)
        else:
            handler.answer(*handler.forwarded())

    bucket.proxy.always = deny_one
    with Store.open([location(url)]) as store:
        assert store.ingest().added == WINDOWS - 1
        (refused,) = store.quarantine()
        assert refused.reason == "cannot be read: 403 Forbidden: AccessDenied: Access Denied"
        assert not store.ingest().changed
        bucket.proxy.always = None
        assert store.ingest().added == 1
        assert store.quarantine() == []


def test_only_the_end_of_a_large_file_is_fetched_until_it_is_known_to_be_a_packet(
    packets: Path, bucket: Bucket
) -> None:
    whole = (packets / "run" / "00000000.parquet").read_bytes()
    padding = b"\0" * TAIL_BYTES
    bucket.put("packets/data.parquet", padding + whole.replace(b"sfapp.", b"other."))
    bucket.put("packets/text.parquet", padding + b"no Parquet file")
    bucket.put("packets/large.parquet", whole[:4] + padding + whole[4:])
    bucket.put("packets/empty.parquet", b"")
    reasons = {}
    for name in ("data", "text", "large", "empty"):
        bucket.proxy.requests.clear()
        path = location(f"{bucket.url}/packets/{name}.parquet")
        found = load_packet(path)
        reasons[name] = (getattr(found, "reason", ""), len(bucket.proxy.requests))
    assert reasons["data"][0].startswith("no manifest")
    assert reasons["text"][0].startswith("not a readable Parquet file")
    assert (reasons["data"][1], reasons["text"][1]) == (1, 1)
    assert "the file is damaged: its checksum is" in reasons["large"][0]
    assert reasons["large"][1] == 2
    assert reasons["empty"][0].startswith("not a readable Parquet file")


def test_a_packet_on_a_web_server_is_read_and_nothing_else_is_listed(packets: Path, bucket: Bucket) -> None:
    bucket.proxy.always = files_of(packets)
    place = f"127.0.0.1:{bucket.proxy.port}/run"
    base, signed = f"http://{place}", f"http://user:{SECRET}@{place}/00000001.parquet?sig={SECRET}"
    path = location(signed)
    assert str(path) == f"{base}/00000001.parquet"
    assert read_window(path).number == 1
    assert all("sig=" in request.target for request in bucket.proxy.requests)
    assert {request.headers["authorization"][:6] for request in bucket.proxy.requests} == {"Basic "}
    assert pickle.loads(pickle.dumps(path)) == path
    assert SECRET not in repr(path) + repr(storage_of(path)) + run_sfapp("analyze", signed).stdout
    missing = run_sfapp("analyze", f"{base}/00000009.parquet?sig={SECRET}")
    assert missing.returncode == 2
    assert SECRET not in missing.stderr
    listed = run_sfapp("analyze", f"{base}/")
    assert listed.returncode == 2
    assert "a web server lists no files; name one packet file" in listed.stderr


def test_no_credentials_are_kept_in_the_store(packets: Path, bucket: Bucket, tmp_path: Path) -> None:
    bucket.proxy.always = files_of(packets)
    place = f"127.0.0.1:{bucket.proxy.port}/run/00000001.parquet"
    db = tmp_path / "store.duckdb"
    with Store.open([location(f"http://user:{SECRET}@{place}?sig={SECRET}")], db=db) as store:
        store.ingest()
        assert str(store.sources("run", 1)[0].path) == f"http://{place}"
        assert store.window("run", 1).number == 1
    for path in tmp_path.iterdir():
        assert SECRET.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("command", ["analyze", "fleet"])
@pytest.mark.parametrize("asked", ["list-type=2", ".parquet"])
def test_ctrl_c_ends_a_command_while_the_server_is_silent(
    packets: Path, bucket: Bucket, asked: str, command: str
) -> None:
    url = bucket.upload(packets)
    reached = threading.Event()

    def silent_if_asked(handler: ProxyHandler) -> None:
        if asked in handler.path and not handler.path.endswith(asked + "/"):
            reached.set()
            silent(60.0)(handler)
        else:
            handler.answer(*handler.forwarded())

    bucket.proxy.always = silent_if_asked
    words = [sys.executable, "-c", "from sfapp.cli import main; main()", command, url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert reached.wait(60)
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=10) == ("", "\nAborted!\n")
            assert process.returncode == 1
        finally:
            process.kill()
