"""A window whose packets are not there: its page shows the verdict, and says where the packets are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nicegui.testing import User

from sfapp.service.workspace import Workspace
from sfapp.store import Store, ingest_to_dataset
from tests.app.data_client import client_of
from tests.app.simulation import simulated
from tests.store.jobs import put_run


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    put_run(tmp_path / "packets")
    ingest_to_dataset([tmp_path / "packets"], tmp_path / "verdicts")
    return tmp_path / "verdicts"


@pytest.fixture
async def user(dataset: Path) -> AsyncIterator[User]:
    with Store.open([dataset], memory=True) as store:
        store.ingest()
        async with simulated(Workspace(store, [dataset])) as found:
            yield found


async def test_the_page_shows_the_verdict_and_where_the_packet_is(user: User, dataset: Path) -> None:
    await user.open("/w/run/2")
    await user.should_see("Only the verdict is here")
    await user.should_see(f"its packet is {dataset.parent / 'packets' / 'run' / '00000002.parquet'}")
    await user.should_see("data on rank 2")


async def test_lists_and_problems_are_those_of_the_packets(user: User) -> None:
    await user.open("/")
    await user.should_see("data")
    await user.open("/windows")
    await user.should_see("rank 2")


async def test_json_is_the_stored_verdict_and_another_view_names_what_is_missing(dataset: Path) -> None:
    with Store.open([dataset], memory=True) as store:
        store.ingest()
        async with client_of(Workspace(store, [dataset])) as client:
            found = await client.get("/w/run/2.json")
            assert found.json() == json.loads(json.dumps(store.diagnosis("run", 2).document()))
            other = await client.get("/w/run/2.json?group=node:0")
            assert (other.status_code, (await client.get("/w/run/77.json")).status_code) == (400, 404)
            assert "only the verdict is here" in other.json()["error"]
