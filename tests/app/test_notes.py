"""Notes on a window: pinned, marked in the plots, edited by several people at once, undone."""

from __future__ import annotations

from nicegui import ui
from nicegui.testing import User
from page_elements import one, plot
from recorded_job import RUN

from sfapp.app.workspace import Workspace
from sfapp.model.incidents import Note, Pin
from sfapp.model.view import WindowKey

KEY = WindowKey(RUN, 2)
SICK = "/w/job/2"


async def write(user: User, words: str) -> None:
    """Write a note from the open page, pinned to what is looked at."""
    user.find(marker="write-note").click()
    await user.should_see(marker="new-note")
    one(user, ui.textarea, "new-note").value = words
    user.find(marker="add-note").click()
    await user.should_see("note added")


def notes(workspace: Workspace) -> tuple[Note, ...]:
    return workspace.incidents.book().notes_on(KEY)


async def test_a_note_is_pinned_to_the_step_that_is_looked_at(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    # Given somebody who looks into step 85 and picks rank 3 out
    await user.open(f"{SICK}?tab=frontier&step=85&ranks=3")
    await user.should_see("Step by step")
    # When they write a note
    await write(user, "It begins here.")
    # Then it is pinned to both, for good
    (note,) = notes(own_workspace)
    assert note.text == "It begins here."
    assert note.pin == Pin(window=KEY, step=85, rank=3)
    assert note.written.by == "anonymous"
    # And it shows in the plot at once, and on its tab
    shapes = plot(user, "Step by step").figure["layout"]["shapes"]
    assert [shape["x0"] for shape in shapes if shape["name"] == "note"] == [85]
    await user.should_see("Notes 1")
    user.find(kind=ui.tab, content="Notes 1").click()
    await user.should_see("step 85 · rank 3")
    await user.should_see("It begins here.")
