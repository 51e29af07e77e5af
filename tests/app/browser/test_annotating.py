"""From a plot to an incident in a real browser: annotate the step where it begins, collect, hand over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.app.recorded_job import HOSTILE

pytestmark = pytest.mark.browser

SICK = "/w/gpt-small-ddp/3?tab=frontier"


def card(page: Page, title: str) -> Locator:
    return page.locator(".figure", has=page.get_by_role("heading", name=title, exact=True))


def test_from_a_step_to_an_incident(page: Page, tmp_path: Path) -> None:
    # Long because it is one story, of which each part needs the one before.
    # Given a colleague who looks at the same window
    colleague = page.context.new_page()
    colleague.goto(f"{SICK}&step=120")
    # When the first step is looked into and annotated, by key, under a name
    page.goto(SICK)
    steps = card(page, "Exposed time per step")
    expect(steps.locator(".main-svg").first).to_be_visible()
    page.keyboard.press("]")
    expect(page.locator(".stepper")).to_contain_text("step 120")
    page.keyboard.press("n")
    form = page.get_by_role("region", name="Note on this window")
    expect(form.get_by_label("Step")).to_have_value("120")
    form.get_by_role("button", name="Signed as anonymous").click()
    page.get_by_role("textbox", name="Your name").fill("Ada")
    page.keyboard.press("Enter")
    expect(form.get_by_role("button", name="Signed as Ada", exact=True)).to_be_visible()
    form.get_by_role("textbox", name="Text of the note").fill(f"It begins here. {HOSTILE}")
    page.keyboard.press("Control+Enter")
    # Then its number stands in the plot, for the colleague too, without a reload
    for looked_at in (page, colleague):
        mark = card(looked_at, "Exposed time per step").locator(".annotation", has_text=re.compile("^1$"))
        expect(mark).to_be_visible()
        expect(looked_at.get_by_role("tab", name="Notes 1")).to_be_visible()
    colleague.get_by_role("tab", name="Notes 1").click()
    expect(colleague.locator(".note-text")).to_have_text(f"It begins here. {HOSTILE}")
    expect(colleague.locator(".note-head")).to_contain_text("Ada")
    # When the window goes into an incident with its note, and a plot as it is shown
    page.keyboard.press("a")
    page.get_by_role("dialog").get_by_label("Title of the new incident").fill("Slow loader")
    page.get_by_role("dialog").get_by_role("button", name="Add", exact=True).click()
    expect(page.locator(".snack")).to_contain_text("Window 3 added")
    steps.get_by_role("button", name="add Exposed time per step to an incident").click()
    page.get_by_role("dialog").get_by_role("button", name="Add", exact=True).click()
    expect(page.locator(".snack")).to_contain_text("The plot “Exposed time per step” added")
    page.locator(".snack").get_by_role("link").click()
    # Then the incident tells them in order, and evidence is moved by keys
    items = page.locator(".item")
    expect(items).to_have_count(3)
    expect(items.nth(0)).to_contain_text("data on rank 3")
    expect(items.nth(1)).to_contain_text("It begins here.")
    expect(items.nth(2).locator(".annotation", has_text=re.compile("^1$"))).to_be_visible()
    items.nth(2).focus()
    page.keyboard.press("Shift+ArrowUp")
    expect(items.nth(1).locator(".main-svg").first).to_be_visible()
    expect(items.nth(1)).to_be_focused()
    page.keyboard.press("z")
    expect(items.nth(1)).to_contain_text("It begins here.")
    assert page.evaluate("window.pwned") is None
    assert colleague.evaluate("window.pwned") is None
    # And its export is a file that can be imported again
    with page.expect_download() as download:
        page.get_by_role("link", name="Export .json").click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    page.keyboard.press("i")
    expect(page.get_by_role("row", name=re.compile("Slow loader"))).to_contain_text("3")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Import an exported incident").click()
    chooser.value.set_files(file)
    expect(page.get_by_text("Nothing new to import")).to_be_visible()


def test_an_upload_of_an_import_that_is_refused_or_breaks_off_is_reported(
    context: BrowserContext, tmp_path: Path
) -> None:
    page = context.new_page()  # The browser writes failed requests to its console.
    page.goto("/incidents")
    file = tmp_path / "incident.json"
    file.write_text("{}")

    def choose() -> None:
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="Import an exported incident").click()
        chooser.value.set_files(file)

    try:
        # When a proxy takes smaller files only, and when it ends the connection
        page.route("**/upload/*", lambda route: route.fulfill(status=413), times=1)
        choose()
        expect(page.get_by_text("not imported: its upload was answered with 413 ")).to_be_visible()
        page.route("**/upload/*", lambda route: route.abort(), times=1)
        choose()
        expect(page.get_by_text("not imported: its upload was answered with nothing")).to_be_visible()
        # Then none of them is sent again with the next one
        uploads: list[str] = []
        page.on("request", lambda request: uploads.append(request.url) if "/upload/" in request.url else None)
        choose()
        expect(page.get_by_text("incident.json was not imported: the file is not")).to_be_visible()
        assert len(uploads) == 1
    finally:
        page.close()
