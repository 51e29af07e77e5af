"""What axe-core finds on pages and in dialogs, in the light and in the dark theme."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from playwright.sync_api import Page, expect

from sfapp.app import routes
from tests.app.browser.axe_check import AS_IT_IS, View, as_it_is, findings_in_both_themes

pytestmark = pytest.mark.browser

SICK = "/w/gpt-small-ddp/10"
PROBLEM = "/problems/90d5f3f39e3d17f3"

PAGES = dict.fromkeys((path for page in routes.PAGES for path in page.paths if "{" not in path), "h1") | {
    "/": ".timeline .main-svg",
    "/windows": ".timeline .main-svg",
    SICK: ".panels .main-svg",
    "/runs/gpt-small-ddp": ".history .main-svg",
    "/compare?a=gpt-small-ddp/9&b=gpt-small-ddp/10": ".grid .main-svg",
    "/quarantine": ".page table",
    "/live": ".page .empty",
}
"""A selector of what stands on each page once it is drawn; its heading unless more is drawn later.

The pages of a problem and of an incident have tests of their own."""


@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_serious_in_either_theme(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.locator(PAGES[path]).first).to_be_visible(timeout=20_000)
    assert findings_in_both_themes(page) == []


TABS = {
    "ranks": ".panels .main-svg",
    "node:1": ".panels .main-svg",
    "stragglers": ".panels .main-svg",
    "ambiguity": ".panels .main-svg",
    "notes": ".notes-list",
    "data": ".panels table",
}


@pytest.mark.parametrize("tab", TABS)
def test_axe_finds_nothing_serious_on_a_tab_of_a_window(page: Page, tab: str) -> None:
    """The page around the tab is the same as around the overview, which is looked at above."""
    page.goto(f"{SICK}?tab={tab}")
    expect(page.locator(TABS[tab]).first).to_be_visible(timeout=20_000)
    assert findings_in_both_themes(page, {tab: View(as_it_is, ".verdict, .tab-bar, .panels", True)}) == []


def key(pressed: str) -> Callable[[Page], None]:
    return lambda page: page.keyboard.press(pressed)


@contextmanager
def note_form(page: Page) -> Iterator[None]:
    page.keyboard.press("n")
    form = page.get_by_role("region", name="Note on this window")
    expect(form).to_be_visible()
    yield
    form.get_by_role("button", name="Close the note").click()
    expect(form).to_be_hidden()


def dialog(open_it: Callable[[Page], None]) -> Callable[[Page], AbstractContextManager[None]]:
    @contextmanager
    def opened(page: Page) -> Iterator[None]:
        open_it(page)
        expect(page.get_by_role("dialog")).to_be_visible()
        yield
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()

    return opened


@contextmanager
def signature(page: Page) -> Iterator[None]:
    def sign(page: Page) -> None:
        page.get_by_role("button", name=re.compile("^Signed as")).locator("visible=true").click()

    with note_form(page), dialog(sign)(page):
        yield


@contextmanager
def drawer(page: Page) -> Iterator[None]:
    with narrowed(page, 1_024, 800):
        page.keyboard.press("c")
        expect(page.get_by_role("button", name="Close the controls")).to_be_visible()
        yield
        page.keyboard.press("Escape")


@contextmanager
def menu(page: Page) -> Iterator[None]:
    with narrowed(page, 390, 844):
        page.get_by_role("button", name="Menu").click()
        expect(page.get_by_role("link", name="Incidents")).to_be_visible()
        yield
        page.keyboard.press("Escape")


@contextmanager
def narrowed(page: Page, width: int, height: int) -> Iterator[None]:
    wide = page.viewport_size
    assert wide is not None
    page.set_viewport_size({"width": width, "height": height})
    yield
    page.set_viewport_size(wide)


def find(page: Page) -> None:
    page.keyboard.press("Control+k")
    expect(page.get_by_role("option").first).to_be_visible()


def mute(page: Page) -> None:
    page.get_by_role("button", name="Mute…").click()


DIALOGS = {
    "help": View(dialog(key("?")), ".q-dialog"),
    "finder": View(dialog(find), ".finder"),
    "report": View(dialog(key("r")), ".q-dialog"),
    "incident": View(dialog(key("a")), ".q-dialog"),
    "note": View(note_form, ".note-form"),
    "name": View(signature, ".q-dialog"),
    "settings": View(drawer, ".rail"),
    "menu": View(menu, ".top"),
}


def test_axe_finds_nothing_serious_in_the_dialogs_of_a_window(page: Page) -> None:
    page.goto(f"{SICK}?tab=data")  # a tab without plots, which axe looks at on the other tabs
    expect(page.locator(".panels table").first).to_be_visible(timeout=20_000)
    assert findings_in_both_themes(page, DIALOGS) == []


def test_axe_finds_nothing_serious_on_a_problem_and_where_it_is_muted(page: Page) -> None:
    page.goto(PROBLEM)
    expect(page.locator(".problem-plot .main-svg").first).to_be_visible(timeout=20_000)
    assert findings_in_both_themes(page, {"problem": AS_IT_IS, "mute": View(dialog(mute), ".q-dialog")}) == []


def test_axe_finds_nothing_serious_on_an_incident(page: Page) -> None:
    page.goto(f"{SICK}?tab=data")
    expect(page.locator(".panels table").first).to_be_visible(timeout=20_000)
    page.keyboard.press("a")
    page.get_by_role("dialog").get_by_label("Title of the new incident").fill("Accessible")
    page.get_by_role("dialog").get_by_role("button", name="Add", exact=True).click()
    page.locator(".snack").get_by_role("link").click()
    expect(page.locator(".item").first).to_be_visible(timeout=20_000)
    assert findings_in_both_themes(page) == []
