"""What axe-core finds on pages and in dialogs, in the light and in the dark theme."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from sfapp.app import routes
from tests.app.browser.axe_check import findings_in_both_themes
from tests.app.recorded_job import RUN, put_now
from tests.app.served import served

pytestmark = pytest.mark.browser

SICK = "/w/gpt-small-ddp/10"

PAGES = dict.fromkeys((path for page in routes.PAGES for path in page.paths if "{" not in path), "h1") | {
    "/": ".timeline .main-svg",
    "/windows": ".timeline .main-svg",
    "/problems/90d5f3f39e3d17f3": ".problem-plot .main-svg",
    SICK: ".panels .main-svg",
    f"{SICK}?tab=ranks": ".panels .main-svg",
    f"{SICK}?tab=node:1": ".panels .main-svg",
    f"{SICK}?tab=stragglers": ".panels .main-svg, .panels .empty",
    f"{SICK}?tab=ambiguity": ".panels .main-svg",
    f"{SICK}?tab=notes": ".notes-list",
    f"{SICK}?tab=data": ".panels table",
    "/runs/gpt-small-ddp": ".history .main-svg",
    "/compare?a=gpt-small-ddp/9&b=gpt-small-ddp/10": ".grid .main-svg",
    "/quarantine": ".page table",
    "/live": ".page .empty",
}
"""A selector of what stands on each page once it is drawn; its heading unless more is drawn later."""


@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_serious_in_either_theme(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.locator(PAGES[path]).first).to_be_visible(timeout=20_000)
    assert findings_in_both_themes(page) == []


def write_note(page: Page) -> Locator:
    page.keyboard.press("n")
    return page.get_by_role("region", name="Note on this window")


def sign(page: Page) -> Locator:
    write_note(page).get_by_role("button", name=re.compile("^Signed as")).click()
    return page.get_by_role("dialog")


def dialog_by_key(key: str) -> Callable[[Page], Locator]:
    def press(page: Page) -> Locator:
        page.keyboard.press(key)
        return page.get_by_role("dialog")

    return press


def mute(page: Page) -> Locator:
    page.get_by_role("button", name="Mute…").click()
    return page.get_by_role("dialog")


def drawer(page: Page) -> Locator:
    page.set_viewport_size({"width": 1_024, "height": 800})
    page.keyboard.press("c")
    return page.get_by_role("button", name="Close the controls")


def menu(page: Page) -> Locator:
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("button", name="Menu").click()
    return page.get_by_role("link", name="Incidents")


PROBLEM = "/problems/90d5f3f39e3d17f3"
DATA = f"{SICK}?tab=data"
"""A tab without plots, which axe looks at on their own pages."""

OPENED: dict[str, tuple[str, Callable[[Page], Locator]]] = {
    "help": (DATA, dialog_by_key("?")),
    "palette": (SICK, dialog_by_key("Control+k")),
    "report": (SICK, dialog_by_key("r")),
    "incident": (SICK, dialog_by_key("a")),
    "note": (DATA, write_note),
    "name": (SICK, sign),
    "settings": (SICK, drawer),
    "menu": (SICK, menu),
    "mute": (PROBLEM, mute),
}
"""The page on which each dialog is opened, and how."""


@pytest.mark.parametrize("name", OPENED)
def test_axe_finds_nothing_serious_in_a_dialog_in_either_theme(page: Page, name: str) -> None:
    path, open_dialog = OPENED[name]
    page.goto(path)
    expect(page.locator(PAGES[path]).first).to_be_visible(timeout=20_000)
    expect(open_dialog(page)).to_be_visible(timeout=20_000)
    assert findings_in_both_themes(page) == []


def test_axe_finds_nothing_serious_on_an_incident(page: Page) -> None:
    page.goto(SICK)
    expect(page.locator(PAGES[SICK]).first).to_be_visible(timeout=20_000)
    page.keyboard.press("a")
    page.get_by_role("dialog").get_by_label("Title of the new incident").fill("Accessible")
    page.get_by_role("dialog").get_by_role("button", name="Add", exact=True).click()
    page.locator(".snack").get_by_role("link").click()
    expect(page.locator(".item").first).to_be_visible(timeout=20_000)
    assert findings_in_both_themes(page) == []


def test_axe_finds_nothing_serious_in_the_form_for_a_capture(browser: Browser, tmp_path: Path) -> None:
    packets = tmp_path / "packets"
    put_now(packets)
    with served(packets, "--memory", cwd=tmp_path) as server:
        page = browser.new_page(base_url=server.url)
        page.goto(f"/w/{RUN}/0?tab=stragglers")
        page.get_by_role("button", name="Start capture").click(timeout=20_000)
        expect(page.get_by_text("requested; recorders check")).to_be_visible(timeout=20_000)
        assert findings_in_both_themes(page) == []
        page.close()
