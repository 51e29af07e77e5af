"""The app over a bucket: it reports when the bucket cannot be read, goes on by itself, and keeps notes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sfapp.incidents import IncidentEditor
from sfapp.service import workspace as workspaces
from sfapp.service.workspace import Workspace
from sfapp.storage import location
from sfapp.store import Store, WindowQuery
from sfapp.store import scan as scanning
from sfapp.store import watch as watching
from tests.storage.object_server import EXPIRED, Bucket
from tests.store.jobs import put, put_run, window

PATIENCE_S = 20


async def status_becomes(workspace: Workspace, kind: str) -> str:
    """Wait for an activity of the store's thread, and return its message."""
    async with asyncio.timeout(PATIENCE_S):
        while workspace.status().kind != kind:
            await asyncio.sleep(0.02)
    return workspace.status().message


async def test_a_bucket_that_cannot_be_read_is_reported_until_it_can(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "REMOTE_LOOK_S", 0.1)
    monkeypatch.setattr(watching, "_LOOK_S", 0.05)
    monkeypatch.setattr(watching, "_SCAN_EVERY_S", 0.05)
    monkeypatch.setattr(workspaces, "RETRY_SECONDS", 0.1)
    put_run(tmp_path / "packets", count=2)
    root = location(bucket.upload(tmp_path / "packets"))
    with Store.open([root]) as store:
        workspace = Workspace(store, [root])
        workspace.start()
        try:
            await status_becomes(workspace, "live")
            bucket.proxy.always = EXPIRED
            assert f"{root}: 400 Bad Request: ExpiredToken" in await status_becomes(workspace, "failed")
            assert store.windows(WindowQuery()).total == 2
            new = put(tmp_path / "new", window("run", 2)).read_bytes()
            bucket.proxy.always = None
            bucket.put("packets/run/00000002.parquet", new)
            await status_becomes(workspace, "live")
            assert store.windows(WindowQuery()).total == 3
            assert workspace.folders == ()
        finally:
            await asyncio.to_thread(workspace.close)


def test_notes_are_kept_next_to_the_packets_of_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    root = location(bucket.url)
    with Store.open([root]) as store:
        assert "give --db FILE to keep it" in store.note
        IncidentEditor(Workspace(store, [root]).incident_log, "Ada").write_note("It begins here.")
    with Store.open([root], db=tmp_path / "fleet.duckdb") as store:
        log = Workspace(store, [root]).incident_log
        assert [note.text for note in log.state().notes] == ["It begins here."]
        assert log.shown == f"{bucket.url}/.sfapp/incidents.jsonl"
