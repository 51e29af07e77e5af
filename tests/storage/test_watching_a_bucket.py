"""``sfapp watch s3://…`` sends messages about the problems of packets in a bucket, also after an outage."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from sfapp.alerts import delivery, sources
from sfapp.alerts.sources import FolderProblems
from sfapp.alerts.targets import SECRET_VARIABLE
from sfapp.errors import StorageError
from sfapp.packets import packet_path
from sfapp.storage import location
from sfapp.store import scan
from tests.alerts.webhook_server import webhook_server
from tests.app.recorded_job import Fault, job_window, put, recent_window
from tests.builders import CALLBACKS, MS
from tests.commands import run_sfapp
from tests.storage.object_server import Bucket, refused

SLOW: Fault = {(CALLBACKS, 3): 60 * MS}


def job_in(bucket: Bucket, folder: Path) -> str:
    for number in range(3):
        put(folder, recent_window(number, {} if number < 2 else SLOW))
    return bucket.upload(folder)


def test_a_problem_in_a_bucket_is_sent_once(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "a secret of sixteen characters")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(delivery, "RETRY_SECONDS", 0.0)
    packets = job_in(bucket, tmp_path / "packets")
    with webhook_server() as server:
        command = ("watch", packets, "--once", "--notify", f"webhook+{server.address}")
        assert run_sfapp(*command).returncode == 0
        (message,) = server.take()
        assert message.changes == [("began", "Rank 3 (node-0) is late in callbacks, every step")]
        assert run_sfapp(*command).returncode == 0
        assert server.take() == []


def test_a_bucket_is_followed_again_after_an_outage(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "BUCKET_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(scan, "REMOTE_LOOK_S", 0.1)
    packets = job_in(bucket, tmp_path)
    with FolderProblems.open(location(packets), None, follows=True) as source:
        assert [one.problem.windows[-1] for one in source.problems() or ()] == [2]
        bucket.proxy.always = refused(403, "AccessDenied", "no")
        _wait_for_outage(source)
        bucket.proxy.always = None
        made = job_window(3, SLOW)
        path = put(tmp_path, made)
        assert path == packet_path(tmp_path, made.run_id, 3)
        bucket.put(f"packets/{path.relative_to(tmp_path).as_posix()}", path.read_bytes())
        deadline = time.monotonic() + 30
        while True:
            source.wait(threading.Event())
            try:
                if [one.problem.windows[-1] for one in source.problems() or ()] == [3]:
                    return
            except StorageError:
                pass
            assert time.monotonic() < deadline


def _wait_for_outage(source: FolderProblems) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            source.problems()
        except StorageError:
            return
        time.sleep(0.05)
    raise AssertionError("the outage was not noticed")
