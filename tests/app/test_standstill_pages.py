"""A job that stands still, on its live page and in the list of problems."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.json import encode
from msgspec.structs import replace
from nicegui import ui
from nicegui.testing import User

from sfapp.metrics import MetricsLog
from sfapp.model.samples import StandstillSample
from sfapp.service import standstills as module
from sfapp.service.live import live_run_snapshot
from sfapp.service.live_address import LiveState
from sfapp.service.problems import listed
from sfapp.service.standstills import present_standstill, standstills
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from sfapp.views.text.problems import problem_text
from tests.app.live_job import LIVE, SENTENCE, STANDING, LiveJob, stand_still
from tests.app.page_elements import href, one
from tests.app.simulation import simulated, until_read


@pytest.fixture
async def watcher(tmp_path: Path) -> AsyncIterator[User]:
    """Someone with the app open over a streamed job without a finished window."""
    LiveJob(tmp_path).go()
    with Store.open([tmp_path], memory=True) as store:
        workspace = Workspace(store, [tmp_path])
        async with simulated(workspace) as user:
            await until_read(workspace)
            yield user


def test_the_data_of_a_live_job_and_of_its_problems_hold_the_standstill(tmp_path: Path) -> None:
    LiveJob(tmp_path).go()
    stand_still(tmp_path, time.time() - 184)
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [tmp_path])
        found = live_run_snapshot(workspace, LIVE, LiveState()).document()["standstill"]
        (problem,) = listed(workspace.problems())
    assert (found["summary"], found["holders"], found["problem"]) == (SENTENCE, [3], problem.problem.id)
    document = problem.document()
    assert (document["kind"], document["ranks"], document["status"]) == ("standstill", (3,), "ongoing")
    assert document["roll_call"]["groups"][0]["spans"] == ((3, 3),)


def test_a_standstill_is_not_ongoing_for_ever_if_its_job_and_its_aggregator_were_killed(
    tmp_path: Path,
) -> None:
    killed = time.time() - 3600
    LiveJob(tmp_path).go(until=killed)
    stand_still(tmp_path, killed - 184, at=killed)
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        (found,) = listed(Workspace(store, [tmp_path]).problems())
    text = problem_text(found.problem, found.status)
    assert (found.is_stale, text.status) == (True, "not ended")
    assert text.until == "not ended when recording stopped"
    assert text.total.endswith("lost")


async def test_a_standstill_is_the_headline_of_its_live_page_and_the_first_problem(
    watcher: User, tmp_path: Path
) -> None:
    began = time.time() - 184
    await watcher.open(f"/live/{LIVE}")
    stand_still(tmp_path, began)
    await watcher.should_see(SENTENCE)
    await watcher.should_see("Look at the stack of this rank")
    problem = href(watcher, "standstill-problem")

    await watcher.open("/")
    await watcher.should_see("The job stands still: rank 3 holds it in data")
    assert href(watcher, "problem") == problem
    await watcher.open(problem)
    await watcher.should_see(SENTENCE)
    assert href(watcher, "live-page") == f"/live/{LIVE}"

    stand_still(tmp_path, began, has_ended=True)
    await watcher.should_see("The job stood still: rank 3 holds it in data")
    LiveJob(tmp_path).go()  # A slow machine may need the ten seconds after which samples are old.
    await watcher.open(f"/live/{LIVE}")
    await watcher.should_see("Live: 8 ranks reporting.")
    await watcher.should_not_see(SENTENCE)
    assert one(watcher, ui.element, "standing")


def test_of_endless_standstills_the_newest_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are files: a page that is read every second must not read millions of lines."""
    monkeypatch.setattr(module, "MOST_STANDSTILLS", 3)
    LiveJob(tmp_path).go()
    now = time.time()
    for number in range(6):
        began, roll = now - 1000 + number, replace(STANDING, step=number)
        sample = StandstillSample(
            at_ns=int(began * 1e9), node_rank=0, step=number, began_ns=int(began * 1e9), limit_s=30.0,
            has_ended=True, roll_call=encode(roll).decode(),
        )  # fmt: skip
        MetricsLog(tmp_path, LIVE).add([sample])
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        found = standstills(store, LIVE)
    assert [each.roll.step for each in found] == [3, 4, 5]


def test_a_standstill_that_no_aggregator_confirms_is_over_once_the_run_goes_on(tmp_path: Path) -> None:
    """One that is started again does not know of it."""
    began = time.time() - 400
    stand_still(tmp_path, began, at=began + 60)
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        assert [each.has_ended for each in standstills(store, LIVE)] == [False]
        LiveJob(tmp_path).go()
        store.ingest()
        (found,) = standstills(store, LIVE)
        assert present_standstill([found], datetime.now(UTC)) is None
        assert live_run_snapshot(Workspace(store, [tmp_path]), LIVE, LiveState()).standstill is None
        earlier = datetime.fromtimestamp(began + 61, UTC)
        assert [each.has_ended for each in standstills(store, LIVE, earlier)] == [False]
    assert found.has_ended
    assert found.at.timestamp() == pytest.approx(began + 60, abs=0.001)


def test_a_standstill_keeps_its_begin_when_the_aggregator_is_started_again(tmp_path: Path) -> None:
    LiveJob(tmp_path).go()
    began = time.time() - 184
    stand_still(tmp_path, began, at=began + 120)
    stand_still(tmp_path, began + 130)
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        (found,) = standstills(store, LIVE)
    assert not found.has_ended
    assert found.began_at.timestamp() == pytest.approx(began, abs=0.001)
