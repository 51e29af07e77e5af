"""Lists of windows and problems: order, filters and axis are in the address; Back and Ctrl-Z undo them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


def test_a_sorted_column_is_in_the_address_and_back_undoes_it(page: Page) -> None:
    page.goto("/windows?run=gpt-small-ddp")
    expect(page.locator(".ag-row").first).to_be_visible()
    page.locator(".ag-header-cell[col-id='window']").click()
    expect(page).to_have_url(re.compile("sort=window:desc"))
    expect(page.locator(".ag-row[row-index='0'] [col-id='window']")).to_contain_text("window 15")
    page.reload()
    expect(page.locator(".ag-row[row-index='0'] [col-id='window']")).to_contain_text("window 15")
    page.locator(".ag-header-cell[col-id='window']").click()
    expect(page).to_have_url(re.compile("sort=window:asc"))
    expect(page.locator(".ag-row[row-index='0'] [col-id='window']")).to_contain_text("window 0")
    page.go_back()
    expect(page.locator(".ag-row[row-index='0'] [col-id='window']")).to_contain_text("window 15")
    expect(page.locator(".ag-header-cell[col-id='window']")).to_have_attribute("aria-sort", "descending")


def test_ctrl_z_undoes_a_filter(page: Page) -> None:
    page.goto("/windows")
    expect(page.locator(".ag-row").first).to_be_visible()
    page.get_by_role("switch", name="Needs attention only").click()
    expect(page).to_have_url(re.compile("needs_attention=true"))
    page.get_by_role("button", name="By time").click()
    expect(page).to_have_url(re.compile("axis=time"))
    expect(page.get_by_text("over time (UTC)")).to_be_visible()
    page.locator("h1").click()
    page.keyboard.press("Control+z")
    expect(page).not_to_have_url(re.compile("axis=time"))
    page.keyboard.press("Control+z")
    expect(page).not_to_have_url(re.compile("needs_attention"))
    expect(page.get_by_role("switch", name="Needs attention only")).not_to_be_checked()


def test_a_search_of_problems_is_in_the_address_which_back_undoes_and_a_reload_keeps(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".problem").first).to_be_visible()
    before = page.locator(".problem").count()
    page.get_by_role("textbox", name="Search problems").fill("rank 5 forward")
    expect(page.locator(".problem")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"/\?text=rank"))
    page.go_back()
    expect(page.locator(".problem")).to_have_count(before)
    expect(page.get_by_role("textbox", name="Search problems")).to_have_value("")
    page.go_forward()
    expect(page.locator(".problem")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"/\?text=rank"))
    page.reload()
    expect(page.locator(".problem")).to_have_count(1)
