"""The what-if beside the gates: choose what is made typical, and see what a step would take then."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from nicegui import ui
from nicegui.testing import User

from sfapp.accounting import WhatIf
from sfapp.app.panels import view_model
from sfapp.cli import cli
from sfapp.model import Fix
from sfapp.service.judging import JudgedWindow
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from sfapp.views import format
from tests.app.data_client import client_of
from tests.app.page_elements import chooser, href, one, slider
from tests.app.recorded_job import job_window, put, waiting_window
from tests.builders import DATA, FORWARD, MS, reduced

SLOW = "/w/waiting/2"
"""Rank 3 takes 60 ms longer in data, rank 5 takes 20 ms longer in forward; all wait in backward."""


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packets of a job with waits, of one with many ranks, of one that was reduced, and of one without waits.
    Not to be written to."""
    root = tmp_path_factory.mktemp("waiting")
    for number, extra in enumerate(({}, {}, {(0, 3): 60 * MS, (1, 5): 20 * MS})):
        put(root, waiting_window(number, extra))
    put(root, waiting_window(0, {(0, 77): 60 * MS}, ranks=80, run_id="many"))
    put(root, reduced(job_window(0, {(DATA, 3): 60 * MS}, run_id="reduced")))
    put(root, job_window(0, {(DATA, 3): 60 * MS}, run_id="unmeasured"))
    return root


@pytest.fixture(scope="module")
def waiting_store(waiting: Path) -> Iterator[Store]:
    with Store.open([waiting], memory=True) as store:
        store.ingest()
        yield store


@pytest.fixture
def workspace(waiting: Path, waiting_store: Store) -> Workspace:
    """The app's gateway to these jobs, in the place of the recorded one."""
    return Workspace(waiting_store, [waiting])


def analyzed(waiting: Path, run: str, *options: str) -> dict[str, Any]:
    """What ``sfapp analyze`` says of the last window of a run."""
    arguments = ["analyze", str(waiting / run), "--json", *options]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    document: dict[str, Any] = json.loads(result.stdout)["windows"][-1]["what_if"]
    return document


def shown(user: User, marker: str) -> str:
    (element,) = user.find(marker=marker).elements
    return str(element.text).replace("\N{NO-BREAK SPACE}", " ")


async def test_the_saving_of_the_likely_cause_is_read_without_choosing(user: User, waiting: Path) -> None:
    await user.open(SLOW)
    await user.should_see("data on rank 3")
    await user.should_see(marker="what-if-fix", content="Make rank 3 typical in data")
    # Then its numbers are those that the command prints for the same window
    found = analyzed(waiting, "waiting", "--what-if")
    before, after = format.duration(found["step_ns"]), format.duration(found["predicted_ns"])
    assert shown(user, "what-if").startswith(f"{before} → {after} per step (±")
    hours = 168 * 8 * (1 - found["predicted_ns"] / found["step_ns"])
    assert f"{hours:,.0f} rank-hours a week on 8 ranks" in shown(user, "what-if-worth")
    assert "fix=" not in href(user, "json")


@pytest.mark.parametrize(
    ("stage", "ranks", "asked", "sentence"),
    [
        (FORWARD, "5", f"{FORWARD}@5", "Make rank 5 typical in forward"),
        (DATA, "all", DATA, "Make every rank typical in data"),
        ("", "3", "@3", "Make rank 3 typical in every stage"),
        ("", "node:0", "@node:0", "Make host node-0 typical in every stage"),
        ("", "all", "@all", "Make every rank typical in every stage"),
    ],
)
async def test_every_choice_gives_the_commands_text(
    user: User, waiting: Path, stage: str, ranks: str, asked: str, sentence: str
) -> None:
    await user.open(SLOW)
    chooser(user, "what-if-stage").value = stage
    chooser(user, "what-if-ranks").value = ranks
    await user.should_see(marker="what-if-fix", content=sentence)
    found = analyzed(waiting, "waiting", "--what-if", asked)
    after = format.duration(found["predicted_ns"])
    assert f"→ {after} per step" in shown(user, "what-if")
    assert href(user, "json") == f"{SLOW}.json?fix={asked}"


async def test_a_choice_is_reset_undone_and_restored_by_its_link(user: User) -> None:
    await user.open(f"{SLOW}?fix={FORWARD}@5")
    await user.should_see("Make rank 5 typical in forward")
    assert chooser(user, "what-if-stage").value == FORWARD
    user.find(marker="what-if-reset").click()
    await user.should_see("Make rank 3 typical in data")
    assert chooser(user, "what-if-ranks").value == "3"
    assert "fix=" not in href(user, "json")
    user.find(marker="undo").click()
    await user.should_see("Make rank 5 typical in forward")
    # The likely cause, chosen by hand, is the default too
    chooser(user, "what-if-stage").value = DATA
    chooser(user, "what-if-ranks").value = "3"
    assert "fix=" not in href(user, "json")


async def test_a_link_to_a_missing_item_reports_it(user: User) -> None:
    await user.open(f"{SLOW}?fix=@77")
    await user.should_see("This window has no rank 77; the what-if is about the likely cause.")
    await user.should_see("Make rank 3 typical in data")


