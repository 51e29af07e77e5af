"""Edits of notes and incidents that wait, as for a bucket or a log that another process keeps locked."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from nicegui import ui
from nicegui.testing import User

from sfapp.service.workspace import Workspace
from tests.app.page_elements import one
from tests.app.recorded_job import SICK
from tests.app.second_editor import second_editor

NOTICED_S = 0.2
"""Seconds in which the page takes what was clicked and typed."""


@pytest.fixture
def incident(own_workspace: Workspace) -> str:
    """The id of an incident without evidence."""
    return second_editor(own_workspace.incident_log).open_incident("Slow callback")


@contextmanager
def locked_log(workspace: Workspace) -> Iterator[None]:
    with workspace.incident_log.path.open() as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        yield


async def test_a_field_that_is_left_while_it_is_being_saved_is_written_once(
    watching_user: User, own_workspace: Workspace, incident: str
) -> None:
    user = watching_user
    await user.open(f"/incident/{incident}")
    await user.should_see(marker="title")
    with locked_log(own_workspace):
        one(user, ui.input, "title").value = "Slow disk"
        user.find(marker="title").trigger("keydown.enter")
        user.find(marker="title").trigger("blur")
        await asyncio.sleep(NOTICED_S)
    await user.should_see("Title changed")
    assert len(own_workspace.incident_log.state().history(incident)) == 2
    user.find(marker="undo-edit").click()
    await user.should_see("Undone: Title changed")
    assert own_workspace.incident_log.state().incident(incident).title == "Slow callback"


async def test_a_note_is_added_once_and_words_for_the_next_one_stay(
    watching_user: User, own_workspace: Workspace, incident: str
) -> None:
    user = watching_user
    await user.open(f"/incident/{incident}")
    await user.should_see(marker="free-note")
    with locked_log(own_workspace):
        one(user, ui.input, "free-note").value = "It began at night."
        user.find(marker="free-note").trigger("keydown.enter")
        user.find(marker="add-free-note").click()
        await asyncio.sleep(NOTICED_S)
        one(user, ui.input, "free-note").value = "It ended by itself."
    await user.should_see("Note added")
    assert [note.text for note in own_workspace.incident_log.state().notes] == ["It began at night."]
    assert one(user, ui.input, "free-note").value == "It ended by itself."


async def test_an_incident_is_begun_once_by_a_double_click(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    second_editor(own_workspace.incident_log).write_note("So that there is a log.")
    await user.open(SICK)
    await user.should_see(marker="add-window")
    user.find(marker="add-window").click()
    await user.should_see(marker="add-to-incident")
    with locked_log(own_workspace):
        user.find(marker="add-to-incident").click()
        user.find(marker="add-to-incident").click()
        await asyncio.sleep(NOTICED_S)
    await user.should_see("Window 2 added")
    (found,) = own_workspace.incident_log.state().incidents
    assert len(found.items) == 1
