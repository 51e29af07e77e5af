"""Tips on reading plots: shown at first, hidden once dismissed, and shown again on demand."""

from __future__ import annotations

import pytest
from nicegui import ui
from nicegui.testing import User

from tests.app.page_elements import one
from tests.app.recorded_job import SICK

RISE = "A rise is step time that is exposed for the first time"
CROSSING = "Where lines cross, another rank becomes the slowest"
ONCE = "they are charged once, not again to the ranks that wait"


def open_tips(user: User, beginning: str) -> list[bool]:
    """Whether each reading aid that holds these words is open, on whichever tab."""
    assert user.client is not None
    return [
        aid.visible
        for aid in user.client.elements.values()
        if aid.props.get("role") == "note"
        and "reading" in aid.classes
        and any(beginning in getattr(part, "text", "") for part in aid.descendants())
    ]


@pytest.mark.parametrize(("tab", "lesson"), [("overview", RISE), ("frontier", CROSSING), ("overview", ONCE)])
async def test_the_first_visit_teaches_rises_crossings_and_that_seconds_count_once(
    user: User, tab: str, lesson: str
) -> None:
    await user.open(f"{SICK}?tab={tab}")
    await user.should_see("Critical-path time by stage")
    assert open_tips(user, lesson) == [True]


async def test_a_dismissed_aid_is_gone_from_every_tab(user: User) -> None:
    # Given the same plot on two tabs, with its aid open on both
    await user.open(SICK)
    await user.should_see("Critical-path time by stage")
    user.find(kind=ui.tab, content="Frontier").click()
    await user.should_see("Highlight ranks")
    assert open_tips(user, RISE) == [True, True]
    # When it is dismissed on one
    user.find(kind=ui.element, marker="got-frontier_steps").click()
    # Then it is closed everywhere, and another plot's is not
    assert not any(open_tips(user, RISE))
    assert any(open_tips(user, CROSSING))
    # And the i still opens it
    user.find(kind=ui.element, marker="read-frontier_steps").click()
    assert any(open_tips(user, RISE))


async def test_what_a_browser_dismissed_stays_closed(user: User) -> None:
    user.http_client.cookies.set("sfapp-read", "frontier_steps.rules")
    await user.open(f"{SICK}?tab=frontier")
    await user.should_see("Critical-path time by stage")
    assert not any(open_tips(user, RISE))
    assert open_tips(user, CROSSING) == [True]


async def test_all_of_them_can_be_dismissed_at_once(user: User) -> None:
    await user.open(SICK)
    await user.should_see("Critical-path time by stage")
    user.find(kind=ui.element, marker="got-all").click()
    assert not any(open_tips(user, ""))
    user.http_client.cookies.set("sfapp-read", "all")
    await user.open(SICK)
    await user.should_see("Critical-path time by stage")
    assert not any(open_tips(user, ""))


async def test_the_help_brings_them_back(user: User) -> None:
    await user.open(SICK)
    assert one(user, ui.element, "show-tips").text == "Show all tips again"
