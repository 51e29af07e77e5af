"""What is under the pointer is marked in the other plots, and plots can be read as tables."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser

SICK = "/w/gpt-small-ddp/10"


def card(page: Page, title: str) -> Locator:
    return page.locator(".figure", has=page.get_by_role("heading", name=title, exact=True))


def opened(page: Page, path: str = SICK) -> None:
    page.set_viewport_size({"width": 1400, "height": 2400})
    page.goto(path)
    expect(page.locator(".panels .main-svg").first).to_be_visible()
    page.wait_for_timeout(500)


def test_a_rank_under_the_pointer_is_marked_in_heatmap_and_headline(page: Page) -> None:
    opened(page)
    page.locator(".verdict .headline").hover()
    for title in ("Work and waiting by rank", "Rank × step"):
        expect(card(page, title).locator(".link-band").first).to_be_visible()
    card(page, "Rank × step").locator(".nsewdrag").first.hover(position={"x": 60, "y": 150})
    expect(page.locator(".link-band").first).to_be_visible()


def test_a_plot_is_read_as_a_table(page: Page) -> None:
    opened(page, f"{SICK}?tab=frontier")
    steps = card(page, "Exposed time per step")
    steps.get_by_text("Show as table").click()
    table = steps.locator(".as-table table")
    expect(table.locator("tbody tr")).to_have_count(40)
    expect(table.locator("thead")).to_contain_text(re.compile("callbacks", re.IGNORECASE))


def test_a_key_hides_the_healthy_windows(page: Page) -> None:
    opened(page)
    lanes = card(page, "Work and waiting by rank")
    shown = """plot => plot.data.filter(
      (trace) => trace.legendgroup === 'healthy' && trace.visible !== 'legendonly').length"""
    assert lanes.locator(".js-plotly-plot").evaluate(shown) == 2
    page.keyboard.press("h")
    page.wait_for_timeout(600)
    assert lanes.locator(".js-plotly-plot").evaluate(shown) == 0
    page.keyboard.press("h")
    page.wait_for_timeout(600)
    assert lanes.locator(".js-plotly-plot").evaluate(shown) == 2
