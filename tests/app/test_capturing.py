"""Asking a job that runs for a trace of some ranks, from its window's page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nicegui import ui
from nicegui.testing import User

from sfapp.model.capture import RankCapture
from sfapp.packets.captures import captures, write_rank_capture
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.app.page_elements import fire, hidden, href, one
from tests.app.recorded_job import RUN, job_window, put, put_now
from tests.app.simulation import simulated

TAB = f"/w/{RUN}/0?tab=stragglers"


@pytest.fixture
async def user(tmp_path: Path) -> AsyncIterator[User]:
    put_now(tmp_path)
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        async with simulated(Workspace(store, [tmp_path])) as user:
            yield user


async def test_a_capture_is_asked_for_followed_and_found(user: User, tmp_path: Path) -> None:
    # Given a job that runs, when a capture of the suspect and some peers is asked for
    await user.open(TAB)
    await user.should_see("Capture a trace")
    await user.should_see("rank 2")
    for _ in range(100):  # the verdict names the rank before the form does
        if offered := one(user, ui.input, "capture-ranks").value:
            break
        await asyncio.sleep(0.05)
    assert "2" in offered.split(", ")
    assert len(offered.split(", ")) >= 3
    one(user, ui.number, "capture-steps").value = 3
    user.find(marker="capture-start").click()
    await user.should_see("requested")
    # Then the request lies where recorders look, and the page says what they make of it
    (state,) = captures(tmp_path, RUN)
    assert (state.request.steps, ", ".join(map(str, state.request.ranks))) == (3, offered)
    for rank in state.request.ranks:
        write_rank_capture(
            tmp_path, state.request, RankCapture(rank=rank, status="done", steps=3, windows=(4,), events=9)
        )
    await user.should_see("Window 4")
    assert href(user, "captured-window") == f"/w/{RUN}/4?tab=stragglers"


@pytest.mark.parametrize(
    ("ranks", "steps", "message"),
    [
        ("2, x", 5, "ranks to capture must be"),
        ("", 5, "ranks to capture must be"),
        ("2", 99, "ask for 1 to 20"),
    ],
)
async def test_an_impossible_request_is_refused_with_a_reason(
    user: User, tmp_path: Path, ranks: str, steps: int, message: str
) -> None:
    await user.open(TAB)
    await user.should_see("Capture a trace")
    one(user, ui.input, "capture-ranks").value = ranks
    user.find(marker="capture-ranks").trigger("change")  # from now on, no ranks are proposed
    one(user, ui.number, "capture-steps").value = steps
    user.find(marker="capture-start").click()
    await user.should_see(message)
    assert captures(tmp_path, RUN) == []


async def test_a_job_that_is_over_cannot_be_captured(tmp_path: Path) -> None:
    put(tmp_path, job_window(0, {}))
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        async with simulated(Workspace(store, [tmp_path])) as user:
            await user.open(TAB)
            await user.should_see("no operator trace for this window")
            await user.should_not_see("Capture a trace")
            # not even by a browser that sends the clicks of buttons that it does not show
            hidden(user, "capture-ranks").value = "2"
            fire(user, hidden(user, "capture-start"), "click", {})
            await user.should_see("is not running")
            assert captures(tmp_path, RUN) == []
