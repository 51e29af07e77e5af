"""What a newcomer learns from, in Chromium: tips, the glossary, the worked examples and the theme."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser

SICK = "/w/gpt-small-ddp/10"
RISE = "A rise is step time that is exposed for the first time"
CROSSING = "Where lines cross, another rank becomes the slowest"


def test_a_dismissed_reading_aid_stays_away_until_asked_for(page: Page) -> None:
    # Given a first visit, which teaches both plots
    page.goto(SICK)
    expect(page.get_by_text(RISE)).to_be_visible()
    # When one aid is dismissed
    frontier = page.locator(".reading", has_text=RISE)
    frontier.get_by_role("button", name="Got it").click()
    expect(page.get_by_text(RISE)).to_be_hidden()
    # Then it stays away, here and on the tab with the same plot
    page.goto(f"{SICK}?tab=frontier")
    expect(page.get_by_text(CROSSING)).to_be_visible()
    expect(page.get_by_text(RISE)).to_be_hidden()
    # And once all are dismissed, so do they
    page.locator(".reading", has_text=CROSSING).get_by_role("button", name="Hide all tips").click()
    page.goto(f"{SICK}?tab=ambiguity")
    expect(page.locator(".panels .main-svg").first).to_be_visible()
    expect(page.locator(".reading:visible")).to_have_count(0)
    # Until the help brings them back, on the same view
    page.keyboard.press("?")
    page.get_by_role("button", name="Show all tips again").click()
    expect(page.locator(".reading:visible").first).to_be_visible()
    expect(page.get_by_role("tab", name="Ambiguity")).to_have_attribute("aria-selected", "true")


def test_a_label_leads_to_its_meaning_by_keyboard_without_losing_the_view(page: Page) -> None:
    page.goto(f"{SICK}?tab=ambiguity&gamma_a=0.5&frontier=step")
    label = page.locator(".verdict").get_by_role("link", name="stages or ranks tied")
    label.focus()
    with page.context.expect_page() as opened:
        page.keyboard.press("Enter")
    term = opened.value.locator("#label-co_critical")
    expect(term).to_be_in_viewport()
    expect(term).to_contain_text("Several stages or ranks could hold the step back")
    expect(page.get_by_role("slider", name="dominance")).to_have_attribute("aria-valuenow", "0.5")


def test_an_example_compares_its_numbers_with_the_papers(page: Page) -> None:
    # Given someone who looks for something to learn from
    page.goto("/")
    expect(page.locator(".timeline .main-svg").first).to_be_visible()
    page.keyboard.press("?")
    page.get_by_role("link", name="One late rank, three summaries").click()
    # Then the paper's first figure is a window like any other
    together = page.locator(".lesson tr", has_text="sum")
    expect(together.locator(".frontier")).to_have_text("8.20 s")
    expect(together.locator(".paper_frontier")).to_have_text("8.20 s")
    expect(together.locator(".maximum")).to_have_text("13.2 s")
    expect(page.locator(".panels .main-svg").first).to_be_visible()
    # And what is declared of waiting changes its label
    page.get_by_role("link", name="the verdict once waiting is declared").click()
    expect(page.locator(".verdict .chips")).to_contain_text("waits for other ranks")


# Every colour that the page had while any of it could be seen, over reloads too.
WATCH_COLOURS = """
(() => {
  const note = () => {
    const shown = document.body && getComputedStyle(document.documentElement).display !== "none";
    if (shown) {
      const seen = new Set((sessionStorage.colours ?? "").split(";").filter(Boolean));
      sessionStorage.colours = [...seen.add(getComputedStyle(document.body).backgroundColor)].join(";");
    }
    requestAnimationFrame(note);
  };
  note();
})()
"""
LIGHT, DARK = "rgb(243, 245, 248)", "rgb(14, 19, 26)"


def page_colours(page: Page) -> str:
    return str(page.evaluate("sessionStorage.colours"))


def strip(page: Page) -> Locator:
    return page.locator(".run-timeline .main-svg .ytick text").first


def test_the_first_visit_is_in_the_systems_theme_without_a_flash(page: Page) -> None:
    # Given a system that prefers dark, and a browser that was never here
    page.emulate_media(color_scheme="light")
    page.goto(SICK)
    light = strip(page).evaluate("tick => getComputedStyle(tick).fill")
    page.context.clear_cookies()
    page.emulate_media(color_scheme="dark")
    page.add_init_script(WATCH_COLOURS)
    loads: list[str] = []
    page.on("request", lambda each: loads.append(each.url) if each.resource_type == "document" else None)
    # When it opens a page
    page.goto(f"{SICK}?step=400")
    # Then all of it is dark from the first frame on, plots included, without a second load, and the view is
    # the one asked for
    expect(page.locator(".run-timeline .main-svg").first).to_be_visible()
    expect(strip(page)).not_to_have_css("fill", light)
    assert page_colours(page) == DARK
    expect(page.locator(".stepper")).to_contain_text("step 400")
    assert len(loads) == 1


def test_a_theme_chosen_here_outlives_what_the_system_prefers(page: Page) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto("/")
    expect(page.locator("body")).to_have_css("background-color", DARK)
    # When light is chosen
    page.keyboard.press("d")
    expect(page.locator("body")).to_have_css("background-color", LIGHT)
    # Then it stays light, whatever the system turns to
    page.goto("/glossary")
    expect(page.locator("body")).to_have_css("background-color", LIGHT)
    page.emulate_media(color_scheme="light")
    page.emulate_media(color_scheme="dark")
    page.goto("/")
    expect(page.locator("body")).to_have_css("background-color", LIGHT)


def test_a_theme_chosen_on_the_way_to_another_page_is_not_lost(page: Page) -> None:
    # Given a page in the light theme
    page.emulate_media(color_scheme="light")
    page.goto("/")
    switch = page.get_by_role("button", name="Switch between light and dark")
    expect(switch).to_be_visible()
    # When dark is chosen and the page left in the same breath, before the server could answer
    switch.evaluate("button => { button.click(); location.href = '/glossary'; }")
    page.wait_for_url("**/glossary")
    # Then it was remembered, and three presses at once are three
    expect(page.locator("body")).to_have_css("background-color", DARK)
    expect(switch).to_be_visible()
    switch.evaluate("button => { button.click(); button.click(); button.click(); }")
    expect(page.locator("body")).to_have_css("background-color", LIGHT)
    page.goto("/")
    expect(page.locator("body")).to_have_css("background-color", LIGHT)


def test_an_open_page_follows_the_system_into_the_evening(page: Page) -> None:
    page.goto(SICK)
    light = strip(page).evaluate("tick => getComputedStyle(tick).fill")
    page.emulate_media(color_scheme="dark")
    expect(page.locator("body")).to_have_css("background-color", DARK)
    expect(page.locator(".run-timeline .main-svg").first).to_be_visible()
    page.wait_for_function(
        "light => getComputedStyle(document.querySelector('.run-timeline .ytick text')).fill !== light",
        arg=light,
    )
    # And the next page knows
    page.goto("/glossary")
    expect(page.locator("body")).to_have_css("background-color", DARK)


def test_without_cookies_the_page_is_there_all_the_same(page: Page) -> None:
    # Given a browser that keeps no cookies and a system that prefers dark
    page.add_init_script(
        "Object.defineProperty(Document.prototype, 'cookie', {get: () => '', set: () => {}})"
    )
    page.emulate_media(color_scheme="dark")
    page.goto("/glossary")
    expect(page.get_by_text("The meaning of every term in a verdict.")).to_be_visible()
