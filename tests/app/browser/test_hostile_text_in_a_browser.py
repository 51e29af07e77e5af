"""No text of a file or of another user is read as markup, on any page, in any dialog or notification."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from sfapp.incidents import IncidentEditor, IncidentLog
from sfapp.model import Window
from sfapp.model.incidents import Pin
from sfapp.model.view import WindowKey
from sfapp.packets import operators_path, write_operators
from tests.app.live_job import LiveJob
from tests.app.recorded_job import job_window, put
from tests.app.served import Served, served
from tests.builders import CALLBACKS, MS
from tests.hostile_text import HOSTILE_TEXT, SCRIPT, with_hostile_names
from tests.views.simulated_findings import planted

pytestmark = pytest.mark.browser

RUN = quote(HOSTILE_TEXT, safe="")
LIVE = f"live {HOSTILE_TEXT}"
INJECTED = "img[src='x'], [href^='javascript:'], [src^='http://evil'], [href^='http://evil']"
"""Elements that the text would make if it were read as HTML or Markdown."""


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile") / "packets"
    for number in range(3):
        put(root, hostile_window(number))
    events = planted("kernel")
    names = tuple(f"{HOSTILE_TEXT} {name}" for name in events.names)
    lanes = tuple(replace(lane, name=f"{HOSTILE_TEXT} {lane.name}") for lane in events.lanes)
    groups = tuple(f"{HOSTILE_TEXT} {group}" for group in events.groups)
    hostile = replace(events, names=names, lanes=lanes, groups=groups)
    write_operators(hostile, HOSTILE_TEXT, 1, operators_path(root, HOSTILE_TEXT, 1))
    (root / f"{SCRIPT.replace('/', '')}.parquet").write_text(HOSTILE_TEXT)
    LiveJob(root, run=LIVE, host=HOSTILE_TEXT).go(until=time.time() + 600)
    return root


def hostile_window(number: int) -> Window:
    return with_hostile_names(job_window(number, {(CALLBACKS, 3): 60 * MS}))


@pytest.fixture(scope="module")
def incident(packets: Path) -> str:
    log = IncidentLog.for_packets(packets)
    mallory = IncidentEditor(log, HOSTILE_TEXT)
    opened = mallory.open_incident(HOSTILE_TEXT, severity="high", summary=HOSTILE_TEXT)
    window = WindowKey(HOSTILE_TEXT, 1)
    pin = Pin(window=window, step=45, stage=HOSTILE_TEXT, plot=HOSTILE_TEXT)
    note = mallory.write_note(HOSTILE_TEXT, pin)
    shown = log.state().note(note)
    mallory.edit_note(shown, f"first {HOSTILE_TEXT}")
    IncidentEditor(log, "Ada").edit_note(shown, f"second {HOSTILE_TEXT}")
    mallory.add_note(log.state().incident(opened), note)
    mallory.add_window(log.state().incident(opened), window, f"stage={RUN}")
    mallory.add_comparison(log.state().incident(opened), f"a={RUN}/0&b={RUN}/1")
    return opened


@pytest.fixture(scope="module")
def server(packets: Path, incident: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(packets, "--memory", cwd=tmp_path_factory.mktemp("cwd")) as server:
        yield server


PAGES = {
    "/": ".timeline .main-svg",
    "/windows": ".timeline .main-svg",
    f"/runs/{RUN}": ".history .main-svg",
    f"/compare?a={RUN}/0&b={RUN}/1": ".grid .main-svg",
    "/incidents": ".page",
    "/incident/INCIDENT": ".item",
    "/quarantine": ".page table",
    f"/live/{quote(LIVE, safe='')}": ".main-svg",
}
"""A selector of what is on each page once it is drawn."""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.replace(RUN, "RUN"))
def test_no_text_is_markup_on_a_page(page: Page, path: str, incident: str) -> None:
    page.goto(path.replace("INCIDENT", incident))
    expect(page.locator(PAGES[path]).first).to_be_visible(timeout=20_000)
    expect(page.locator("body")).to_contain_text("onerror=window", timeout=20_000)
    assert_nothing_injected(page)


TABS = {
    "Ranks": ("ranks", ".main-svg"),
    "Nodes": ("node:0", ".main-svg"),
    "Operators": ("stragglers", ".table-choice"),
    "Analysis": ("frontier", ".main-svg"),
    "Evidence": ("evidence", "table"),
    "Data": ("data", "table"),
    "Notes": ("notes", ".notes-list"),
}
"""Tabs of a window's page by title: the name in the address, and a selector of what is on it once drawn."""


def test_no_text_is_markup_on_the_tabs_of_a_window(page: Page) -> None:
    page.goto(f"/w/{RUN}/1?stage={RUN}&reference={RUN}/0")
    expect(page.locator(".panels .main-svg").first).to_be_visible(timeout=20_000)
    expect(page.locator("body")).to_contain_text("onerror=window", timeout=20_000)
    assert_nothing_injected(page)
    for title, (name, shown) in TABS.items():
        page.get_by_role("tab", name=title).first.click()
        expect(page).to_have_url(re.compile(f"tab={name}"))
        drawn = page.locator(f".panels {shown}").locator("visible=true").first
        expect(drawn).to_be_visible(timeout=20_000)
        assert_nothing_injected(page)


def test_no_text_is_markup_in_a_notification_or_a_dialog(page: Page, packets: Path) -> None:
    page.goto("/windows")
    expect(page.locator(".timeline .main-svg").first).to_be_visible(timeout=20_000)
    put(packets, hostile_window(3))
    expect(page.get_by_text("window 3 of")).to_be_visible(timeout=20_000)
    page.keyboard.press("Control+k")
    page.locator(".finder input").fill("onerror")
    expect(page.locator(".finder").get_by_role("option", name="onerror").first).to_be_visible()
    assert_nothing_injected(page)


def assert_nothing_injected(page: Page) -> None:
    assert page.evaluate("window.pwned") is None
    assert page.locator(INJECTED).count() == 0
