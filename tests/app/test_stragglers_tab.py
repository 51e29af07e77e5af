"""The stragglers tab as its operator works it: from the verdict down to the operator."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nicegui import ui
from nicegui.testing import User

from sfapp.importers import perfetto_export
from sfapp.model.view import ViewState, WindowKey
from sfapp.packets import operators_path
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from sfapp.views.address import incident_page
from tests.app.page_elements import chooser, fire, href, one, plot
from tests.app.profiled import PROFILED, WINDOW, put_profiled
from tests.app.recorded_job import job_window, put
from tests.app.second_editor import second_editor
from tests.app.simulation import simulated, until_read
from tests.builders import DATA, MS, reduced

TAB = f"{WINDOW}?tab=stragglers"
STAGES_ONLY = "/w/job/0?tab=stragglers"


@pytest.fixture(scope="session")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packets of a job that was profiled, and of one that was not. Not to be written to."""
    root = tmp_path_factory.mktemp("profiled")
    put_profiled(root, tmp_path_factory.mktemp("traces"))
    put(root, job_window(0, {(DATA, 2): 60 * MS}))
    return root


@pytest.fixture(scope="session")
def profiled_store(profiled: Path) -> Iterator[Store]:
    with Store.open([profiled], memory=True) as store:
        store.ingest()
        yield store


@pytest.fixture
async def user(profiled: Path, profiled_store: Store) -> AsyncIterator[User]:
    async with simulated(Workspace(profiled_store, [profiled])) as user:
        yield user


async def test_the_operator_that_held_all_up_is_named_and_the_verdict_agrees(user: User) -> None:
    await user.open(TAB)
    await user.should_see("Verdict and operators agree")
    await user.should_see("operator events of 8 ranks")
    rows = one(user, ui.table, "causes").rows
    assert rows[0]["rank"] == 5
    assert "DataLoader" in rows[0]["name"]
    for title in ("Rank similarity", "Abnormality score per rank", "Path from cause to delayed rank"):
        assert plot(user, title)


async def test_operators_are_examined_only_when_the_tab_is_opened(
    profiled: Path, profiled_store: Store
) -> None:
    workspace = Workspace(profiled_store, [profiled])
    async with simulated(workspace) as user:
        await user.open(WINDOW)
        await user.should_see("data on rank 5")
        judged = workspace.judge(workspace.source(WindowKey(PROFILED, 0)), ViewState())
        assert workspace.cached_findings(judged) is None
        await user.open(TAB)
        await user.should_see("Verdict and operators agree")
        assert workspace.cached_findings(judged) is not None


async def test_a_picked_cause_is_in_the_link_and_in_the_plots(user: User) -> None:
    await user.open(f"{TAB}&ranks=1,2")
    await user.should_see("Causes")
    table = one(user, ui.table, "causes")
    other = next(row["cause"] for row in table.rows if row["cause"] != 0)
    fire(user, table, "rowClick", other)
    await user.should_see(marker="causes")
    assert f"cause={other}" in href(user, "perfetto-window")
    assert [row["chosen"] for row in table.rows].index(True) == other
    # And selectors that follow it make no request of their own
    assert "ranks=" not in href(user, "perfetto-window")
    assert "operator=" not in href(user, "perfetto-window")


async def test_two_ranks_are_compared(user: User) -> None:
    await user.open(TAB)
    await user.should_see("Compare ranks")
    assert chooser(user, "suspect").value == 5
    chooser(user, "peer").value = 7
    await user.should_see("Back to the suspect")
    assert "ranks=5,7" in href(user, "perfetto-slice")
    user.find(marker="back-to-suspect").click()
    await user.should_not_see("Back to the suspect")
    assert "ranks=" not in href(user, "perfetto-window")


async def test_an_operator_is_counted_over_time(user: User) -> None:
    await user.open(TAB)
    await user.should_see(marker="operator")
    wanted = next(name for name in chooser(user, "operator").options if "AllReduce" in name)
    chooser(user, "operator").value = wanted
    await user.should_see("Operator")
    assert "operator=" in href(user, "perfetto-window")


