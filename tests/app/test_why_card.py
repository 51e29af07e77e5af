"""Why that rank, on the pages of a window and of a problem (accounting.md §21)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from nicegui.testing import User
from recorded_job import put

from sfapp.cli.analyze import analyze
from sfapp.service.problems import listed
from sfapp.service.pseudonyms import Pseudonyms
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.accounting.simulated_hosts import host_job
from tests.builders import DATA, MS, ddp_job, window_of


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A healthy window, and one in which rank 3 collects garbage; a run whose rank 3 is late without any
    evidence on its host; a run in which four of 16 ranks, which share a host, are late."""
    root = tmp_path_factory.mktemp("why")
    put(root, host_job(seed=0, run_id="why", window=0))
    put(root, host_job("gc", seed=1, run_id="why", window=1))
    put(root, replace(host_job("blocked", run_id="silent"), side={}))
    extra = {(DATA, rank): 40 * MS for rank in (4, 5, 6, 7)}
    rack = {"rack": ["a"] * 4 + ["b"] * 4 + ["c"] * 8}
    for number in range(2):
        put(root, window_of(ddp_job(ranks=16, extra=extra), attributes=rack, run_id="host", window=number))
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


async def test_the_card_shows_how_much_of_the_delay_the_cause_accounts_for(user: User) -> None:
    await user.open("/w/why/1")
    await user.should_see(marker="reasons", content="Rank 3 is late in data by")
    await user.should_see(marker="reasons", content="garbage collection; no throttling")
    await user.should_see(marker="reasons", content="gc.freeze() after warm-up")


async def test_a_healthy_window_has_no_reasons(user: User) -> None:
    await user.open("/w/why/0")
    await user.should_see("Healthy: no straggler found")
    await user.should_not_see(marker="reasons")


async def test_a_window_without_host_evidence_lists_that_among_its_limitations(user: User) -> None:
    await user.open("/w/silent/0")
    await user.should_not_see(marker="reasons")
    await user.should_see("Why rank 3 is late is not known: no host evidence was recorded.")


async def test_the_page_of_a_problem_has_host_evidence_as_a_source(user: User, workspace: Workspace) -> None:
    (problem,) = (one for one in workspace.problems() if one.run_id == "why")
    await user.open(f"/problems/{problem.id}")
    await user.should_see("Host evidence")
    await user.should_see("garbage collection; no throttling")


async def test_a_problem_shows_what_its_late_ranks_share_on_every_surface(
    user: User, workspace: Workspace, packets: Path
) -> None:
    (problem,) = workspace.problems("host")
    assert problem.shared is not None
    assert {(one.name, one.value, one.late, one.others) for one in problem.shared} == {
        ("host", "node-1", 4, 0),
        ("node", "1", 4, 0),
        ("rack", "b", 4, 0),
    }
    # 1 of C(16, 4) = 1,820 draws, times 7 values that late ranks have: of local ranks four
    assert problem.shared[0].chance == pytest.approx(7 / 1820)
    words = "ate ranks share host node-1 (4 of 4 late ranks, 0 of 12 others, chance 0.4 %)"
    await user.open(f"/problems/{problem.id}")
    await user.should_see(marker="shared", content=f"L{words}")
    assert listed([problem])[0].document()["shared"][0]["chance"] == problem.shared[0].chance
    printed = CliRunner().invoke(analyze, [str(packets / "host")], catch_exceptions=False).stdout
    assert f"  l{words}" in printed
    # A redacted report has the host's pseudonym, and not what the job declared
    redacted = Pseudonyms({"host": "run-1"}, {"node-1": "host-2"}).problem(problem).shared
    assert redacted is not None
    assert [(one.name, one.value) for one in redacted] == [("host", "host-2"), ("node", "1")]
