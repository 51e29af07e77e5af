"""Data that show notes, incidents and decisions about problems, however large their log is."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from sfapp.app import incidents_api
from sfapp.app.downloads import AT_ONCE
from sfapp.incidents import IncidentLog, document_parts
from sfapp.service import incidents
from sfapp.service.workspace import Workspace
from tests.app.data_client import client_of
from tests.app.recorded_job import RUN
from tests.app.second_editor import second_editor

ADDRESSES = ("/problems.json", "/problems.csv", f"/runs/{RUN}.json", "/incidents.json")


@pytest.fixture
async def can_read(
    own_workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[threading.Event]:
    """Until this is set, reading the log does not end.

    It is set at the end of the test, before the event loop ends and waits for the threads that read.
    """
    own_workspace.store.ingest()
    second_editor(own_workspace.incident_log).open_incident("Slow callback")
    set_at_the_end, read = threading.Event(), IncidentLog.state
    monkeypatch.setattr(IncidentLog, "state", lambda log: (set_at_the_end.wait(30), read(log))[1])
    monkeypatch.setattr(incidents, "PAGE_WAIT_S", 0.05)
    yield set_at_the_end
    set_at_the_end.set()


async def test_data_do_not_wait_for_a_log_that_takes_long_to_read(
    own_workspace: Workspace, can_read: threading.Event
) -> None:
    async with client_of(own_workspace) as client, asyncio.timeout(10):
        for address in ADDRESSES:
            refused = await client.get(address)
            assert refused.status_code == 400
            assert "is still being read" in refused.json()["error"]
        metrics = await client.get("/metrics")
        assert "sfapp_problems" in metrics.text
        can_read.set()
        await own_workspace.incident_service.current()
        assert (await client.get("/incidents.json")).json()["incidents"][0]["title"] == "Slow callback"


async def test_two_exports_are_made_at_once_however_slowly_they_are_read(
    own_workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would otherwise keep the whole of a large log."""
    incident = second_editor(own_workspace.incident_log).open_incident("Slow callback")
    lock, present, most = threading.Lock(), 0, 0

    def slow_parts(*arguments: Any) -> Iterator[bytes]:
        nonlocal present, most
        with lock:
            present += 1
            most = max(most, present)
        time.sleep(0.02)
        yield from document_parts(*arguments)
        with lock:
            present -= 1

    monkeypatch.setattr(incidents_api, "document_parts", slow_parts)
    addresses = ["/incidents.json", f"/incident/{incident}.json"] * 5
    async with client_of(own_workspace) as client:
        answers = await asyncio.gather(*map(client.get, addresses))
    assert [answer.json()["incidents"][0]["id"] for answer in answers] == [incident] * 10
    assert most == AT_ONCE


async def test_data_show_what_was_read_last_while_a_replaced_log_takes_long(
    own_workspace: Workspace, can_read: threading.Event
) -> None:
    can_read.set()
    async with client_of(own_workspace) as client, asyncio.timeout(10):
        assert (await client.get("/incidents.json")).status_code == 200
        can_read.clear()
        own_workspace.incident_log.path.write_bytes(b"\n")
        for address in ADDRESSES:
            assert (await client.get(address)).status_code == 200
