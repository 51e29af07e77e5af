"""The page of windows, a run's history and the refused files."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from nicegui import ui
from nicegui.testing import User

from sfapp.service.workspace import Workspace
from sfapp.store import Store, WindowQuery
from tests.app.page_elements import chooser, fire, href, one, plot
from tests.app.recorded_job import RUN, job_window, put
from tests.app.simulation import simulated


async def test_the_first_page_shows_whether_anything_is_slow(user: User) -> None:
    await user.open("/windows")
    await user.should_see("3 of 5 windows need attention")
    await user.should_see("by chance in a healthy run: at most 0.05 of 5")
    await user.should_see("1 run")
    await user.should_see("1 file refused")


async def test_the_timeline_names_the_responsible_rank(user: User) -> None:
    await user.open("/windows")
    await user.should_see("mean exposed step, split by stage")
    figure = plot(user, "Windows").figure
    words = " ".join(str(note.get("text")) for note in figure["layout"]["annotations"])
    assert "callbacks · rank 3 · persistent" in words


async def test_a_window_opens_from_the_timeline(user: User) -> None:
    await user.open("/windows")
    await user.should_see("mean exposed step, split by stage")
    fire(user, plot(user, "Windows"), "plotly_click", {"x": 2, "y": 1, "customdata": [RUN, 2]})
    await user.should_see("callbacks on rank 3")


async def test_the_list_is_filtered_and_the_links_follow(user: User) -> None:
    await user.open("/windows")
    one(user, ui.input, "search").value = "rank & more"
    chooser(user, "label").value = "co_critical"
    chooser(user, "loud").value = True
    assert href(user, "csv") == "/windows.csv?label=co_critical&text=rank%20%26%20more&needs_attention=true"


async def test_one_run_can_be_picked(user: User) -> None:
    await user.open("/windows")
    chooser(user, "run").value = RUN
    await user.should_see("Run history")
    assert href(user, "run-history") == "/runs/job"


async def test_a_link_restores_the_list(user: User) -> None:
    await user.open("/windows?run=job&text=node-1&min_severity=0.05&label=nonsense&colour=red")
    assert one(user, ui.input, "search").value == "node-1"
    assert chooser(user, "loud").value is True
    await user.should_see("there is no label 'nonsense'")
    await user.should_see("'colour' is not an option")


async def test_an_unknown_run_is_reported(user: User) -> None:
    await user.open("/windows?run=no-such-run")
    await user.should_see("Run not found")


async def test_new_windows_appear_by_themselves(watching_user: User, packets: Path) -> None:
    user = watching_user
    await user.open("/windows")
    await user.should_see("3 of 5 windows need attention")
    put(packets, job_window(5, {}))
    await user.should_see("Window 5 of job arrived")
    await user.should_see("3 of 6 windows need attention")


async def test_a_run_picked_while_new_windows_are_read_stays_picked(
    watching_user: User, own_workspace: Workspace, packets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a page of all runs that reads what has arrived
    user, timeline = watching_user, own_workspace.timeline
    put(packets, job_window(0, {}, run_id="other"))
    await user.open("/windows")
    await user.should_see("2 runs")
    reading, resume = threading.Event(), threading.Event()

    def read_slowly(query: WindowQuery, latest: int | None = None) -> list[dict[str, Any]]:
        rows = timeline(query, latest)
        if query.run is None:
            reading.set()
            resume.wait(20)
        return rows

    monkeypatch.setattr(own_workspace, "timeline", read_slowly)
    put(packets, job_window(5, {}))
    assert await asyncio.to_thread(reading.wait, 20)
    # When a run is picked before the result is there
    chooser(user, "run").value = "other"
    await user.should_see("All healthy: 1 window")
    resume.set()
    # Then the windows of all runs are not shown as those of the picked one
    await asyncio.sleep(0.3)
    await user.should_see("All healthy: 1 window")


async def test_a_run_has_its_history(user: User) -> None:
    await user.open("/runs/job")
    await user.should_see("Run history")
    await user.should_see("5 windows · 8 ranks · 2 nodes")


async def test_another_window_can_be_called_healthy(watching_user: User, own_workspace: Workspace) -> None:
    user = watching_user
    await user.open("/runs/job")
    await user.should_see("Run history")
    assert chooser(user, "healthy").value == -1
    chooser(user, "healthy").value = 4
    for _ in range(100):
        if own_workspace.run(RUN).reference_window == 4:
            break
        await asyncio.sleep(0.02)
    assert own_workspace.run(RUN).reference_chosen


async def test_an_unknown_run_has_no_history(watching_user: User) -> None:
    response = await watching_user.http_client.get("/runs/absent")
    assert response.status_code == 404
    assert "No run &" in response.text or "No run 'absent'" in response.text


async def test_refused_files_are_listed_with_their_reason(user: User) -> None:
    await user.open("/quarantine")
    await user.should_see("1 refused file")
    (table,) = user.find(kind=ui.table).elements
    (row,) = table.rows
    assert row["name"].endswith("00000099.parquet")
    assert "Parquet" in row["reason"]


async def test_an_address_that_is_no_page_leads_back(user: User) -> None:
    response = await user.http_client.get("/nothing/here")
    assert response.status_code == 404


async def test_an_empty_folder_explains_how_to_record(tmp_path: Path) -> None:
    with Store.open([tmp_path], memory=True) as store:
        async with simulated(Workspace(store, [tmp_path])) as user:
            await user.open("/windows")
            await user.should_see("No packets yet")
            await user.should_see("sfapp.Recorder")
            await user.should_see(str(tmp_path))


async def test_a_brushed_stretch_of_the_timeline_is_what_is_listed(user: User) -> None:
    # Given a user who brushes from the second window to the fourth
    await user.open("/windows")
    await user.should_see("mean exposed step, split by stage")
    timeline = plot(user, "Windows")
    fire(user, timeline, "plotly_selected", [0.7, 3.2])
    # Then table, links and timeline keep to it
    await user.should_see("Windows job/1 to 3")
    assert href(user, "csv") == "/windows.csv?first=job/1&last=job/3"
    # When the brush is released
    user.find(marker="brushed").click()
    assert href(user, "csv") == "/windows.csv"


async def test_a_link_restores_the_brush(user: User) -> None:
    await user.open("/windows?first=job/2&last=nonsense")
    await user.should_see("Windows job/2 to …")
    await user.should_see("last must be RUN/WINDOW")
    await user.should_see("mean exposed step, split by stage")
    shapes = plot(user, "Windows").figure["layout"]["shapes"]
    assert [(shape["x0"], shape["x1"]) for shape in shapes if shape.get("name") == "brushed"] == [(1.5, 4.5)]


async def test_order_filters_and_axis_are_in_the_link_and_in_the_timeline(
    user: User, workspace: Workspace
) -> None:
    await user.open("/windows?needs_attention=true&sort=severity:asc&axis=sorted")
    await user.should_see("mean exposed step, split by stage")
    bars = plot(user, "Windows").figure["data"][0]
    query = WindowQuery(needs_attention=True, sort=(("severity", "asc"),))
    numbers = [row["window"] for row in workspace.windows(query).rows]
    assert len(numbers) == 3
    assert [window for _, window in bars["customdata"]] == numbers
    assert href(user, "csv") == "/windows.csv?needs_attention=true&sort=severity:asc"
    grid = one(user, ui.aggrid, "grid")
    (column,) = [each for each in grid.options["columnDefs"] if "initialSort" in each]
    assert (column["colId"], column["initialSort"]) == ("severity", "asc")


async def test_windows_are_shown_by_time(user: User) -> None:
    await user.open("/windows?axis=time")
    await user.should_see("over time (UTC)")
    figure = plot(user, "Windows").figure
    assert figure["layout"]["xaxis"]["type"] == "date"
    assert [window for _, window in figure["data"][0]["customdata"]] == [0, 1, 2, 3, 4]
    chooser(user, "axis").value = "window"
    await user.should_see("drag across windows to list only those")


async def test_an_order_that_does_not_exist_is_reported(user: User) -> None:
    await user.open("/windows?sort=nothing:asc&axis=sideways")
    await user.should_see("cannot sort by 'nothing:asc'")
    await user.should_see("there is no axis 'sideways'")
