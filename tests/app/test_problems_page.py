"""Problems first: what is wrong, since when, what it costs, and what users decide about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from fastapi import FastAPI
from nicegui import ui
from nicegui.testing import User

from sfapp.app import api
from sfapp.app.pages import problems
from sfapp.app.panels import problem_actions
from sfapp.cli.analyze import analyze
from sfapp.model import Window
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.app.data_client import client_of
from tests.app.page_elements import chooser, href, one
from tests.app.recorded_job import HOSTILE, RUN, hostile_window, job_window, put
from tests.app.simulation import simulated
from tests.builders import CALLBACKS, MS

LATE = "Rank 3 (node-0) is late in callbacks"


def problem_of(workspace: Workspace, rank: int, run_id: str = RUN) -> str:
    """Return the id of the problem of one late rank."""
    (found,) = [problem.id for problem in workspace.problems(run_id) if problem.ranks == (rank,)]
    return found


def lost_rank() -> Window:
    """A healthy window from which rank 7 is missing."""
    window = job_window(0, {}, run_id="lost")
    keep = [rank != 7 for rank in window.ranks.rank]
    return replace(
        window,
        duration_SNR=window.duration_SNR[:, :, keep],
        wall_NR=window.wall_NR[:, keep],
        ranks=window.ranks.select([place for place, kept in enumerate(keep) if kept]),
        manifest=replace(window.manifest, missing_ranks=(7,), gather_ok=False),
    )


async def test_the_first_page_lists_every_problem_with_its_cost(user: User) -> None:
    await user.open("/")
    await user.should_see("3 problems, 1 not ended when recording stopped")
    await user.should_see(LATE)
    await user.should_see("One rank after the other is late in data")
    await user.should_see("More time in backward than in healthy windows")
    await user.should_see("window 2 of job · began at step 80, 2026-03-01 10:02:00 UTC")
    await user.should_see("by chance in a healthy run: at most 0.05 of 5")
    await user.should_see("1 file refused")


async def test_a_rank_that_never_reported_is_the_first_thing_on_every_surface(tmp_path: Path) -> None:
    put(tmp_path, lost_rank())
    put(tmp_path, job_window(2, {(CALLBACKS, 3): 60 * MS}))
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [tmp_path])
        application = FastAPI()
        api.build(application, workspace)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=application), base_url="http://test"
        ) as client:
            listed = (await client.get("/windows.json?as_text=1&needs_attention=true")).json()["windows"]
            problems = (await client.get("/problems.json")).json()["problems"]
        first = listed[0]["shown"]
        assert (first["aim"], first["level"]) == ("Rank 7 is missing", "alarm")
        assert problems[0]["kind"] == "missing"
        async with simulated(workspace) as user:
            await user.open("/windows")
            await user.should_see("1 of 2 windows needs attention; data are missing in 1")
            # red however long ago it was recorded, unlike the late rank of a run that is over
            await user.open("/")
            await user.should_see("Rank 7 is missing")
            links = sorted(user.find(marker="problem").elements, key=lambda link: link.id)
            rows = [link.parent_slot.parent for link in links if link.parent_slot is not None]
            assert ["problem-ongoing" in row.classes for row in rows] == [True, False]
    shown = CliRunner().invoke(analyze, [str(tmp_path)], color=True).output.splitlines()
    assert shown[shown.index("Rank 7 is missing\x1b[0m") - 1] == "\x1b[31m"
    row = next(line for line in shown if "no straggler found among" in line)
    assert row.startswith("\x1b[31m")
    assert "Rank 7 is missing" in row


async def test_one_click_leads_to_what_to_do(user: User, workspace: Workspace) -> None:
    await user.open("/")
    await user.should_see(LATE)
    links = [
        str(element.props.get("href")) for element in user.find(kind=ui.element, marker="problem").elements
    ]
    page = f"/problems/{problem_of(workspace, 3)}"
    assert page in links
    await user.open(page)
    await user.should_see(f"{LATE}")
    await user.should_see("Began at step 80, 2026-03-01 10:02:00 UTC; ended at step 119")
    await user.should_see("Capture rank 3 for a few steps")
    await user.should_see("Total cost")
    await user.should_see("Window")
    assert href(user, "problem-window") == "/w/job/2"


async def test_a_search_is_kept_in_the_address_and_finds_ranks_and_stages(user: User) -> None:
    await user.open("/?text=rank%203%20callbacks")
    await user.should_see(LATE)
    await user.should_see("1 problem, no longer ongoing")
    one(user, ui.input, "search").value = "backward"
    await user.should_see("1 problem, not ended when recording stopped")
    await user.should_not_see(LATE)


async def test_a_link_to_the_list_of_windows_still_opens_it(user: User) -> None:
    await user.open("/?run=job&needs_attention=true")
    await user.should_see("3 of 5 windows need attention")
    assert chooser(user, "loud").value is True


async def mute(user: User, page: str, length: str, reason: str = "") -> None:
    """Mute a problem on its page for one of the lengths, and return to the list."""
    await user.open(page)
    user.find("mute").click()
    one(user, ui.select, "mute-until").value = length
    one(user, ui.input, "mute-reason").value = reason
    user.find("mute-now").click()
    await user.should_see(f"Muted {problem_actions.MUTES[length][0]}")
    await user.should_see(reason or "muted")
    await user.open("/")
    await user.should_see("1 problem muted or marked as fixed")


async def test_a_muted_problem_leaves_the_list_and_comes_back(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    page = f"/problems/{problem_of(own_workspace, 3)}"
    await mute(user, page, "day", "node is drained")
    await user.should_see("2 problems, 1 not ended when recording stopped")
    await user.open(page)
    user.find("unmute").click()
    await user.should_see("Unmuted")
    await user.open("/")
    await user.should_see("3 problems, 1 not ended when recording stopped")


async def test_an_open_page_shows_that_a_mute_has_ended(
    watching_user: User, own_workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "CLOCK_S", 0.1)
    monkeypatch.setitem(problem_actions.MUTES, "good", ("for some seconds", timedelta(seconds=5)))
    user = watching_user
    await mute(user, f"/problems/{problem_of(own_workspace, 3)}", "good")
    await user.should_see("3 problems, 1 not ended when recording stopped")
    await user.should_not_see(marker="decided")


async def test_what_is_marked_as_fixed_returns_with_a_later_window(
    watching_user: User, own_workspace: Workspace, packets: Path
) -> None:
    user = watching_user
    await user.open(f"/problems/{problem_of(own_workspace, 3)}")
    user.find("fixed").click()
    await user.should_see("Marked as fixed")
    await user.should_see("marked as fixed by anonymous")
    put(packets, job_window(5, {(CALLBACKS, 3): 60 * MS}))
    await user.should_see("returned after being marked as fixed by anonymous")
    await user.open("/")
    await user.should_see("Rank 3 (node-0) is late in callbacks")


async def test_an_edit_of_a_problem_can_be_undone(watching_user: User, own_workspace: Workspace) -> None:
    user = watching_user
    await user.open(f"/problems/{problem_of(own_workspace, 3)}")
    user.find("fixed").click()
    await user.should_see("marked as fixed by anonymous")
    user.find("undo-edit").click()
    await user.should_see("Undone: Marked as fixed")
    await user.should_not_see("marked as fixed by anonymous")


async def test_a_note_on_a_problem_is_pinned_to_its_window_stage_and_rank(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    await user.open(f"/problems/{problem_of(own_workspace, 3)}")
    one(user, ui.textarea, "new-note").value = "its disk is full"
    user.find("add-note").click()
    await user.should_see("Note added")
    await user.should_see("its disk is full")
    (note,) = own_workspace.incident_service.state.notes
    assert note.pin is not None
    assert (note.pin.window.window, note.pin.stage, note.pin.rank) == (2, CALLBACKS, 3)


async def test_a_rank_that_never_reported_comes_first_and_is_not_called_healthy(tmp_path: Path) -> None:
    put(tmp_path, lost_rank())
    put(tmp_path, job_window(0, {}))
    put(tmp_path, job_window(1, {(CALLBACKS, 3): 60 * MS}))
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [tmp_path])
        assert workspace.problems()[0].ranks == (7,)
        async with simulated(workspace) as user:
            await user.open("/")
            await user.should_see("2 problems, all not ended when recording stopped")
            await user.should_see("Rank 7 is missing")


async def test_hostile_names_stay_text(tmp_path: Path) -> None:
    put(tmp_path, replace_number(hostile_window(), 0))
    late = replace_number(hostile_window(), 1)
    slow_SNR = late.duration_SNR.copy()
    slow_SNR[3, :, 3] += 60 * MS
    put(tmp_path, replace(late, duration_SNR=slow_SNR, wall_NR=slow_SNR.sum(axis=0)))
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        async with simulated(Workspace(store, [tmp_path])) as user:
            await user.open("/")
            await user.should_see("1 problem, not ended when recording stopped")
            await user.should_see(HOSTILE[:20])


def replace_number(window: Window, number: int) -> Window:
    """Return a window as another one of its run."""
    steps = window.step_N + 40 * number
    return replace(window, manifest=replace(window.manifest, window=number), step_N=steps)


async def test_the_same_problems_are_data(workspace: Workspace) -> None:
    application = FastAPI()
    api.build(application, workspace)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://app") as client:
        every = (await client.get("/problems.json")).json()["problems"]
        assert len(every) == 3
        alone = (await client.get(f"/problems/{every[0]['id']}.json")).json()
        assert alone == every[0]
        of_run = (await client.get("/problems.json?run=job")).json()["problems"]
        assert of_run == every == (await client.get("/runs/job.json")).json()["problems"]
        gone = await client.get("/problems/ffff.json")
        assert (gone.status_code, "there is no problem 'ffff'" in gone.text) == (404, True)
        assert "/problems/{problem}.json" in (await client.get("/openapi.json")).json()["paths"]


async def test_problems_are_filtered_sorted_and_linked_as_data(user: User) -> None:
    await user.open("/?ongoing=true&sort=newest&axis=time")
    await user.should_see("1 problem, not ended when recording stopped")
    await user.should_see("over time (UTC)")
    assert href(user, "json") == "/problems.json?ongoing=true&sort=newest"
    assert href(user, "csv") == "/problems.csv?ongoing=true&sort=newest"


async def test_problems_as_data_follow_the_same_query(workspace: Workspace) -> None:
    async with client_of(workspace) as client:
        found = (await client.get("/problems.json?ongoing=true")).json()["problems"]
        assert [one["kind"] for one in found] == ["growth"]
        every = (await client.get("/problems.json?sort=oldest&run=job")).json()["problems"]
        assert [one["windows"][0] for one in every] == [2, 3, 4]
        table = (await client.get("/problems.csv?text=callbacks")).text.splitlines()
        assert table[0].startswith("id,run_id,status,title")
        assert len(table) == 2
        assert (await client.get("/problems.json?sort=sideways")).status_code == 400
