"""The built-in examples: windows like any other, apart from the operator's own."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from nicegui import ui
from nicegui.testing import User

from sfapp.app import api
from sfapp.model.examples import DISPLACED, EXAMPLES, HIDDEN
from sfapp.service.workspace import Workspace
from sfapp.store import Store, WindowQuery
from sfapp.views.worked_examples import LESSONS
from tests.app.page_elements import href, one, plot, slider
from tests.app.recorded_job import put
from tests.app.simulation import simulated

PAGE = f"/w/{DISPLACED.run_id}/0"


@pytest.mark.parametrize("run_id", EXAMPLES)
async def test_every_example_is_a_window_page_with_its_lesson(user: User, run_id: str) -> None:
    await user.open(f"/w/{run_id}/0")
    await user.should_see(LESSONS[run_id].title)
    await user.should_see("Healthy" if run_id == HIDDEN.run_id else "Likely cause")
    if EXAMPLES[run_id].source:
        await user.should_see("paper's frontier")


async def test_controls_and_plots_work_on_an_example_as_on_any_window(user: User) -> None:
    # Given the paper's first figure
    await user.open(PAGE)
    await user.should_see("Critical-path time by stage")
    figure = plot(user, "Critical-path time by stage").figure
    assert "8.20 s" in str(figure["data"]) + str(figure["layout"])
    # When dominance is asked of more than any stage has
    slider(user, "gamma_a").value = 0.99
    # Then no stage is named, and the lesson is still there
    await user.should_see("no stage label.")
    assert one(user, ui.element, "lesson").props["open"]


async def test_declared_waiting_is_one_click_away(user: User) -> None:
    await user.open(PAGE)
    found = [
        element.props["href"]
        for element in user.find(kind=ui.element, content="the verdict once waiting is declared").elements
    ]
    assert found == [f"{PAGE}?model_fit=on"]
    await user.open(found[0])
    await user.should_see("waits for other ranks")


async def test_examples_are_linked_from_the_glossary_and_the_help(user: User) -> None:
    await user.open("/glossary")
    for run_id in EXAMPLES:
        links = user.find(kind=ui.element, marker=run_id).elements
        assert {link.props["href"] for link in links} == {f"/w/{run_id}/0"}
        assert len(links) == 2


async def test_an_empty_folder_offers_the_examples(tmp_path: Path) -> None:
    with Store.open([tmp_path], memory=True) as store:
        async with simulated(Workspace(store, [tmp_path])) as user:
            await user.open("/")
            await user.should_see("Or open a worked example")


async def test_examples_are_not_among_the_operators_runs(user: User, workspace: Workspace) -> None:
    await user.open(PAGE)
    assert not set(EXAMPLES) & {run.run_id for run in workspace.store.runs()}
    assert not set(EXAMPLES) & {row["run_id"] for row in workspace.timeline(WindowQuery())}
    await user.open("/windows")
    await user.should_see("3 of 5 windows need attention")
    await user.should_see("1 run")


async def test_the_run_of_an_example_has_its_page_and_its_data(user: User, workspace: Workspace) -> None:
    await user.open(f"/runs/{DISPLACED.run_id}")
    await user.should_see(f"Run {DISPLACED.run_id}")
    application = FastAPI()
    api.build(application, workspace)
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        found = (await client.get(f"{PAGE}.json")).json()
        listed = (await client.get(f"/index.json?run={DISPLACED.run_id}")).json()
        every = (await client.get("/index.json")).json()
    assert found["exposed_makespan_ns"] == 8_200_000_000
    assert [row["window"] for row in listed["windows"]] == [0]
    assert DISPLACED.run_id not in {row["run_id"] for row in every["windows"]}


async def test_an_operator_s_run_of_the_same_name_is_shown_instead(packets: Path) -> None:
    # Given a job that was recorded under an example's name
    put(packets, DISPLACED.window())
    with Store.open([packets], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [packets])
        # Then it is the operator's, and no lesson stands above it
        assert workspace.example(DISPLACED.run_id) is None
        assert workspace.store_of(DISPLACED.run_id) is store
        async with simulated(workspace) as user:
            await user.open(PAGE)
            await user.should_see("stages or ranks tied")
            await user.should_not_see(marker="lesson", retries=1)


async def test_the_only_window_of_a_run_has_no_strip_of_neighbours(user: User) -> None:
    await user.open(PAGE)
    await user.should_see("Critical-path time by stage")
    titles = {element.figure["layout"]["meta"]["title"] for element in user.find(kind=ui.plotly).elements}
    assert "Windows" not in titles


async def test_the_data_tab_names_the_example_s_packet(user: User) -> None:
    await user.open(f"{PAGE}?tab=data")
    assert href(user, "json") == f"{PAGE}.json?tab=data"
    await user.should_see("Packet")
    listed = str([table.rows for table in user.find(kind=ui.table).elements])
    assert f"{DISPLACED.run_id}/00000000.parquet" in listed