async def test_abnormal_events_of_one_rank_are_listed(user: User) -> None:
    await user.open(TAB)
    await user.should_see("Abnormal events")
    chooser(user, "outlier-rank").value = 5
    assert {row["rank"] for row in one(user, ui.table, "outliers").rows} == {5}


async def test_a_cause_that_there_is_not_shows_the_first(user: User) -> None:
    await user.open(f"{TAB}&cause=999&operator=nothing")
    await user.should_see("Verdict and operators agree")


async def test_one_node_is_examined_by_itself(user: User) -> None:
    await user.open(f"{TAB}&group=node:0")
    await user.should_see("operator events of 4 ranks")


async def test_without_operator_events_stages_are_shown_and_labelled(user: User) -> None:
    await user.open(STAGES_ONLY)
    await user.should_see("no operator trace for this window")
    await user.should_see("stage times of ")
    await user.should_see("Based on stages, not on operators")


async def test_an_impossible_comparison_gives_the_reason(tmp_path: Path) -> None:
    put(tmp_path, reduced(job_window(0, {})))
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        async with simulated(Workspace(store, [tmp_path])) as user:
            await user.open(STAGES_ONLY)
            await user.should_see("Nothing to examine: a reduced window")
            await user.should_see("sfapp import kineto")


async def test_a_damaged_file_is_reported_and_the_rest_of_the_page_remains(
    profiled: Path, tmp_path: Path
) -> None:
    root = tmp_path / "packets"
    shutil.copytree(profiled, root)
    path = operators_path(root, PROFILED, 0)
    path.write_bytes(path.read_bytes()[:1000])
    with Store.open([root], memory=True) as store:
        store.ingest()
        async with simulated(Workspace(store, [root])) as user:
            await user.open(TAB)
            await user.should_see("data on rank 5")
            await user.should_see("The operator events of this window cannot be read")
            await user.should_see(path.name)
            await user.should_see("no operator trace for this window")


async def test_events_that_arrive_are_followed(profiled: Path, tmp_path: Path) -> None:
    # Given a window whose operators are not there yet
    root = tmp_path / "packets"
    shutil.copytree(profiled, root)
    path = operators_path(root, PROFILED, 0)
    away = path.rename(tmp_path / path.name)
    with Store.open([root], memory=True) as store:
        workspace = Workspace(store, [root])
        async with simulated(workspace) as user:
            await until_read(workspace)
            await user.open(TAB)
            await user.should_see("no operator trace for this window")
            # When they come, then the open page shows them
            away.rename(path)
            await user.should_see("operator events of 8 ranks")


async def test_a_plot_of_it_is_evidence_in_an_incident(profiled: Path, tmp_path: Path) -> None:
    root = tmp_path / "packets"
    shutil.copytree(profiled, root)
    with Store.open([root], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [root])
        grace = second_editor(workspace.incident_log)
        grace.open_incident("Slow loader")
        (incident,) = workspace.incident_log.state().incidents
        grace.add_plot(incident, WindowKey(PROFILED, 0), "blame_path", "tab=stragglers&cause=1")
        async with simulated(workspace) as user:
            await user.open(incident_page(incident.id))
            await user.should_see(kind=ui.plotly)
            assert "rank 2" in str(plot(user, "Path from cause to delayed rank").figure["layout"]["meta"])


async def test_a_plot_of_it_can_be_noted_on(user: User) -> None:
    await user.open(TAB)
    await user.should_see("Verdict and operators agree")
    user.find(marker="note-blame_path").click()
    await user.should_see("Path from cause to delayed rank")
    assert one(user, ui.element, "note-form").visible


@pytest.mark.parametrize(("tab", "extent"), [(TAB, "events of 8 ranks"), (STAGES_ONLY, "events of 8 ranks")])
async def test_a_window_too_large_for_one_archive_is_not_offered(
    user: User, monkeypatch: pytest.MonkeyPatch, tab: str, extent: str
) -> None:
    monkeypatch.setattr(perfetto_export, "MAX_EVENTS", 100)
    await user.open(tab)
    await user.should_see(extent)
    await user.should_see("is too large for one download")
    await user.should_see(marker="perfetto-slice")
    await user.should_not_see(marker="perfetto-window")
