"""The app's gateway: what it caches, and that its verdicts are those of ``diagnose_runs``."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from nicegui import ui
from nicegui.testing import User

from sfapp.accounting import diagnose_runs
from sfapp.app.prometheus import Metrics
from sfapp.app.store_status import status_text
from sfapp.errors import WindowError, WindowNotFoundError
from sfapp.model import Diagnosis, Gates, RankIdentity, RankTable
from sfapp.model.view import ViewState, WindowKey
from sfapp.notebook import Packets
from sfapp.service import workspace as workspace_module
from sfapp.service.memory_cache import MemoryCache
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.app.page_elements import chooser
from tests.app.recorded_job import RUN, job_window, put
from tests.app.simulation import simulated, until_read
from tests.builders import BACKWARD, OPTIMIZER, lasting_fault

SICK = WindowKey(RUN, 2)


def test_a_cache_drops_the_least_recently_used_item() -> None:
    cache: MemoryCache[str] = MemoryCache(budget=6, size_of=len)
    cache.put("a", "xxx")
    cache.put("b", "yyy")
    assert cache.get("a") == "xxx"
    cache.put("c", "zzz")
    assert cache.get("b") is None
    assert cache.get("a") == "xxx"


def test_a_cache_keeps_one_value_however_large() -> None:
    cache: MemoryCache[str] = MemoryCache(budget=2, size_of=len)
    cache.put("a", "xxxxx")
    assert cache.get("a") == "xxxxx"
    cache.put("a", "y")
    cache.put("b", "z")
    assert cache.get("a") == "y"


@pytest.mark.parametrize(
    "view",
    [
        ViewState(),
        ViewState(gates=Gates(gamma_a=0.9, model_fit="declared"), frontier="step"),
        ViewState(baseline="rank_median"),
        ViewState(baseline="reference"),
        ViewState(group="node:0"),
        ViewState(group="node:1", baseline="reference", frontier="step"),
        ViewState(reference=WindowKey(RUN, 4), baseline="reference"),
    ],
)
def test_a_view_is_judged_as_all_windows_together_are(workspace: Workspace, view: ViewState) -> None:
    windows = [workspace.store.window(RUN, number) for number in range(5)]
    reference = None if view.reference is None else (view.reference.run_id, view.reference.window)
    expected = diagnose_runs(
        windows, view.gates, view.baseline, frontier=view.frontier, group=view.group, reference=reference
    )[2]
    found = workspace.judge(workspace.source(SICK), view).diagnosis
    assert without_medians(found) == without_medians(expected)


def test_moving_a_gate_never_touches_the_matrix(workspace: Workspace) -> None:
    judged = workspace.judge(workspace.source(SICK), ViewState())
    moved = ViewState().with_gate("gamma_a", 0.9)
    again = workspace.rejudge(judged, moved)
    assert again.measures is judged.measures
    assert again.diagnosis == workspace.judge(workspace.source(SICK), moved).diagnosis


def test_the_same_measures_serve_every_page(workspace: Workspace) -> None:
    first = workspace.judge(workspace.source(SICK), ViewState())
    second = workspace.judge(workspace.source(SICK), ViewState(frontier="step"))
    assert second.measures is first.measures
    assert second.window is first.window


def test_a_missing_item_is_reported(workspace: Workspace) -> None:
    with pytest.raises(WindowNotFoundError, match="it has 5, from 0 to 4"):
        workspace.source(WindowKey(RUN, 9))
    with pytest.raises(WindowNotFoundError, match="no group"):
        workspace.judge(workspace.source(SICK), ViewState(group="role:x"))
    assert workspace.has(SICK)
    assert not workspace.has(WindowKey("absent", 0))


def test_a_baseline_needs_a_healthy_window(tmp_path: Path) -> None:
    put(tmp_path, job_window(0, {}, run_id="alone"))
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [tmp_path])
        source = workspace.source(WindowKey("alone", 0))
        with pytest.raises(WindowError, match="no healthy window"):
            workspace.judge(source, ViewState(baseline="reference"))


async def test_nodes_too_many_for_tabs_share_one(tmp_path: Path) -> None:
    # Given a job on 20 nodes, where no more than 16 get a tab each
    window = job_window(0, {})
    table = RankTable.of([RankIdentity(rank, 0, rank, f"host-{rank}") for rank in range(20)])
    wide = replace(
        window,
        manifest=replace(window.manifest, world_size=20),
        duration_SNR=np.tile(window.duration_SNR, (1, 1, 3))[:, :, :20],
        wall_NR=np.tile(window.wall_NR, (1, 3))[:, :20],
        ranks=table,
    )
    put(tmp_path, wide)
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        async with simulated(Workspace(store, [tmp_path])) as user:
            await user.open("/w/job/0?tab=node:7")
            await user.should_see("20 nodes")
            await user.should_not_see("Node 3")
            await user.should_see("Ranks of node 7")
            # When another is chosen, then its ranks are shown
            chooser(user, "node").value = 13
            await user.should_see("Ranks of node 13")
            # And back at the first one, its chooser says so
            user.find(marker="undo").click()
            await user.should_see("Ranks of node 7")
            assert chooser(user, "node").value == 7


@pytest.mark.parametrize(("address", "opened"), [("/w/job/2", "Likely cause"), ("/runs/job", "Run history")])
async def test_a_link_followed_during_ingest_opens_once_its_packets_are_read(
    packets: Path, monkeypatch: pytest.MonkeyPatch, address: str, opened: str
) -> None:
    # Given packets that take their time to be read
    may_read = threading.Event()
    with Store.open([packets], memory=True) as store:
        ingest = store.ingest
        monkeypatch.setattr(store, "ingest", lambda **asked: may_read.wait(20) and ingest(**asked))
        async with simulated(Workspace(store, [packets])) as user:
            # When a link to one of their windows is followed, then it is not reported as missing
            await user.open(address)
            await user.should_see("Packets are still being read")
            # And once they are read, the page is there
            may_read.set()
            await user.should_see(opened)
            assert (await user.http_client.get("/w/job/77")).status_code == 404


async def test_an_ingest_can_be_stopped_and_reports_it(packets: Path) -> None:
    with Store.open([packets], memory=True) as store:
        workspace = Workspace(store, [packets])
        workspace.cancel_ingest()
        async with simulated(workspace) as user:
            await user.open("/")
            await user.should_see("Reading cancelled")


async def test_a_page_that_cannot_be_built_shows_why(packets: Path) -> None:
    store = Store.open([packets], memory=True)
    async with simulated(Workspace(store, [packets])) as user:
        store.close()
        answer = await user.http_client.get("/windows")
        assert answer.status_code == 500
        assert "The store has been closed." in answer.text


@pytest.mark.parametrize(
    "diagnosis",
    [
        "'{}'",
        "regexp_replace(diagnosis, '\"ranks\":[0-9]+', '\"ranks\":1000000000000000000000000000000')",
        'regexp_replace(diagnosis, \'"run_id":"job"\', \'"run_id":"other"\')',
        'regexp_replace(diagnosis, \'"shares":{"\', \'"shares":{"other.\')',
    ],
)
async def test_a_damaged_store_is_built_again_while_it_is_served(packets: Path, diagnosis: str) -> None:
    with Store.open([packets]) as store:
        store.ingest()
        path = store.path
    assert path is not None
    with duckdb.connect(path) as database:  # as another program could
        database.execute(f"UPDATE windows SET diagnosis = {diagnosis}")
    with Store.open([packets]) as store:
        workspace = Workspace(store, [packets])
        async with simulated(workspace) as user:
            while not path.with_name("store.duckdb.unreadable").exists() or workspace.status().kind != "live":
                await asyncio.sleep(0.02)
            await user.open("/")
            await user.should_see("callbacks")
            assert workspace.problems()


async def test_an_unexpected_error_is_reported_and_leaves_packets_followed(
    packets: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workspace_module, "RETRY_SECONDS", 0.2)
    with Store.open([packets], memory=True) as store:
        workspace, is_fixed = Workspace(store, [packets]), threading.Event()
        follow = store.follow

        def failing() -> int:
            if not is_fixed.is_set():
                raise KeyError("stage")
            return follow()

        monkeypatch.setattr(store, "follow", failing)
        async with simulated(workspace):
            # Given an error that building the store again does not fix
            while len(caplog.records) < 2:
                await asyncio.sleep(0.02)
            while (status := workspace.status()).kind != "failed":
                await asyncio.sleep(0.02)
            assert status.message == "'stage'"
            # When it no longer occurs, then the next packet is read
            is_fixed.set()
            put(packets, job_window(5, {}))
            while workspace.run(RUN).windows < 6 or workspace.status().kind != "live":
                await asyncio.sleep(0.05)
    assert "is tried again" in caplog.text
    assert "in failing" in caplog.text


async def test_a_folder_that_is_gone_is_reported_until_it_is_back(
    own_workspace: Workspace, watching_user: User
) -> None:
    (folder,) = own_workspace.folders
    away = folder.with_name("away")
    folder.rename(away)
    while own_workspace.status().kind != "failed":  # Then /healthz answers 503.
        await asyncio.sleep(0.05)
    await watching_user.open("/")
    await watching_user.should_see(f"Not watching: {folder} is not there")
    assert own_workspace.run(RUN).windows == 5  # What was read stays.
    away.rename(folder)
    while own_workspace.status().kind != "live":
        await asyncio.sleep(0.05)


async def test_one_of_two_folders_that_is_gone_leaves_the_other_watched(
    packets: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with Store.open([packets, other], memory=True) as store:
        workspace = Workspace(store, [packets, other])
        async with simulated(workspace):
            await until_read(workspace)
            assert "sfapp_store_up 1.0" in Metrics(workspace).text().decode()
            other.rmdir()
            while not (status := workspace.status()).message:
                await asyncio.sleep(0.05)
            assert (status.kind, status.message) == ("live", f"{other} is not there")
            assert status_text(status) == f"Not watching: {other} is not there"
            assert "sfapp_store_up 0.0" in Metrics(workspace).text().decode()


async def test_a_hint_greets_newcomers_until_dismissed(workspace: Workspace) -> None:
    async with simulated(workspace) as user:
        await user.open("/w/job/2")
        await user.should_see("New here?")
        user.find(kind=ui.element, marker="got-it").click()
        await user.should_not_see("New here?")
        user.http_client.cookies.set("sfapp-seen", "1")
        await user.open("/w/job/2")
        await user.should_not_see("New here?")


@pytest.mark.parametrize(
    "view",
    [
        ViewState(),
        ViewState(frontier="carry_over"),
        ViewState(gates=Gates(wait_slope=2.0)),
        ViewState(gates=Gates(wait_slope=0.2)),
        ViewState(group="node:0"),
        ViewState(baseline="reference"),
        ViewState(reference=WindowKey("run", 4)),
    ],
)
def test_every_surface_gives_the_same_verdict_on_a_window_of_a_run(tmp_path: Path, view: ViewState) -> None:
    # Given a fault that lasts: what its later windows say depends on what the earlier ones measured
    windows = lasting_fault(ranks=4)
    for window in windows:
        put(tmp_path, window)
    reference = None if view.reference is None else (view.reference.run_id, view.reference.window)
    expected = diagnose_runs(
        windows, view.gates, view.baseline, frontier=view.frontier, group=view.group, reference=reference
    )
    # When they are judged one by one, in the app and in a notebook
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [tmp_path])
        for window, wanted in zip(windows, expected, strict=True):
            key = WindowKey("run", window.number)
            shown = workspace.judge(workspace.source(key), view)
            opened = Packets(store).window(
                *("run", window.number, view.gates),
                frontier=view.frontier,
                baseline=view.baseline,
                group=view.group,
                reference=reference,
            )
            # Then each says what they say together
            assert without_medians(shown.diagnosis) == without_medians(wanted)
            assert without_medians(opened.diagnosis) == without_medians(wanted)
        # and what each could know by itself depends on the gate
        known = {wanted.waits_from for wanted in expected}
        assert known == {2.0: {"run"}, 0.2: {"window"}}.get(view.gates.wait_slope, {"window", "run"})


def without_medians(diagnosis: Diagnosis) -> Diagnosis:
    """A stored reference comes without the medians that only the baseline 'reference' needs."""
    assert diagnosis.reference is not None
    return replace(diagnosis, reference=replace(diagnosis.reference, stage_median_ns={}))


def test_a_window_that_is_open_follows_what_others_of_its_run_measure(tmp_path: Path) -> None:
    # Given a window of a lasting fault, open before any that measured where ranks wait has come
    windows = lasting_fault(ranks=2)
    put(tmp_path, windows[5])
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [tmp_path])
        source = workspace.source(WindowKey("run", 5))
        before = workspace.judge(source, ViewState()).diagnosis
        # When they come
        for window in windows[:3]:
            put(tmp_path, window)
        store.ingest()
        after = workspace.judge(source, ViewState()).diagnosis
    # Then it is identified by them
    assert (before.waits_from, after.waits_from) == (None, "run")
    assert before.aim is not None
    assert after.aim is not None
    assert (before.aim.stage, after.aim.stage) == (BACKWARD, OPTIMIZER)