async def test_a_gate_that_moves_leaves_the_prediction(user: User) -> None:
    await user.open(SLOW)
    await user.should_see("Make rank 3 typical in data")
    before = shown(user, "what-if")
    slider(user, "tau_c").value = 0.5
    assert shown(user, "what-if") == before


async def test_without_waits_the_range_is_shown_with_the_reason(user: User, waiting: Path) -> None:
    await user.open("/w/unmeasured/0")
    await user.should_see("Make rank 3 typical in data")
    await user.should_see("No replay: the packet holds no waits within stages.")
    await user.should_see("Recorder.watch_waits(model) records them.")
    found = analyzed(waiting, "unmeasured", "--what-if")
    assert found["predicted_ns"] is None
    least, most = (format.duration(found[name]) for name in ("least_ns", "most_ns"))
    before = format.duration(found["step_ns"])
    assert shown(user, "what-if") == f"{before} → {least.removesuffix(' ms')}–{most} per step"


async def test_a_reduced_window_gives_the_reason_for_no_prediction(user: User) -> None:
    await user.open("/w/reduced/0")
    await user.should_see("No replay: the frontier covers all ranks, but only a few ranks' rows were kept")
    assert not one_visible(user, "what-if")


def one_visible(user: User, marker: str) -> bool:
    """Whether the element with a mark is seen."""
    try:
        return bool(user.find(marker=marker).elements)
    except AssertionError:
        return False


async def test_a_rank_outside_the_judged_group_has_nothing_to_predict(user: User) -> None:
    await user.open(f"{SLOW}?fix=@3")
    await user.should_see("Make rank 3 typical in every stage")
    chooser(user, "group").value = "node:1"
    await user.should_see("Nothing to predict for rank 3")
    # The group's own likely cause has a prediction
    user.find(marker="what-if-reset").click()
    await user.should_see("Make every rank typical in backward")


async def test_of_many_ranks_any_can_be_typed(user: User) -> None:
    await user.open("/w/many/0")
    await user.should_see("Make rank 77 typical in data")
    # Given a list that names the suspect, and not all of 80 ranks
    offered = chooser(user, "what-if-ranks").options
    assert "77" in offered
    assert "12" not in offered
    one_number(user).value = 12
    await user.should_see("Make rank 12 typical in data")
    assert chooser(user, "what-if-ranks").value == "12"
    one_number(user).value = 99
    await user.should_see("This window has no rank 99")


def one_number(user: User) -> Any:
    return one(user, ui.number, "what-if-rank")


async def test_a_result_that_comes_after_another_choice_is_not_shown(
    user: User, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a page of a window so large that it is replayed on a thread
    predict = workspace.what_if
    asked = {rank: threading.Event() for rank in (6, 7)}
    resume = {rank: threading.Event() for rank in (6, 7)}

    def predict_slowly(judged: JudgedWindow, fix: Fix) -> WhatIf:
        assert fix.rank is not None
        asked[fix.rank].set()
        resume[fix.rank].wait(20)
        return predict(judged, fix)

    await user.open(SLOW)
    await user.should_see("Make rank 3 typical in data")
    monkeypatch.setattr(workspace, "what_if", predict_slowly)
    monkeypatch.setattr(view_model, "LARGE", 1)
    chooser(user, "what-if-ranks").value = "6"
    assert await asyncio.to_thread(asked[6].wait, 20)
    # When another choice is made before its result is there
    chooser(user, "what-if-ranks").value = "7"
    resume[6].set()
    assert await asyncio.to_thread(asked[7].wait, 20)
    # Then the first result is not shown, and the second one is
    assert shown(user, "what-if-fix") == "Predicting…"
    resume[7].set()
    await user.should_see("Make rank 7 typical in data")


@pytest.fixture
async def client(workspace: Workspace) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(workspace) as client:
        yield client


async def test_the_twin_of_the_page_has_the_chosen_what_if(client: httpx.AsyncClient, waiting: Path) -> None:
    expected = analyzed(waiting, "waiting", "--what-if", f"{FORWARD}@5")
    assert (await client.get(f"{SLOW}.json?fix={FORWARD}@5")).json()["what_if"] == expected
    assert "what_if" not in (await client.get(f"{SLOW}.json")).json()


@pytest.mark.parametrize(
    ("query", "fix"),
    [
        ("", (DATA, 3, None)),
        (f"?fix={DATA}", (DATA, None, None)),
        (f"?fix={DATA}&rank=1", (DATA, 1, None)),
        ("?rank=1", (None, 1, None)),
        ("?fix=@node:1&tau_c=0.5", (None, None, 1)),
    ],
)
async def test_the_what_if_as_data_takes_every_choice(
    client: httpx.AsyncClient, query: str, fix: tuple[Any, ...]
) -> None:
    found = (await client.get(f"{SLOW}/what-if.json{query}")).json()["what_if"]
    assert (found["stage"], found["rank"], found["node"]) == fix
    assert found["predicted_ns"] is not None


@pytest.mark.parametrize(("query", "status"), [("fix=nothing", 404), ("fix=@77", 404), ("fix=", 400)])
async def test_a_what_if_of_nothing_is_refused(client: httpx.AsyncClient, query: str, status: int) -> None:
    assert (await client.get(f"{SLOW}/what-if.json?{query}")).status_code == status
