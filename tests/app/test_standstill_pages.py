"""A job that stands still, on its live page and in the list of problems."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from nicegui import ui
from nicegui.testing import User

from sfapp.metrics import MetricsLog
from sfapp.model.samples import StandstillSample
from sfapp.model.stages import BACKWARD, DATA
from sfapp.model.standstill import RankGroup, RollCall
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.app.live_job import LIVE, LiveJob
from tests.app.page_elements import href, one
from tests.app.simulation import simulated

STANDING = RollCall(
    kind="rank",
    certainty="likely",
    step=301,
    idle_s=184.0,
    limit_s=30.0,
    world_size=8,
    groups=(
        RankGroup(spans=((3, 3),), state="stage", holds=True, step=301, stage=DATA, still_s=184.0),
        RankGroup(spans=((0, 2), (4, 7)), state="stage", step=301, stage=BACKWARD, still_s=184.0),
    ),
)
SENTENCE = (
    "Step 301: 7 of 8 ranks wait in backward since 184 s; rank 3 is in data since 184 s: it holds the job"
)


def stand_still(root: Path, began: float, *, has_ended: bool = False) -> None:
    """Write what an aggregator writes of a standstill."""
    sample = StandstillSample(
        at_ns=int(time.time() * 1e9),
        node_rank=0,
        step=301,
        began_ns=int(began * 1e9),
        limit_s=30.0,
        has_ended=has_ended,
        roll_call=msgspec.json.encode(STANDING).decode(),
    )
    MetricsLog(root, LIVE).add([sample])


@pytest.fixture
async def watcher(tmp_path: Path) -> AsyncIterator[User]:
    """Someone with the app open over a streamed job without a finished window."""
    LiveJob(tmp_path).go()
    with Store.open([tmp_path], memory=True) as store:
        workspace = Workspace(store, [tmp_path])
        async with simulated(workspace) as user:
            while workspace.status().kind == "reading":
                await asyncio.sleep(0.02)
            yield user


async def test_a_standstill_is_the_headline_of_its_live_page_and_the_first_problem(
    watcher: User, tmp_path: Path
) -> None:
    began = time.time() - 184
    await watcher.open(f"/live/{LIVE}")
    stand_still(tmp_path, began)
    await watcher.should_see(SENTENCE)
    await watcher.should_see("Look at the stack of this rank")
    answer = (await watcher.http_client.get(f"/live/{LIVE}.json")).json()["standstill"]
    assert (answer["summary"], answer["holders"], answer["kind"]) == (SENTENCE, [3], "rank")
    problem = href(watcher, "standstill-problem")

    await watcher.open("/")
    await watcher.should_see("The job stands still: rank 3 holds it in data")
    assert href(watcher, "problem") == problem
    await watcher.open(problem)
    await watcher.should_see(SENTENCE)
    assert href(watcher, "live-page") == f"/live/{LIVE}"
    (found,) = (await watcher.http_client.get("/problems.json")).json()["problems"]
    assert (found["kind"], found["ranks"], found["status"]) == ("standstill", [3], "ongoing")

    stand_still(tmp_path, began, has_ended=True)
    await watcher.should_see("The job stood still: rank 3 holds it in data")
    await watcher.open(f"/live/{LIVE}")
    await watcher.should_see("Live: 8 ranks reporting.")
    await watcher.should_not_see(SENTENCE)
    assert one(watcher, ui.element, "standing")
