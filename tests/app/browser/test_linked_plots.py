"""What is under the pointer is marked in the other plots, and plots can be read as tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.app.browser.visitor import visitor
from tests.app.served import Served

pytestmark = pytest.mark.browser

SICK = "/w/gpt-small-ddp/10"


def card(page: Page, title: str) -> Locator:
    return page.locator(".figure", has=page.get_by_role("heading", name=title, exact=True))


@pytest.fixture(scope="module")
def overview(context: BrowserContext, server: Served) -> Iterator[Page]:
    """A window's page on a screen so high that all plots are seen."""
    with visitor(context, server.url) as page:
        page.set_viewport_size({"width": 1400, "height": 2400})
        page.goto(SICK)
        expect(page.locator(".panels .main-svg").first).to_be_visible()
        page.wait_for_timeout(500)
        yield page


def test_a_rank_under_the_pointer_is_marked_in_heatmap_and_headline(overview: Page) -> None:
    overview.locator(".verdict .headline").hover()
    for title in ("Work and waiting by rank", "Rank × step"):
        expect(card(overview, title).locator(".link-band").first).to_be_visible()
    card(overview, "Rank × step").locator(".nsewdrag").first.hover(position={"x": 60, "y": 150})
    expect(overview.locator(".link-band").first).to_be_visible()


def test_a_key_hides_the_healthy_windows(overview: Page) -> None:
    lanes = card(overview, "Work and waiting by rank").locator(".js-plotly-plot").element_handle()
    shown = """([plot, number]) => plot.data.filter(
      (trace) => trace.legendgroup === 'healthy' && trace.visible !== 'legendonly').length === number"""
    overview.wait_for_function(shown, arg=[lanes, 2])
    overview.keyboard.press("h")
    overview.wait_for_function(shown, arg=[lanes, 0])  # Plotly waits for a second click first
    overview.keyboard.press("h")
    overview.wait_for_function(shown, arg=[lanes, 2])


def test_a_plot_is_read_as_a_table(overview: Page) -> None:
    overview.get_by_role("tab", name="Analysis").click()
    steps = card(overview, "Exposed time per step")
    steps.get_by_text("Show as table").click()
    table = steps.locator(".as-table table")
    expect(table.locator("tbody tr")).to_have_count(40)
    expect(table.locator("thead")).to_contain_text(re.compile("callbacks", re.IGNORECASE))
