"""Comparing in a real browser: the recorded A/B/A from a window's page, themes, a narrow screen."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser

ABA = "/compare?a=gpt-small-ddp/12&b=gpt-small-ddp/13&c=gpt-small-ddp/14"


def card(page: Page, title: str) -> Locator:
    return page.locator(".figure", has=page.get_by_role("heading", name=title, exact=True))


def test_the_recorded_a_b_a_is_found_from_its_window_and_reads_as_recorded(page: Page) -> None:
    # Given the window in which rank 0's data loader is slow
    page.goto("/w/gpt-small-ddp/13")
    page.get_by_role("link", name="Compare with…").click()
    # When the windows before and after it are chosen in place of the healthy one
    expect(page.locator(".verdict .headline")).to_contain_text("B is 78 ms per step slower than A")
    page.get_by_label("Window of A").click()
    page.get_by_role("option", name=re.compile(r"^12 ·")).click()
    page.get_by_label("Run of C").click()
    page.get_by_role("option", name="gpt-small-ddp", exact=True).click()
    page.get_by_label("Window of C").click()
    page.get_by_role("option", name=re.compile(r"^14 ·")).click()
    # Then the page says what was injected, and its address is the comparison
    headline = page.locator(".verdict .headline")
    expect(headline).to_contain_text("B is 78 ms per step slower than A, all of it in data")
    expect(headline).to_contain_text("C recovers 98 % of it")
    expect(page.locator(".verdict .why")).to_contain_text(
        "rank 0 (node-0) is slowest in data in 40 of 40 steps"
    )
    expect(page).to_have_url(re.compile(re.escape(ABA)))
    expect(card(page, "Change by stage").locator(".main-svg").first).to_be_visible()
    assert "+77.30" in " ".join(card(page, "Change by stage").locator(".main-svg").all_text_contents())
    # and opening that address again shows the same
    page.reload()
    expect(headline).to_contain_text("C recovers 98 % of it")


def test_the_comparison_fits_its_page_and_changes_its_theme(page: Page) -> None:
    # Given a comparison on a narrow page, out of which nothing sticks, as on a wide one
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(ABA)
    expect(card(page, "Mean step of each side").locator(".main-svg").first).to_be_visible()
    for width in (390, 1480):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    # When the theme is switched, then the plots change theirs
    drawn = card(page, "Change by stage").locator(".main-svg").first
    expect(drawn).to_be_visible()
    colour = "getComputedStyle(document.querySelector('.figure .xtick text')).fill"
    light = page.evaluate(colour)
    page.keyboard.press("d")
    page.wait_for_function(f"{colour} !== {light!r}")
    expect(drawn).to_be_visible()


def test_a_run_is_compared_with_another_and_its_windows_can_be_opened(page: Page) -> None:
    page.goto("/compare?a=moe-two-roles&b=gpt-small-ddp")
    spread = card(page, "Spread between windows")
    expect(spread.locator(".main-svg").first).to_be_visible()
    points = spread.locator(".scatterlayer .point")
    expect(points).to_have_count(3 + 16 + 2)
    points.nth(2).click(force=True)
    expect(page).to_have_url(re.compile("/w/moe-two-roles/"))
