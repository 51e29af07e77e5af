"""Changes of a view are undone one by one, whether by the button or by the browser's Back."""

from __future__ import annotations

from nicegui import ui
from nicegui.testing import User

from sfapp.app.view_history import ViewHistory
from tests.app.page_elements import chooser, href, one
from tests.app.recorded_job import RUN


def test_a_drag_is_one_change_and_other_changes_are_their_own() -> None:
    history: ViewHistory[str] = ViewHistory()
    for before in ("a", "b", "c"):
        history.record(before, "gate")
    history.record("d", "tab")
    history.record("e", "")
    history.record("f", "")
    assert history.depth == 4
    assert [history.undo() for _ in range(5)] == ["f", "e", "d", "a", None]


def test_back_and_forward_keep_the_number_of_changes() -> None:
    history: ViewHistory[str] = ViewHistory()
    history.record("a", "")
    history.record("b", "")
    history.move_to(1, "c")
    assert (history.depth, history.undo()) == (1, "a")
    history.move_to(2, "a")
    assert history.depth == 2


async def test_changes_of_the_list_of_windows_can_be_undone(user: User) -> None:
    await user.open("/windows")
    chooser(user, "label").value = "co_critical"
    chooser(user, "loud").value = True
    assert href(user, "csv") == "/windows.csv?label=co_critical&needs_attention=true"
    user.find(marker="undo").click()
    assert href(user, "csv") == "/windows.csv?label=co_critical"
    assert chooser(user, "loud").value is False
    user.find(marker="undo").click()
    assert href(user, "csv") == "/windows.csv"
    assert chooser(user, "label").value == ""


async def test_changes_of_the_list_of_problems_can_be_undone(user: User) -> None:
    await user.open("/")
    await user.should_see("3 problems, 1 not ended when recording stopped")
    one(user, ui.input, "search").value = "backward"
    await user.should_see("1 problem, not ended when recording stopped")
    assert href(user, "json") == "/problems.json?text=backward"
    user.find(marker="undo").click()
    await user.should_see("3 problems, 1 not ended when recording stopped")
    assert one(user, ui.input, "search").value == ""


async def test_changes_of_a_comparison_can_be_undone(user: User) -> None:
    await user.open(f"/compare?a={RUN}/0&b={RUN}/2")
    await user.should_see("Open B · window 2")
    user.find(marker="swap").click()
    await user.should_see("Open B · window 0")
    user.find(marker="undo").click()
    await user.should_see("Open B · window 2")
