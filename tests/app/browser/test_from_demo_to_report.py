"""The whole way in a real browser: from the list of windows to a report that is opened and made again."""

from __future__ import annotations

import html
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from pypdf import PdfReader

pytestmark = pytest.mark.browser

CHANGE_SENTENCE = "B is 78 ms per step slower than A, all of it in data"


def card(page: Page, title: str) -> Locator:
    return page.locator(".figure", has=page.get_by_role("heading", name=title, exact=True))


def add_to_incident(page: Page, title: str | None = None) -> None:
    """What the dialog asks: a title for a new incident, else the one used last."""
    page.get_by_role("button", name=re.compile("Add this (window|comparison)")).click()
    dialog = page.get_by_role("dialog")
    if title is not None:
        dialog.get_by_label("Title of the new incident").fill(title)
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator(".snack")).to_contain_text("added")


def downloaded(page: Page, shown: str, folder: Path) -> Path:
    """A report in some format."""
    page.keyboard.press("r")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("radio", name=shown).click()
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Create report").click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    return path


def opened(browser: Browser, report: Path) -> tuple[str, int]:
    """Return a report's text once its plots are drawn, and their number; the report makes no request."""
    context = browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: asked.append(message.text))
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-drawn]")
    body, plots = page.inner_text("body"), page.locator(".js-plotly-plot").count()
    context.close()
    assert asked == [report.as_uri()]
    return body, plots


def test_a_b_a_is_compared_annotated_handed_over_and_made_again(
    page: Page, browser: Browser, tmp_path: Path
) -> None:
    # Given the list of windows: the sick one between two healthy ones is found by its aim
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("gpt-small-ddp")
    page.goto("/w/gpt-small-ddp/13")
    expect(page.locator(".verdict .headline")).to_contain_text("data on rank 0")
    # When it is compared with the windows before and after it, and that goes into an incident
    page.goto("/compare?a=gpt-small-ddp/12&b=gpt-small-ddp/13&c=gpt-small-ddp/14")
    expect(page.locator(".verdict .headline")).to_contain_text(CHANGE_SENTENCE)
    add_to_incident(page, "Slow loader, taken out again")
    # and the step where the fault begins is annotated, and the window added with its note
    page.goto("/w/gpt-small-ddp/13?tab=frontier")
    expect(card(page, "Exposed time per step").locator(".main-svg").first).to_be_visible()
    page.keyboard.press("]")
    expect(page.locator(".stepper")).to_contain_text("step 520")
    page.keyboard.press("n")
    form = page.get_by_role("region", name="Note on this window")
    form.get_by_role("textbox", name="Text of the note").fill("Here rank 0 starts to wait for its data.")
    page.keyboard.press("Control+Enter")
    expect(form).not_to_be_visible()
    add_to_incident(page)
    page.locator(".snack").get_by_role("link").click()
    expect(page.locator(".item")).to_have_count(3)
    # and reports are made of it
    report = downloaded(page, "HTML", tmp_path)
    paper = downloaded(page, "PDF", tmp_path)

    # Then both say what was found
    body, plots = opened(browser, report)
    text = " ".join(" ".join(sheet.extract_text().split()) for sheet in PdfReader(paper).pages)
    for shown in (body, text):
        assert "Slow loader, taken out again" in shown
        assert CHANGE_SENTENCE in " ".join(shown.split())
        assert "Here rank 0 starts to wait for its data." in shown
        assert "data on rank 0" in shown
    assert plots == 2 + 7
    # and the printed command makes the same numbers again: the whole page, byte for byte
    first = report.read_bytes()
    (printed,) = re.findall(r"<p><code>(sfapp report .*?)</code></p>", first.decode())
    command = shlex.split(html.unescape(printed))
    program = [sys.executable, "-c", "from sfapp.cli import main; main()"]
    again = tmp_path / "again"
    again.mkdir()
    made = subprocess.run([*program, *command[1:]], cwd=again, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert (again / report.name).read_bytes() == first
