"""Jobs of very many nodes: lists on the pages stay short, and any node can be typed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_job import LIVE, LiveJob
from nicegui import ui
from nicegui.testing import User
from page_elements import chooser, href, one
from recorded_job import put, waiting_window

from sfapp.model import ALL_RANKS
from sfapp.service.workspace import Workspace
from sfapp.store import Store

MS = 1_000_000
LATE = 1_990
"""The late rank, on node 497 of 500."""


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packets of a window on 500 nodes and of one on 100, and a live job on 100. Not to be written to."""
    root = tmp_path_factory.mktemp("many")
    put(root, waiting_window(0, {(0, LATE): 60 * MS}, ranks=2_000, run_id="wide"))
    put(root, waiting_window(0, {(0, 77): 60 * MS}, ranks=400, run_id="narrow"))
    LiveJob(root, nodes=100).go(2)
    return root


@pytest.fixture(scope="module")
def store(packets: Path) -> Iterator[Store]:
    with Store.open([packets], memory=True) as store:
        store.ingest()
        yield store


@pytest.fixture
def workspace(packets: Path, store: Store) -> Workspace:
    """The app's gateway to these jobs, in the place of the recorded one."""
    return Workspace(store, [packets])


async def test_a_page_grows_with_what_it_shows_and_not_with_the_nodes_of_the_job(user: User) -> None:
    narrow = await user.http_client.get("/w/narrow/0")
    wide = await user.http_client.get("/w/wide/0")
    assert narrow.status_code == wide.status_code == 200
    assert len(wide.text) < 1.02 * len(narrow.text)


async def test_the_list_of_groups_has_the_suspects_node_and_any_other_can_be_typed(user: User) -> None:
    await user.open("/w/wide/0")
    offered = list(chooser(user, "group").options)
    assert offered[:2] == [ALL_RANKS, f"node:{LATE // 4}"]
    assert len(offered) <= 66
    # When a node is typed that the list lacks, it is judged, and the list names it
    one(user, ui.number, "group-node").value = 321
    while href(user, "json") != "/w/wide/0.json?group=node:321":  # measured on a thread
        await asyncio.sleep(0.02)
    assert chooser(user, "group").value == "node:321"
    # A node that the job does not have is none to judge
    one(user, ui.number, "group-node").value = 500
    await user.should_see("This window has no group 'node:500'")
    assert href(user, "json") == "/w/wide/0.json?group=node:321"


async def test_the_tab_of_nodes_opens_with_the_suspects_and_any_other_can_be_typed(user: User) -> None:
    await user.open(f"/w/wide/0?tab=node:{LATE // 4}")
    await user.should_see(marker="another-node")
    assert next(iter(chooser(user, "node").options)) == LATE // 4
    assert len(chooser(user, "node").options) <= 64
    one(user, ui.number, "another-node").value = 321
    await user.should_see("Ranks of node 321")
    one(user, ui.number, "another-node").value = 9_999
    await user.should_see("This window has no node 9999")


async def test_of_a_live_job_on_many_nodes_any_can_be_typed(user: User) -> None:
    await user.open(f"/live/{LIVE}")
    await user.should_see(marker="another-node")
    assert len(chooser(user, "node").options) == 64
    one(user, ui.number, "another-node").value = 88
    await user.should_see("Live ranks of node 88")
    assert chooser(user, "node").value == 88
    one(user, ui.number, "another-node").value = 100
    await user.should_see("The run has no node 100.")
