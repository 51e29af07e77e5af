"""Taking the stacks of a running job from its pages, and their JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from nicegui.elements.mixins.text_element import TextElement
from nicegui.testing import User

from sfapp.model.capture import CaptureRequest, RankCapture
from sfapp.model.stacks import RankStacks, StackFrame, ThreadStack
from sfapp.packets.captures import captures, write_rank_capture
from sfapp.packets.stack_files import encode_stacks, write_file
from sfapp.packets.stack_requests import find_run
from sfapp.service.stacks import request_stacks
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from tests.app.data_client import client_of
from tests.app.page_elements import fire, hidden, one
from tests.app.recorded_job import RUN, job_window, put, put_now
from tests.app.simulation import simulated
from tests.builders import CALLBACKS, MS
from tests.hostile_text import HOSTILE_TEXT


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Workspace]:
    put_now(tmp_path)
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        yield Workspace(store, [tmp_path])


def answer(root: Path, request: CaptureRequest) -> None:
    """Answer as the recorders of all ranks but the last one; the first rank is elsewhere."""
    for rank in request.ranks[:-1]:
        place = (HOSTILE_TEXT, 3) if rank == 0 else ("all_reduce", 9)
        thread = ThreadStack("MainThread", (StackFrame("/job/train.py", *place),), is_training=True)
        stacks = RankStacks(rank=rank, taken_at=datetime.now(UTC), source="interpreter", threads=(thread,))
        write_file(root, request, "stacks", rank, encode_stacks(stacks))
        write_rank_capture(root, request, RankCapture(rank=rank, status="done"))
    last = RankCapture(rank=request.ranks[-1], status="refused", why="the process has ended")
    write_rank_capture(root, request, last)


async def test_stacks_are_taken_shown_and_added_to_an_incident(workspace: Workspace, tmp_path: Path) -> None:
    problem = workspace.problems(RUN)[0]
    async with simulated(workspace) as user:
        await user.open(f"/problems/{problem.id}")
        await user.should_see("Take stacks of all ranks")
        user.find(marker="take-stacks").click()
        await user.should_see("requested; 0 of")
        (state,) = captures(tmp_path, RUN)
        assert (state.request.kind, state.request.reason) == ("stacks", "requested from its page")
        answer(tmp_path, state.request)
        await user.should_see("Rank 0")
        await user.should_see("no stacks: the process has ended")
        assert HOSTILE_TEXT.split()[0] in one_text(user)
        user.find(marker="add-stacks").click()
        await user.should_see("Add these stacks to an incident")
        user.find(marker="add-to-incident").click()
        await user.should_see("These stacks added")
        (incident,) = workspace.incident_log.state().incidents
        (item,) = incident.items
        assert item.note is not None
        assert "in all_reduce (train.py:9)" in item.note.text


async def test_a_job_that_is_over_is_not_asked_by_a_browser_that_sends_clicks_of_hidden_buttons(
    tmp_path: Path,
) -> None:
    put(tmp_path, job_window(0, {(CALLBACKS, 3): 60 * MS}))
    with Store.open([tmp_path], memory=True) as store:
        store.ingest()
        workspace = Workspace(store, [tmp_path])
        async with simulated(workspace) as user:
            await user.open(f"/problems/{workspace.problems(RUN)[0].id}")
            await user.should_see("Mute")
            fire(user, hidden(user, "take-stacks"), "click", {})
            await user.should_see("is not running")
    assert captures(tmp_path, RUN) == []


async def test_the_newest_stacks_are_data_too(workspace: Workspace, tmp_path: Path) -> None:
    async with client_of(workspace) as client:
        assert (await client.get("/stacks/nothing.json")).status_code == 404
        assert (await client.get(f"/stacks/{RUN}.json")).status_code == 404
        request = request_stacks(find_run(tmp_path, RUN)).state.request
        answer(tmp_path, request)
        document = (await client.get(f"/stacks/{RUN}.json?all_threads=true")).json()
    assert [group["ranks"] for group in document["stacks"]] == [[0], list(request.ranks[1:-1])]
    assert document["missing"] == [{"why": "the process has ended", "ranks": [request.ranks[-1]]}]


def one_text(user: User) -> str:
    return str(one(user, TextElement, "stacks-headline").text)
