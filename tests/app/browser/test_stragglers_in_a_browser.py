"""The stragglers tab in a real Chromium: drawn, picked from, stepped through, taken to Perfetto; captures."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.app.browser.axe_check import findings_in_both_themes
from tests.app.profiled import WINDOW, put_profiled
from tests.app.recorded_job import RUN, put_now
from tests.app.served import Served, served

pytestmark = pytest.mark.browser

PATIENT_MS = 20_000
"""Operators are examined first."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("packets")
    put_profiled(root, tmp_path_factory.mktemp("traces"))
    put_now(root)
    with served(root, "--memory", cwd=tmp_path_factory.mktemp("cwd")) as server:
        yield server


def test_from_the_tab_to_a_cause_its_step_and_perfetto(page: Page, tmp_path: Path) -> None:
    # Given the window of a job that was profiled, when its stragglers are looked at
    page.goto(WINDOW)
    page.get_by_role("tab", name="Operators").click()
    # Then the operator is named, and the plots are drawn
    expect(page.get_by_text("Verdict and operators agree")).to_be_visible(timeout=PATIENT_MS)
    expect(page.locator(".panels .figure .main-svg:visible").first).to_be_visible()
    expect(page).to_have_url(re.compile("tab=stragglers"))

    # When another cause is picked, by the keyboard as well as by the mouse
    rows = page.locator(".table-choice tbody tr")
    expect(rows.first).to_have_class(re.compile("chosen"))
    rows.nth(1).click()
    expect(page).to_have_url(re.compile("cause=1"))
    expect(page.locator(".table-choice tbody tr").nth(1)).to_have_class(re.compile("chosen"))
    first = page.locator(".table-choice tbody tr button").first
    first.focus()
    page.keyboard.press("Enter")
    expect(page).not_to_have_url(re.compile("cause="))
    # Then the keyboard focus is still there, and moves on from there
    expect(first).to_have_attribute("aria-pressed", "true")
    expect(first).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator(".table-choice tbody tr button").nth(1)).to_be_focused()
    # And a column's title, which says what it means, still sorts
    title = page.locator(".table-choice th").first
    expect(title.locator("span")).to_have_attribute("title", re.compile(r"\w"))
    title.click()
    expect(title).to_have_class(re.compile("sorted"))

    # When it is stepped through, then the timeline follows
    page.keyboard.press("]")
    expect(page).to_have_url(re.compile(r"step=\d+"))
    expect(page.get_by_text("as selected; [ and ] select another step")).to_be_visible()

    # When the slice is downloaded, then it is the archive that Perfetto opens
    with page.expect_download() as download:
        page.get_by_role("link", name=re.compile(r"step \d+ of ranks")).click()
    download.value.save_as(tmp_path / "slice.zip")
    with zipfile.ZipFile(tmp_path / "slice.zip") as archive:
        assert len(archive.namelist()) == 3


def test_axe_finds_nothing_serious_in_the_form_for_a_capture(page: Page) -> None:
    page.goto(f"/w/{RUN}/0?tab=stragglers")
    page.get_by_role("button", name="Start capture").click(timeout=PATIENT_MS)
    expect(page.get_by_text("requested; recorders check")).to_be_visible(timeout=PATIENT_MS)
    assert findings_in_both_themes(page) == []
