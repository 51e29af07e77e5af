"""All runs on one page: the host that is late in too many of them, lost time, and states."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from nicegui import ui
from nicegui.testing import User

from sfapp.cli.fleet import fleet
from sfapp.model import Window
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.app.data_client import client_of
from tests.app.page_elements import one
from tests.app.recorded_job import HOSTILE, Fault, job_window, put
from tests.app.simulation import simulated
from tests.builders import CALLBACKS, DATA, MS

BAD = "bad-host"
RUNS = 12


def on_hosts(window: Window, *hosts: str) -> Window:
    """The window with its two nodes on these hosts."""
    names = tuple(hosts[node] for node in window.ranks.node_rank)
    return replace(window, ranks=replace(window.ranks, hostname=names))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve runs in which a rank of one host is late, each with another second host, and a healthy one."""
    folder = tmp_path_factory.mktemp("fleet")
    for number in range(RUNS):
        run_id = f"run-{number}" if number else HOSTILE
        faults: tuple[Fault, ...] = ({}, {(CALLBACKS, 3): 60 * MS})
        for window, fault in enumerate(faults):
            put(folder, on_hosts(job_window(window, fault, run_id), BAD, f"host-{number}"))
    put(folder, on_hosts(job_window(0, {}, "healthy"), BAD, "host-1"))
    put(folder, on_hosts(job_window(0, {(DATA, 5): 60 * MS}, "past"), "host-2", "host-3"))
    put(folder, on_hosts(job_window(1, {}, "past"), "host-2", "host-3"))
    return folder


@pytest.fixture(scope="module")
def store(root: Path) -> Iterator[Store]:
    with Store.open([root], memory=True) as found:
        found.ingest()
        yield found


@pytest.fixture
async def user(root: Path, store: Store) -> AsyncIterator[User]:
    async with simulated(Workspace(store, [root])) as found:
        yield found


async def test_the_bad_host_is_the_first_sentence_with_what_to_do(user: User) -> None:
    await user.open("/fleet")
    await user.should_see("bad-host has the late rank in more runs than expected by chance")
    await user.should_see(
        f"Of {RUNS} runs on several hosts with a late rank, {RUNS} have it on this host; by chance 6.0 would"
    )
    await user.should_see(
        "Take bad-host out of the pool and test it: its ranks are late in callbacks in "
        f"{RUNS} of {RUNS} runs."
    )
    await user.should_see(HOSTILE[:20])


async def test_a_search_leaves_the_hosts_and_runs_that_match(user: User) -> None:
    await user.open("/fleet?text=host-3")
    await user.should_see("past")
    await user.should_not_see("run-7")
    one(user, ui.input, "search").set_value("run-7")
    await user.should_see("run-7")
    await user.should_not_see("past")


async def test_json_holds_the_same_as_the_command(root: Path, store: Store) -> None:
    async with client_of(Workspace(store, [root])) as client:
        found = (await client.get("/fleet.json")).json()
        searched = (await client.get("/fleet.json?text=past")).json()
    assert found["suspects"] == [BAD]
    assert found["hosts"][0]["expected_runs"] == RUNS / 2
    assert {run["run_id"]: run["state"] for run in found["runs"]}["past"] == "past"
    assert [run["state"] for run in found["runs"]] == ["ongoing"] * RUNS + ["past", "healthy"]
    assert [run["run_id"] for run in searched["runs"]] == ["past"]
    printed = CliRunner().invoke(fleet, [str(root), "--json"])
    assert printed.exit_code == 0, printed.output
    assert json.loads(printed.output) == found


def test_lost_time_is_that_of_the_runs_and_of_the_stages(store: Store, root: Path) -> None:
    found = Workspace(store, [root]).fleet()
    for name in ("above_healthy", "imbalance"):
        by_stage = sum(getattr(lost, name) for lost in found.lost)
        assert by_stage == pytest.approx(sum(getattr(run, name) for run in found.runs))
    assert found.lost[0].stage == CALLBACKS
    # 60 ms late in 40 steps of each run, on 8 ranks
    assert found.lost[0].imbalance == pytest.approx(RUNS * 0.060 * 40 * 8 / 3600, rel=0.1)


def test_the_command_names_the_host_and_the_runs(root: Path) -> None:
    printed = CliRunner().invoke(fleet, [str(root)])
    assert printed.exit_code == 0, printed.output
    assert printed.output.startswith("bad-host has the late rank in more runs")
    assert "needs attention" in printed.output
    searched = CliRunner().invoke(fleet, [str(root), "--text", "past"])
    assert "run-7" not in searched.output
