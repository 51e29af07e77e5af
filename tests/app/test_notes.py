"""Notes on a window: pinned, marked in the plots, edited by several people at once, undone."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui
from nicegui.testing import User

from sfapp.model.incidents import Note, Pin
from sfapp.model.view import WindowKey, Zoom
from sfapp.service.workspace import Workspace
from tests.app.page_elements import href, one, plot, slider, until
from tests.app.recorded_job import HOSTILE, RUN, SICK
from tests.app.second_editor import second_editor

KEY = WindowKey(RUN, 2)


async def write(user: User, words: str, button: str = "write-note") -> None:
    """Write a note from the open page, pinned to what is looked at."""
    await user.should_see(marker=button)
    user.find(marker=button).click()
    await user.should_see(marker="new-note")
    one(user, ui.textarea, "new-note").value = words
    user.find(marker="add-note").click()
    await user.should_see("Note added")


def notes(workspace: Workspace) -> tuple[Note, ...]:
    return workspace.incident_log.state().notes_on(KEY)


async def test_a_note_is_pinned_to_the_step_that_is_looked_at(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    # Given a user who views step 85 and selects rank 3
    await user.open(f"{SICK}?tab=frontier&step=85&ranks=3")
    await user.should_see("Exposed time per step")
    # When they write a note
    await write(user, "It begins here.")
    # Then it is pinned to both, for good
    (note,) = notes(own_workspace)
    assert note.text == "It begins here."
    assert note.pin == Pin(window=KEY, step=85, rank=3)
    assert note.written.by == "anonymous"
    # And it shows in the plot at once, and on its tab
    shapes = plot(user, "Exposed time per step").figure["layout"]["shapes"]
    assert [shape["x0"] for shape in shapes if shape["name"] == "note"] == [85]
    await user.should_see("Notes 1")
    user.find(kind=ui.tab, content="Notes 1").click()
    await user.should_see("step 85 · rank 3")
    await user.should_see("It begins here.")


async def test_a_note_on_a_plot_is_pinned_to_the_part_that_is_looked_at(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    await user.open(f"{SICK}?tab=ranks&zoom=rank_step_heatmap.x:84.5:90.5")
    await write(user, "Only these steps.", "note-rank_step_heatmap")
    (note,) = notes(own_workspace)
    region = (Zoom("rank_step_heatmap", "x", 84.5, 90.5),)
    assert note.pin == Pin(window=KEY, plot="rank_step_heatmap", region=region)
    marks = plot(user, "Rank × step").figure["layout"]["annotations"]
    assert marks[-1]["text"] == "<b>1</b>"


async def test_what_is_pinned_follows_the_view_until_it_is_set_by_hand(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    await user.open(SICK)
    await user.should_see(marker="write-note")
    user.find(marker="write-note").click()
    assert one(user, ui.number, "pin-step").value is None
    # When the user goes to the first step with the form open, then the note follows
    user.find(marker="next-step").click()
    assert one(user, ui.number, "pin-step").value == 80
    # When they set it, then it stays
    one(user, ui.number, "pin-step").value = 83
    user.find(marker="next-step").click()
    assert one(user, ui.number, "pin-step").value == 83
    # And what the window does not have is refused in words, the note's own words kept
    one(user, ui.number, "pin-step").value = 7
    one(user, ui.textarea, "new-note").value = "Here."
    user.find(marker="add-note").click()
    await user.should_see("This window has no step 7; it has 80–119")
    assert one(user, ui.textarea, "new-note").value == "Here."
    assert notes(own_workspace) == ()


async def test_a_note_leads_to_what_it_is_about(watching_user: User, own_workspace: Workspace) -> None:
    user = watching_user
    region = (Zoom("step_timeline", "x", 84.5, 90.5),)
    pin = Pin(window=KEY, step=85, rank=3, plot="step_timeline", region=region)
    second_editor(own_workspace.incident_log).write_note("It begins here.", pin)
    await user.open(f"{SICK}?tab=notes&gamma_a=0.5")
    await user.should_see(marker="go-to-note")
    user.find(marker="go-to-note").click()
    # The plot's tab, the step, the rank and the zoom; the gates stay as they were
    await user.should_see("Exposed time per step")
    assert slider(user, "gamma_a").value == 0.5
    for part in ("tab=frontier", "step=85", "ranks=3", "zoom=step_timeline.x:84.5:90.5", "gamma_a=0.5"):
        assert part in href(user, "json")


async def test_what_another_process_writes_appears_without_reload(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    await user.open(f"{SICK}?tab=notes")
    await user.should_see("No notes yet")
    second_editor(own_workspace.incident_log).write_note("I see it too.", Pin(window=KEY, step=85))
    await user.should_see("I see it too.")
    await user.should_see("Notes 1")
    await user.should_not_see("No notes yet")


async def test_no_edit_is_overwritten_without_a_warning(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    grace = second_editor(own_workspace.incident_log)
    grace.write_note("Rank 3 waits.", Pin(window=KEY))
    # Given a user who edits Grace's note
    await user.open(f"{SICK}?tab=notes")
    await user.should_see(marker="edit-note")
    user.find(marker="edit-note").click()
    one(user, ui.textarea, "note-words").value = "Rank 3 is slow."
    # While Grace herself changes it
    (note,) = notes(own_workspace)
    grace.edit_note(note, "Rank 3 waits for its disk.")
    await own_workspace.incident_service.current()
    # Then what is being typed stays; saved, both are shown, hers with her name
    assert one(user, ui.textarea, "note-words").value == "Rank 3 is slow."
    user.find(marker="save-note").click()
    await user.should_see("at the same time:")
    await user.should_see("Rank 3 is slow.")
    await user.should_see("Rank 3 waits for its disk.")
    # And hers can be taken, with which the matter is settled
    user.find(marker="take-theirs").click()
    await user.should_not_see("at the same time:")
    (note,) = notes(own_workspace)
    assert (note.text, note.overwritten) == ("Rank 3 waits for its disk.", ())


async def test_words_for_a_note_that_was_removed_meanwhile_are_not_lost(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    grace = second_editor(own_workspace.incident_log)
    grace.write_note("Rank 3 waits.", Pin(window=KEY, rank=3))
    await user.open(f"{SICK}?tab=notes")
    await user.should_see(marker="edit-note")
    user.find(marker="edit-note").click()
    one(user, ui.textarea, "note-words").value = "It is the disk."
    (note,) = notes(own_workspace)
    grace.remove_note(note)
    await own_workspace.incident_service.current()
    user.find(marker="save-note").click()
    await user.should_see("Note changed")
    (note,) = notes(own_workspace)
    assert (note.text, note.pin) == ("It is the disk.", Pin(window=KEY, rank=3))


async def test_a_removed_note_comes_back_and_goes_again(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    second_editor(own_workspace.incident_log).write_note("Rank 3 waits.", Pin(window=KEY))
    await user.open(f"{SICK}?tab=notes")
    await user.should_see("Rank 3 waits.")
    user.find(marker="remove-note").click()
    await user.should_see("Note removed")
    await user.should_not_see("Rank 3 waits.")
    user.find(marker="undo-edit").click()
    await user.should_see("Undone: Note removed")
    await user.should_see("Rank 3 waits.")
    user.find(marker="undo-edit").click()
    await user.should_not_see("Rank 3 waits.")
    assert notes(own_workspace) == ()


async def test_the_history_of_a_note_is_shown_on_demand(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    grace = second_editor(own_workspace.incident_log)
    grace.write_note("First words.", Pin(window=KEY))
    grace.undo(grace.edit_note(notes(own_workspace)[0], "Other words."))
    await user.open(f"{SICK}?tab=notes")
    await user.should_see("First words.")
    await user.should_not_see("Other words.")
    user.find(marker="note-history").click()
    await user.should_see("wrote: Other words. (undone)")


async def test_a_name_is_chosen_once_and_never_trusted(watching_user: User, own_workspace: Workspace) -> None:
    user = watching_user
    await user.open(SICK)
    await user.should_see("Signed as anonymous · choose a name")
    one(user, ui.input, "author-name").value = "  Ada \n Lovelace "
    user.find(marker="use-name").click()
    await user.should_see("Signed as Ada Lovelace")
    await write(user, "Signed.")
    assert notes(own_workspace)[0].written.by == "Ada Lovelace"
    # And what a browser claims is cut, made one line, and shown as it is
    user.http_client.cookies.set("sfapp-name", quote(f"{HOSTILE}\n{'x' * 500}%ff"))
    await user.open(SICK)
    await user.should_see(f"Signed as {HOSTILE[:40]}")
    await write(user, HOSTILE)
    assert len(notes(own_workspace)[1].written.by) == 80
    user.find(kind=ui.tab, content="Notes 2").click()
    await user.should_see(HOSTILE)
    assert user.find(kind=ui.tab, content="Notes 2")
    assert not [element for element in user.client.elements.values() if isinstance(element, ui.html)]


async def test_a_name_can_be_chosen_after_an_edit(watching_user: User, own_workspace: Workspace) -> None:
    user = watching_user
    await user.open(SICK)
    await write(user, "Unsigned.")
    user.find(marker="undo-edit").click()  # which replaces the message
    await user.should_see("Undone: Note added")
    user.find(marker="signature").click()
    await user.should_see(marker="author-name")
    one(user, ui.input, "author-name").value = "Ada"
    user.find(marker="use-name").click()
    await user.should_see("Signed as Ada")
    await write(user, "Signed.")
    await until(lambda: bool(notes(own_workspace)))
    assert notes(own_workspace)[0].written.by == "Ada"


async def test_a_read_only_folder_is_reported(watching_user: User, own_workspace: Workspace) -> None:
    user = watching_user
    own_workspace.incident_log.path.parent.write_text("in the way")
    await user.open(SICK)
    await user.should_see(marker="write-note")
    user.find(marker="write-note").click()
    one(user, ui.textarea, "new-note").value = "Never to be lost."
    user.find(marker="add-note").click()
    await user.should_see("notes need a folder that may be written")
    assert one(user, ui.textarea, "new-note").value == "Never to be lost."


async def test_too_long_a_note_is_refused_in_words(watching_user: User, own_workspace: Workspace) -> None:
    user = watching_user
    await user.open(SICK)
    await user.should_see(marker="write-note")
    user.find(marker="write-note").click()
    one(user, ui.textarea, "new-note").value = "x" * 20_001
    user.find(marker="add-note").click()
    await user.should_see("Expected `str` of length <= 20000")
    assert notes(own_workspace) == ()


async def test_unreadable_notes_are_reported_and_the_window_is_shown(
    watching_user: User, own_workspace: Workspace
) -> None:
    user = watching_user
    own_workspace.incident_log.path.mkdir(parents=True)
    await user.open(f"{SICK}?tab=notes")
    await user.should_see("incidents.jsonl cannot be read")
    await user.should_see("callbacks on rank 3")
