"""The pages of jobs that run: fed from the samples next to the packets, as an aggregator leaves them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import nicegui.json
import pytest
from fastapi import FastAPI
from nicegui import ui
from nicegui.testing import User

from sfapp.accounting import rolling_verdict
from sfapp.app import api
from sfapp.app.panels.live_tabs import parts_of
from sfapp.app.panels.plot_card import LINKED, PlotElement
from sfapp.model.live_rows import LiveRows
from sfapp.packets.newest_steps import newest_steps_path, write_newest_steps
from sfapp.service.live import LiveRunSnapshot, live_run_snapshot
from sfapp.service.live_address import parse_live
from sfapp.service.live_sharing import SharedSnapshots
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from sfapp.views.text import rolling_words
from tests.app.live_job import LIVE, LiveJob
from tests.app.page_elements import chooser, href, one, plot
from tests.app.recorded_job import HOSTILE, job_window, put
from tests.app.simulation import simulated, until_read
from tests.builders import DATA, MS, Ints, ddp_job
from tests.live_rows import live_rows

PAGE = f"/live/{LIVE}"


@pytest.fixture
def job(tmp_path: Path) -> LiveJob:
    """A job that has run for half a minute and has finished two windows."""
    for number in range(2):
        put(tmp_path, job_window(number, {}, run_id=LIVE))
    job = LiveJob(tmp_path)
    job.go()
    return job


@pytest.fixture
def live_workspace(tmp_path: Path, job: LiveJob) -> Iterator[Workspace]:
    with Store.open([tmp_path], memory=True) as store:
        yield Workspace(store, [tmp_path])


@pytest.fixture
async def watcher(live_workspace: Workspace) -> AsyncIterator[User]:
    """Someone with the app open while the job runs."""
    async with simulated(live_workspace) as user:
        await until_read(live_workspace)
        yield user


def standing(user: User) -> str:
    return str(one(user, ui.element, "standing").text)


async def test_the_first_page_leads_to_a_job_that_runs(watcher: User) -> None:
    await watcher.open("/")
    await watcher.should_see("Watch live-job live (8 ranks)")
    assert href(watcher, "running") == PAGE
    await watcher.open("/live")
    await watcher.should_see("8 ranks on 2 nodes, running")
    assert href(watcher, "live-run") == PAGE
    await watcher.open(f"/runs/{LIVE}")
    assert href(watcher, "running") == PAGE


async def test_without_a_streamed_job_the_page_explains_how_to_stream_one(user: User) -> None:
    await user.open("/live")
    await user.should_see("No live job")
    answer = await user.http_client.get("/live/absent")
    assert answer.status_code == 404
    assert "was streamed here" in answer.text


async def test_the_overview_shows_steps_ranks_skew_and_nodes(watcher: User) -> None:
    await watcher.open(PAGE)
    await watcher.should_see("Live step time")
    assert standing(watcher) == "Live: 8 ranks reporting."
    slowest = plot(watcher, "Live step time").figure["data"][1]
    assert set(slowest["text"]) == {"rank 6 on node-1"}
    assert "rank 6" in str(plot(watcher, "Live ranks").figure["layout"]["annotations"])
    assert plot(watcher, "Live skew").figure["data"]
    (table,) = watcher.find(kind=ui.table).elements
    assert [row["worst_rank"] for row in table.rows] == [0, 6]
    assert [row["cpu_percent_text"] for row in table.rows] == ["40 %", "41 %"]


async def test_what_was_lost_and_refused_is_counted_and_the_newest_verdict_is_a_click_away(
    watcher: User,
) -> None:
    await watcher.open(PAGE)
    await watcher.should_see("3 steps lost by rank 2")
    await watcher.should_see("2 messages refused")
    assert href(watcher, "newest-window") == f"/w/{LIVE}/1"


async def test_a_node_has_its_ranks_its_machine_and_why_there_is_no_gpu(watcher: User) -> None:
    await watcher.open(f"{PAGE}?tab=node:0")
    await watcher.should_see("Live ranks of node 0")
    assert "CPU: node 0 is at 40 %." in plot(watcher, "CPU").figure["layout"]["meta"]["alt"]
    assert "there is no NVIDIA driver" in plot(watcher, "GPUs").figure["layout"]["meta"]["alt"]
    assert "no layer is timed" in plot(watcher, "Layers of node 0").figure["layout"]["meta"]["alt"]
    await watcher.should_see("No shard sizes")
    watcher.find(kind=ui.tab, content="Node 1").click()
    await watcher.should_see("GPU utilisation")
    assert plot(watcher, "GPU power").figure["data"][0]["text"][-1] == "512 W"


async def test_the_page_follows_the_job_and_shows_how_long_a_rank_has_been_silent(
    watcher: User, job: LiveJob
) -> None:
    await watcher.open(PAGE)
    await watcher.should_see("Live step time")
    before = plot(watcher, "Live step time").figure["data"][1]["x"][-1]
    job.go(1, silent={5: 34.0})
    await watcher.should_see("rank 5: no data for 34 s")
    assert standing(watcher) == "1 of 8 ranks silent."
    for _ in range(500):
        if plot(watcher, "Live step time").figure["data"][1]["x"][-1] > before:
            break
        await asyncio.sleep(0.02)
    assert plot(watcher, "Live step time").figure["data"][1]["x"][-1] > before


async def test_a_frozen_page_stays_until_it_follows_again(watcher: User, job: LiveJob) -> None:
    await watcher.open(PAGE)
    await watcher.should_see("Live step time")
    chooser(watcher, "follow").value = False
    await watcher.should_see("Frozen at")
    job.go(1, until=time.time() + 3, left=range(8))
    await asyncio.sleep(2.5)
    assert standing(watcher) == "Live: 8 ranks reporting."
    chooser(watcher, "follow").value = True
    await watcher.should_see("The job has ended: all ranks disconnected.")


async def test_nothing_is_sent_for_what_did_not_change(watcher: User) -> None:
    await watcher.open(PAGE)
    await watcher.should_see("Live step time")
    drawn = plot(watcher, "Live step time")
    figure = drawn.figure
    await asyncio.sleep(2.2)
    assert drawn.figure is figure


async def test_plots_that_show_one_figure_share_its_json(watcher: User) -> None:
    await watcher.open(PAGE)
    await watcher.should_see("Live step time")
    first = plot(watcher, "Live step time")
    with first.parent_slot.parent:  # as another page would
        second = PlotElement(first.figure)
    assert first.props["options"] is second.props["options"]
    sent = json.loads(nicegui.json.dumps(first.props["options"]))
    assert sent["data"][1]["x"] == list(first.figure["data"][1]["x"])
    assert sent["layout"]["meta"].keys() <= set(LINKED)


async def test_more_nodes_than_tabs_share_one(tmp_path: Path) -> None:
    LiveJob(tmp_path, nodes=17).go(3)
    with Store.open([tmp_path], memory=True) as store:
        async with simulated(Workspace(store, [tmp_path])) as user:
            for _ in range(100):
                if store.live_runs():
                    break
                await asyncio.sleep(0.05)
            await user.open(PAGE)
            await user.should_see("17 nodes")
            chooser(user, "node").value = 16
            await user.should_see("Live ranks of node 16")


async def test_names_that_mean_harm_stay_text(tmp_path: Path) -> None:
    run = f"run/{HOSTILE}"
    LiveJob(tmp_path, run=run, host=HOSTILE).go(3)
    with Store.open([tmp_path], memory=True) as store:
        workspace = Workspace(store, [tmp_path])
        store.ingest()
        for tab in ("overview", "node:1"):
            state, _ = parse_live([("tab", tab)])
            snapshot = live_run_snapshot(workspace, run, state)
            for part in parts_of(snapshot):
                drawn = part.draw(snapshot, False)
                assert isinstance(drawn, list) or "<script" not in str(drawn["data"])


@pytest.fixture
async def live_client(live_workspace: Workspace) -> AsyncIterator[httpx.AsyncClient]:
    live_workspace.store.ingest()
    application = FastAPI(title="sfapp", version="1", docs_url=None, redoc_url=None)
    api.build(application, live_workspace)
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def test_the_twin_holds_what_the_page_shows(live_client: httpx.AsyncClient) -> None:
    (run,) = (await live_client.get("/live.json")).json()["runs"]
    assert (run["run_id"], run["is_running"], run["ranks"]) == (LIVE, True, 8)
    found = (await live_client.get(f"{PAGE}.json", params={"span": 60})).json()
    assert (found["state"], found["summary"]) == ("live", "Live: 8 ranks reporting.")
    assert set(found["steps"]["worst_rank"]) == {6}
    assert found["steps"]["rank_skew"][-1] == pytest.approx(0.29, abs=0.02)
    assert [node["worst_rank"] for node in found["nodes"]] == [0, 6]
    assert found["newest_window"]["window"] == 1
    assert found["aggregator"]["malformed"] == 2
    assert found["ranks"][2]["lost_steps"] == 3


@pytest.mark.parametrize(
    ("path", "status"),
    [(f"{PAGE}.json?span=7", 400), (f"{PAGE}.json?until=5", 404), ("/live/absent.json", 404)],
)
async def test_a_query_without_an_answer_shows_an_error(
    live_client: httpx.AsyncClient, path: str, status: int
) -> None:
    answer = await live_client.get(path)
    assert answer.status_code == status
    assert answer.json()["error"]


# ---- the verdict on the last steps ----------------------------------------------------------------


def stream_rows(root: Path, duration: Ints, **how: Any) -> LiveRows:
    """Leave the newest rows of all ranks as an aggregator does."""
    how = {"world_size": 8, "at_ns": time.time_ns(), "run_id": LIVE} | how
    found = live_rows(duration, **how)
    write_newest_steps(newest_steps_path(root, LIVE), found)
    return found


def eight_ranks(seed: int = 0, late: int | None = None, since: int = 0) -> Ints:
    extra: dict[tuple[str, int | str], int] = {} if late is None else {(DATA, late): 20 * MS}
    return ddp_job(ranks=8, steps=30, seed=seed, extra=extra, since=since)


async def test_the_headline_names_the_rank_that_holds_the_job_and_follows_the_rows(
    watcher: User, tmp_path: Path
) -> None:
    stream_rows(tmp_path, eight_ranks())
    await watcher.open(PAGE)
    await watcher.should_see("Healthy: no rank holds the job over the last 20 steps")
    stream_rows(tmp_path, eight_ranks(late=5, since=24), first_step=130)
    await watcher.should_see("Rank 5 holds the job in data")
    await watcher.should_see("in 6 of the last 20 steps")
    await watcher.should_see("Rank 5 on node-1, since step 154")
    ahead_ns = time.time_ns() + 60 * 10**9  # A busy machine may take seconds until the page is looked at.
    stream_rows(tmp_path, eight_ranks(late=5), first_step=160, at_ns=ahead_ns)
    chooser(watcher, "steps").value = 10
    await watcher.should_see("in 10 of the last 10 steps")
    assert standing(watcher) == "Live: 8 ranks reporting."


async def test_tiles_show_late_ranks_and_ranks_that_do_not_report(watcher: User, tmp_path: Path) -> None:
    stream_rows(tmp_path, eight_ranks(late=5), without=[7], silent={3: 30.0}, left=[0])
    await watcher.open(PAGE)
    await watcher.should_see("Incomplete data: rank 7 has never reported")
    await watcher.should_see("Of the other ranks: Rank 5 holds the job in data")
    await watcher.should_see("Live ranks")
    for _ in range(250):  # the tiles follow the headline within a second
        tiles = plot(watcher, "Live ranks").figure
        if "rank 5 is furthest behind" in tiles["layout"]["meta"]["alt"]:
            break
        await asyncio.sleep(0.02)
    marks = {trace["name"] for trace in tiles["data"] if trace["type"] == "scatter"}
    assert marks == {"never reported", "silent", "disconnected"}
    assert "rank 7" in str(tiles["layout"]["annotations"])
    assert "data +2" in str(tiles["data"][0]["hovertext"])
    assert plot(watcher, "Live stages").figure["data"]


async def test_the_twin_has_the_rolling_verdict_over_the_steps_asked_for(
    live_client: httpx.AsyncClient, tmp_path: Path
) -> None:
    found = (await live_client.get(f"{PAGE}.json")).json()
    assert found["rolling"] is None
    rows = stream_rows(tmp_path, eight_ranks(late=5))
    found = (await live_client.get(f"{PAGE}.json", params={"steps": 12})).json()["rolling"]
    verdict = rolling_verdict(rows, 12)
    assert (found["kind"], found["steps"], found["last_step"]) == ("late", 12, 129)
    assert found["summary"] == rolling_words(verdict).headline
    assert found["finding"]["ranks"] == [5]
    assert found["finding"]["effect_ns"] == pytest.approx(20 * MS, abs=MS)
    assert found["behind_ns"]["5"] == pytest.approx(20 * MS, abs=2 * MS)
    assert found["roll_call"]["absent"] == []
    assert (await live_client.get(f"{PAGE}.json", params={"steps": 4})).status_code == 400


def test_rows_are_judged_once_for_all_pages(tmp_path: Path, live_workspace: Workspace) -> None:
    stream_rows(tmp_path, eight_ranks())
    first = live_workspace.rolling(LIVE, 20)
    assert first is not None
    assert live_workspace.rolling(LIVE, 20) is first
    stream_rows(tmp_path, eight_ranks(late=5), first_step=130)
    second = live_workspace.rolling(LIVE, 20)
    assert second is not None
    assert second.history.step_N.tolist() == list(range(100, 160))
    assert [(onset.ranks, onset.is_exact) for onset in second.history.onsets] == [((5,), False)]


def test_a_damaged_file_leaves_the_last_verdict(tmp_path: Path, live_workspace: Workspace) -> None:
    stream_rows(tmp_path, eight_ranks())
    first = live_workspace.rolling(LIVE, 20)
    newest_steps_path(tmp_path, LIVE).write_bytes(b"\x93not a file of ours")
    assert live_workspace.rolling(LIVE, 20) is first


def test_pages_of_one_view_share_what_is_read(live_workspace: Workspace) -> None:
    live_workspace.store.ingest()
    state, _ = parse_live([])
    first = live_run_snapshot(live_workspace, LIVE, state)
    snapshots = SharedSnapshots(live_workspace)
    shared = snapshots.newest(LIVE, state, first)
    assert snapshots.newest(LIVE, state, first) is shared
    other, _ = parse_live([("tab", "node:1")])
    assert snapshots.newest(LIVE, other, first).state == other
    runs = live_workspace.streaming.newest()
    assert [run["run_id"] for run in runs] == [LIVE]
    assert live_workspace.streaming.newest() is runs


def test_plots_of_a_history_are_drawn_once(live_workspace: Workspace) -> None:
    live_workspace.store.ingest()
    state, _ = parse_live([("tab", "node:1")])
    first = live_run_snapshot(live_workspace, LIVE, state)
    later = live_run_snapshot(live_workspace, LIVE, state, before=first)
    shared = [part for part in parts_of(later) if part.shows_history]
    assert "live_node_cpu_percent" in {part.name for part in shared}
    for part in shared:
        assert part.content(later, False) is part.content(first, False)
        assert part.content(later, True) is not part.content(first, False)


def test_a_link_restores_what_was_looked_at() -> None:
    asked = [("tab", "node:1"), ("span", "60"), ("until", "1700000000"), ("steps", "40")]
    state, notices = parse_live(asked)
    assert notices == []
    assert state.href("a/b") == "/live/a%2Fb?tab=node:1&span=60&until=1700000000&steps=40"
    _, notices = parse_live([("tab", "<b>"), ("span", "7"), ("colour", "red"), ("steps", "65")])
    assert len(notices) == 4


def test_what_was_over_time_is_looked_at_again_once_a_point_has_passed(
    live_workspace: Workspace, job: LiveJob
) -> None:
    live_workspace.store.ingest()
    state, _ = parse_live([("tab", "node:1")])
    first = live_run_snapshot(live_workspace, LIVE, state)
    # given a second more, right after it was read
    job.go(1, until=first.at.timestamp() + 1, silent={5: 34.0})
    live_workspace.store.follow()
    second = live_run_snapshot(live_workspace, LIVE, state, before=first)
    assert second.history is first.history
    assert second.silent_s[5] > 30
    assert (
        live_run_snapshot(live_workspace, LIVE, parse_live([])[0], before=second).history is not first.history
    )
    # when it was read two seconds ago (300 s have points of 1.25 s), then what came last is there
    third = live_run_snapshot(live_workspace, LIVE, state, before=read_earlier(second, 2))
    assert third.times.step_N[-1] == job.step
    # and as long as nothing follows it is not read again
    assert live_run_snapshot(live_workspace, LIVE, state, before=read_earlier(third, 60)).times is third.times


def read_earlier(snapshot: LiveRunSnapshot, seconds: float) -> LiveRunSnapshot:
    read_at = snapshot.history.read_at - timedelta(seconds=seconds)
    return replace(snapshot, history=replace(snapshot.history, read_at=read_at))


def test_a_refresh_takes_less_than_a_tenth_of_a_second(tmp_path: Path) -> None:
    LiveJob(tmp_path, nodes=16).go(120)
    with Store.open([tmp_path], memory=True) as store:
        workspace = Workspace(store, [tmp_path])
        store.follow()
        took = []
        for _ in range(5):
            for tab in ("overview", "node:3"):
                began = time.process_time()
                snapshot = live_run_snapshot(workspace, LIVE, parse_live([("tab", tab)])[0])
                for part in parts_of(snapshot):
                    part.draw(snapshot, False)
                took.append(time.process_time() - began)
        assert sorted(took)[len(took) // 2] < 0.1
