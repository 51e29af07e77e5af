"""Comparing in the app: what the page says, choosing sides, links to it, its twin, new packets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement
from nicegui.testing import User

import sfapp
from sfapp.accounting import compare
from sfapp.app import api
from sfapp.app.pages import compare as compare_page
from sfapp.app.pages.compare import load_comparison
from sfapp.model import Gates
from sfapp.model.sides import CompareState, SideKey, parse_compare
from sfapp.model.view import ViewState
from sfapp.service.workspace import Workspace
from tests.app.page_elements import chooser, href, one, plot
from tests.app.recorded_job import RUN, job_window, put
from tests.builders import CALLBACKS, MS, ddp_job, window_of

ABA = "/compare?a=job/1&b=job/2&c=job/0"
"""Healthy, a callback on rank 3, healthy."""


@pytest.fixture
async def client(workspace: Workspace) -> AsyncIterator[httpx.AsyncClient]:
    application = FastAPI()
    api.build(application, workspace)
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


def test_a_comparison_is_its_address() -> None:
    state = CompareState(
        a=SideKey("train/7", 3),
        b=SideKey("x/3"),
        view=ViewState(gates=Gates(tau_c=0.9), frontier="step", group="node:1"),
    )
    assert state.query == "a=train/7/3&b=x/3/&tau_c=0.9&frontier=step&group=node:1"
    assert parse_compare(state.query) == (state, [])


def test_a_bad_address_is_answered_in_words() -> None:
    state, notices = parse_compare("a=/&b=job&tab=rules&tau_c=many&colour=red")
    assert state == CompareState(b=SideKey("job"))
    assert any("a must be RUN or RUN/WINDOW" in line for line in notices)
    assert any("'tab' belongs to a window's page" in line for line in notices)
    assert any("tau_c must be a number" in line for line in notices)
    assert any("'colour' is not an option" in line for line in notices)


async def test_an_a_b_a_comparison_shows_the_stage_the_rank_and_the_recovery(user: User) -> None:
    await user.open(ABA)
    await user.should_see("per step slower than A, all of it in callbacks")
    await user.should_see("C recovers")
    await user.should_see("slowest in callbacks in 40 of 40 steps; in A no rank is.")
    await user.should_see("Per-step shares point to backward")


async def test_each_side_can_be_opened_as_it_is_judged_here(user: User) -> None:
    await user.open("/compare?a=job&b=job/2&gamma_a=0.9")
    await user.should_see("Open B · window 2")
    links = {
        element.text: element.props["href"]
        for element in user.find(kind=TextElement, content="Open ").elements
    }
    assert links == {"Open A · all windows": "/runs/job", "Open B · window 2": "/w/job/2?gamma_a=0.9"}


async def test_the_stages_add_up_as_printed(user: User) -> None:
    await user.open(ABA)
    await user.should_see("Stages")
    rows = one(user, ui.table, "stages").rows
    for column in ("A_ns_text", "B_ns_text", "delta_ns_text", "back_ns_text"):
        *parts, total = (round(float(row[column].replace("−", "-").replace("±", "")) * 100) for row in rows)
        assert sum(parts) == total, column


async def test_the_plots_are_drawn_and_the_spread_only_where_there_is_one(user: User) -> None:
    await user.open(ABA)
    await user.should_see("Change by stage")
    drawn = plot(user, "Change by stage").figure
    assert drawn["layout"]["xaxis"]["ticktext"][1] == "callbacks"
    await user.should_not_see("Spread between windows")
    await user.open("/compare?a=job&b=job/2")
    await user.should_see("Spread between windows")


async def test_without_sides_the_page_asks_for_them(user: User) -> None:
    await user.open("/compare")
    await user.should_see("Choose what to compare")
    # When a run is chosen for A, and for B with a window
    chooser(user, "run-a").value = RUN
    await user.should_see("all windows")
    chooser(user, "run-b").value = RUN
    await user.should_see("B is as fast as A")
    chooser(user, "window-b").value = 2
    # Then they are compared
    await user.should_see("per step slower than A")


async def test_a_third_side_comes_and_goes(user: User) -> None:
    await user.open("/compare?a=job/1&b=job/2")
    await user.should_not_see("recovers")
    chooser(user, "run-c").value = RUN
    await user.should_see("C recovers")
    chooser(user, "run-c").value = ""
    await user.should_not_see("C recovers")


async def test_sides_can_be_swapped(user: User) -> None:
    await user.open("/compare?a=job/1&b=job/2")
    await user.should_see("slower than A")
    user.find(marker="swap").click()
    await user.should_see("faster than A")
    assert chooser(user, "window-a").value == 2
    assert href(user, "json") == "/compare.json?a=job/2&b=job/1"


async def test_a_comparison_that_was_asked_for_earlier_is_not_shown(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a page whose comparison takes time
    loading, resume = threading.Event(), threading.Event()

    def load_slowly(workspace: Workspace, state: CompareState) -> compare_page.ComparisonResult:
        found = load_comparison(workspace, state)
        if state.c is not None:
            loading.set()
            resume.wait(20)
        return found

    await user.open("/compare?a=job/1&b=job/2")
    await user.should_see("slower than A")
    monkeypatch.setattr(compare_page, "load_comparison", load_slowly)
    chooser(user, "run-c").value = RUN
    assert await asyncio.to_thread(loading.wait, 20)
    # When another one is asked for before it is there
    chooser(user, "run-c").value = ""
    chooser(user, "window-b").value = 1
    await user.should_see("B is as fast as A")
    resume.set()
    # Then it stays
    await asyncio.sleep(0.3)
    await user.should_see("B is as fast as A")
    await user.should_not_see("C recovers")


async def test_what_cannot_be_compared_is_explained_with_the_choosers_at_hand(user: User) -> None:
    await user.open("/compare?a=job/1&b=job/77")
    await user.should_see("These cannot be compared")
    await user.should_see("run 'job' has no window 77")
    chooser(user, "window-b").value = 2
    await user.should_see("slower than A")


async def test_gates_of_the_address_hold_until_the_defaults_are_asked_for(user: User) -> None:
    await user.open("/compare?a=job/1&b=job/2&tau_c=0.3&step=3")
    await user.should_see("'step' belongs to a window's page")
    await user.should_see("Judged with tau_c=0.3")
    await user.should_see("Shares and labels")
    routed = [row for row in one(user, ui.table, "sides").rows if row["what"] == "routing set"]
    assert routed[0]["B"] == "callbacks"
    user.find(marker="defaults").click()
    await user.should_not_see("Judged with")


async def test_a_window_leads_to_its_comparison_with_the_window_its_verdict_names(
    user: User, workspace: Workspace
) -> None:
    healthy = workspace.run(RUN).reference_window
    await user.open("/w/job/2?gamma_a=0.9&tab=rules")
    assert href(user, "compare") == f"/compare?a=job/{healthy}&b=job/2&gamma_a=0.9"
    # and the healthy window itself with the one before it
    await user.open(f"/w/job/{healthy}")
    assert href(user, "compare") == f"/compare?a=job/{healthy - 1}&b=job/{healthy}"
    await user.open("/runs/job")
    assert href(user, "compare") == "/compare?a=job"


async def test_a_run_that_grows_is_compared_anew(
    watching_user: User, own_workspace: Workspace, packets: Path
) -> None:
    await watching_user.open("/compare?a=job/1&b=job")
    await watching_user.should_see("200 steps in 5 windows")
    put(packets, job_window(5, {(CALLBACKS, 3): 60 * MS}))
    await watching_user.should_see("240 steps in 6 windows")


async def test_the_twin_is_the_comparison_of_the_stored_diagnoses(
    client: httpx.AsyncClient, workspace: Workspace
) -> None:
    found = (await client.get(f"{ABA.replace('?', '.json?')}")).json()
    stored = [workspace.store.diagnosis(RUN, number) for number in (1, 2, 0)]
    assert found == msgspec.json.decode(msgspec.json.encode(compare(*stored).document()))
    assert found["changes"]["a_to_b"]["carry_over"]["stages_ns"][CALLBACKS] > 50 * MS
    whole = (await client.get("/compare.json?a=job&b=job/2")).json()
    assert [window["window"] for window in whole["a"]["windows"]] == [0, 1, 2, 3, 4]


async def test_the_twin_judges_under_its_query(client: httpx.AsyncClient, workspace: Workspace) -> None:
    query = "a=job/1&b=job&group=node:0&frontier=carry_over&gamma_a=0.9"
    found = (await client.get(f"/compare.json?{query}")).json()
    expected = [
        sfapp.diagnose(
            workspace.store.window(RUN, number),
            Gates(gamma_a=0.9),
            "cohort_median",
            workspace.store.window(RUN, workspace.run(RUN).reference_window),
            frontier="carry_over",
            group="node:0",
        )
        for number in range(5)
    ]
    document = compare(expected[1], expected).document()
    assert found == msgspec.json.decode(msgspec.json.encode(document))


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("", 400, "name two sides"),
        ("a=job/1&b=job/77", 404, "it has 5, from 0 to 4"),
        ("a=job/1&b=absent", 404, "no run 'absent'"),
        ("a=/&b=job", 400, "a must be RUN or RUN/WINDOW"),
        ("a=job/1&b=job/2&tab=rules", 400, "belongs to a window's page"),
        ("a=job/1&b=job/2&group=role:x", 404, "role:x"),
    ],
)
async def test_what_cannot_be_answered_is_explained(
    client: httpx.AsyncClient, query: str, status: int, message: str
) -> None:
    response = await client.get(f"/compare.json?{query}")
    assert response.status_code == status
    assert message in response.json()["error"]


async def test_other_stages_are_refused_with_what_differs(
    watching_user: User, own_workspace: Workspace, packets: Path
) -> None:
    put(packets, window_of(ddp_job()[:5], run_id="five", window=0))
    await watching_user.open("/compare?a=job/1&b=five/0")
    await watching_user.should_see("only the first has 'step.other_cpu_wall'")


async def test_a_click_on_a_window_of_the_spread_opens_it(user: User) -> None:
    await user.open("/compare?a=job&b=job/2")
    await user.should_see("Spread between windows")
    traces = plot(user, "Spread between windows").figure["data"]
    clicked = [trace["customdata"] for trace in traces if "customdata" in trace]
    assert clicked[0][3] == [RUN, 3]
