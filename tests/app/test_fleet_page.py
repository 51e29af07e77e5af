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
from tests.commands import run_sfapp, stopped_while_reading

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


IMAGES = 8
"""Runs with each image."""


def with_image(window: Window, image: str, factor: float) -> Window:
    """The window of a job with an image, whose steps take longer by a factor."""
    durations = (window.duration_SNR * factor).astype(window.duration_SNR.dtype)
    extra = {"image": image, "nested": {"ignored": 1}, "nested_ns": 7}
    return replace(window, duration_SNR=durations, manifest=replace(window.manifest, extra=extra))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen healthy runs, of which half have an image with which steps take a fifth longer."""
    folder = tmp_path_factory.mktemp("images")
    for number in range(2 * IMAGES):
        is_new = number >= IMAGES
        factor = (1.2 if is_new else 1.0) * (1.0 + number % IMAGES / 400.0)
        window = job_window(0, {}, f"run-{number}")
        put(folder, with_image(window, HOSTILE if is_new else "train:1", factor))
    put(folder, job_window(0, {}, "without"))
    return folder


@pytest.fixture(scope="module")
def stored_images(images: Path) -> Iterator[Store]:
    with Store.open([images], memory=True) as found:
        found.ingest()
        yield found


def test_a_command_that_is_stopped_while_it_reads_shows_no_part_of_the_runs(root: Path) -> None:
    with stopped_while_reading():
        result = run_sfapp("fleet", root)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "sfapp: stopped before all packets were read\n"


async def test_a_slower_image_is_named_with_its_interval(images: Path, stored_images: Store) -> None:
    async with simulated(Workspace(stored_images, [images])) as user:
        await user.open("/fleet?by=image")
        await user.should_see(HOSTILE[:20])
        headline = one(user, ui.element, "trends-headline").text
        await user.should_see("slower")
        await user.should_see("1 run without image")
        one(user, ui.select, "trends-by").set_value("day")
        await user.should_see("Each is compared with earlier days")
    assert "healthy steps differ by +20.0 % (+19." in headline


async def test_the_groups_of_runs_are_in_the_document(images: Path, stored_images: Store) -> None:
    async with client_of(Workspace(stored_images, [images])) as client:
        found = (await client.get("/fleet.json?by=image")).json()
        absent = (await client.get("/fleet.json", params={"by": '/~"$'})).json()["trends"]
        refused = await client.get("/fleet.json", params={"by": "x" * 201})
    trends = found["trends"]
    assert (trends["total_groups"], trends["runs"], trends["unstated_runs"]) == (2, 2 * IMAGES + 1, 1)
    assert trends["fields"][0] == "day"
    assert "image" in trends["fields"]
    assert not {"nested", "nested_ns"} & set(trends["fields"])
    steps = {group["value"]: group["step"] for group in trends["groups"]}
    assert steps["train:1"]["verdict"] == "faster"
    slower = next(step for value, step in steps.items() if value != "train:1")
    assert slower["low"] < 0.2 < slower["high"]
    assert (slower["verdict"], slower["runs"], slower["other_runs"]) == ("slower", IMAGES, IMAGES)
    assert (absent["groups"], absent["unstated_runs"]) == ([], 2 * IMAGES + 1)
    assert refused.status_code == 422
    printed = CliRunner().invoke(fleet, [str(images), "--by", "image", "--json"])
    assert json.loads(printed.output) == found


def test_the_command_names_the_slower_image(images: Path) -> None:
    printed = CliRunner().invoke(fleet, [str(images), "--by", "image"])
    assert printed.exit_code == 0, printed.output
    assert "healthy steps differ by +20.0 % (+19." in printed.output
    assert "1 run without image" in printed.output
    assert printed.output.isprintable() or all(line.isprintable() for line in printed.output.splitlines())


def test_only_so_many_values_are_shown_and_the_rest_is_compared_with(
    images: Path, stored_images: Store
) -> None:
    every = stored_images.trends("image", 14)
    few = stored_images.trends("image", 1)
    assert (few.total_values, len({part.value for part in few.parts})) == (2, 2)
    assert sum(part.windows for part in few.parts) == sum(part.windows for part in every.parts)
