"""An operator's first minute: from the first page to the cause and the next action."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser


def is_in_view(page: Page, element: Locator) -> bool:
    """Whether an element is seen as a whole without scrolling."""
    seen = element.bounding_box()
    size = page.viewport_size
    assert seen is not None
    assert size is not None
    return seen["y"] >= 0 and seen["y"] + seen["height"] <= size["height"]


def test_one_click_from_the_first_page_shows_cause_onset_cost_and_next_action(page: Page) -> None:
    page.set_viewport_size({"width": 1400, "height": 900})
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_contain_text(
        "problems, 2 not ended when recording stopped"
    )
    # Given a missing rank, which comes first, and a late one
    first = page.locator(".problem").first
    expect(first).to_contain_text("Rank 7 is missing")
    expect(first).to_contain_text("not ended")
    row = page.get_by_role("link", name=re.compile(r"Rank 3 \(node-0\) is late in data"))
    expect(row).to_contain_text("began at step 120")
    expect(row).to_contain_text("77.4 ms of 167.1 ms per step, 46.3 % (45.9–46.3 %)")
    # When it is clicked
    row.click()
    # Then stage, rank, since when, cost and the next action are there, and nothing needs to be scrolled
    headline = page.get_by_role("heading", level=1)
    expect(headline).to_contain_text("Rank 3 (node-0) is late in data, every step")
    for words in (
        re.compile("^Began at step 120, 2026-11-21 05:11:55 UTC"),
        re.compile("^77.4 ms$"),
        re.compile("^25 rank-seconds$"),
        re.compile("^Capture rank 3 for a few steps"),
    ):
        found = page.locator(".verdict").get_by_text(words)
        expect(found).to_be_visible()
        assert is_in_view(page, found), words
    assert is_in_view(page, headline)
    expect(page.locator(".problem-plot .main-svg").first).to_be_visible()
