"""What stands where on a window's page, at every width; the finder, and going back."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.app.browser.visitor import visitor
from tests.app.profiled import LONG_NAMES, put_long_names
from tests.app.served import Served, served

pytestmark = pytest.mark.browser

SICK = "/w/gpt-small-ddp/10"


def opened(page: Page, path: str = SICK, width: int = 1400, height: int = 900) -> None:
    page.set_viewport_size({"width": width, "height": height})
    page.goto(path)
    expect(page.locator(".panels .main-svg").first).to_be_visible()


def top(element: Locator) -> float:
    box = element.bounding_box()
    assert box is not None
    return box["y"]


@pytest.fixture(scope="module")
def overview(context: BrowserContext, server: Served) -> Iterator[Page]:
    """The page of a window, on which tests change no more than its width."""
    with visitor(context, server.url) as page:
        opened(page)
        yield page


def test_verdict_plots_evidence_and_run_stand_in_this_order(overview: Page) -> None:
    parts = (".verdict", ".tab-bar", ".panels .figure", ".grounds-card", ".run-timeline .card")
    places = [top(overview.locator(part).first) for part in parts]
    assert places == sorted(places)


def test_the_verdict_is_one_line_on_other_tabs(page: Page) -> None:
    opened(page, f"{SICK}?tab=ranks")
    box = page.locator(".verdict").bounding_box()
    assert box is not None
    assert box["height"] < 60
    expect(page.locator(".verdict .headline")).to_be_visible()
    expect(page.locator(".grounds-card")).to_be_hidden()
    # And the tabs stay in sight however far down one reads
    page.mouse.wheel(0, 2000)
    page.wait_for_timeout(200)
    assert top(page.locator(".tab-bar")) == pytest.approx(52, abs=2)


@pytest.mark.parametrize(
    ("tab", "main", "nested"),
    [
        ("overview", "Overview", None),
        ("frontier", "Analysis", "Frontier"),
        ("ambiguity", "Analysis", "Ambiguity"),
        ("evidence", "Analysis", "Evidence"),
        ("rules", "Analysis", "Rules"),
        ("node:1", "Nodes ▲", "Node 1"),
        ("stragglers", "Operators", None),
    ],
)
def test_a_link_of_before_opens_its_tab(page: Page, tab: str, main: str, nested: str | None) -> None:
    page.goto(f"{SICK}?tab={tab}")
    open_tabs = page.locator(".tab-bar .q-tab--active")
    expect(open_tabs).to_have_text([main] if nested is None else [main, nested])
    # What stragglers there are is worked out first.
    drawn_or_listed = page.locator(".panels .figure .main-svg, .panels table").first
    expect(drawn_or_listed).to_be_visible(timeout=20_000)


def test_nothing_is_wider_than_the_screen_and_the_window_number_is_whole(overview: Page) -> None:
    number = overview.locator(".crumbs strong")
    for width in (390, 1024, 1100, 1400, 1920):
        overview.set_viewport_size({"width": width, "height": 900})
        overview.wait_for_function(
            """width => document.documentElement.clientWidth <= width &&
            document.documentElement.scrollWidth <= window.innerWidth""",
            arg=width,
        )
        expect(number).to_have_text("Window 10")
        assert number.evaluate("each => each.scrollWidth <= each.clientWidth + 1"), width


@pytest.fixture(scope="module")
def long_names(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of a visitor of a server over a job whose operators have long names."""
    root = tmp_path_factory.mktemp("long-names")
    put_long_names(root / "packets", root)
    with served(root / "packets", "--memory", cwd=root) as server:
        context = browser.new_context(base_url=server.url)
        with visitor(context, server.url) as page:
            yield page
        context.close()


def test_long_names_of_operators_are_not_wider_than_the_screen(long_names: Page) -> None:
    long_names.set_viewport_size({"width": 390, "height": 900})
    long_names.goto(f"/w/{LONG_NAMES}/0?tab=stragglers")
    expect(long_names.locator(".panels .figure .main-svg").first).to_be_visible()
    expect(long_names.locator("h2", has_text="Operator frequency")).to_be_visible()
    long_names.wait_for_function("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_number_of_the_verdict_stays_in_its_column(overview: Page) -> None:
    for width in (390, 1024, 1400, 1920):
        overview.set_viewport_size({"width": width, "height": 900})
        overview.wait_for_timeout(200)
        beyond = overview.locator(".verdict .fact > *").evaluate_all(
            "every => every.filter(each => each.scrollWidth > each.parentElement.clientWidth)"
            ".map(each => each.textContent)"
        )
        assert beyond == [], width


def test_narrow_screens_have_a_drawer_and_a_menu(page: Page) -> None:
    opened(page, width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    # The verdict comes first; the controls and the links wait behind a button each
    assert top(page.locator(".verdict")) < 200
    slider = page.get_by_role("slider", name="dominance")
    expect(slider).to_be_hidden()
    page.keyboard.press("c")
    expect(slider).to_be_visible()
    page.keyboard.press("Escape")
    expect(slider).to_be_hidden()
    incidents = page.get_by_role("link", name="Incidents")
    expect(incidents).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    for name in ("Incidents", "Live", "Compare with…", "Next window"):
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()


def test_back_and_ctrl_z_undo_a_change_of_view(page: Page) -> None:
    opened(page)
    page.keyboard.press("2")
    expect(page).to_have_url(re.compile("tab=node:1"))
    page.keyboard.press("]")
    expect(page).to_have_url(re.compile("step=400"))
    page.go_back()
    expect(page.locator(".stepper")).to_contain_text("window mean")
    expect(page).not_to_have_url(re.compile("step="))
    page.go_forward()
    expect(page.locator(".stepper")).to_contain_text("step 400")
    page.keyboard.press("Control+z")
    expect(page.locator(".stepper")).to_contain_text("window mean")
    page.keyboard.press("Control+z")
    expect(page.get_by_role("tab", name="Overview")).to_have_attribute("aria-selected", "true")
    expect(page).not_to_have_url(re.compile("tab="))


def test_the_finder_leads_to_ranks_windows_runs_and_commands(page: Page) -> None:
    opened(page)
    finder = page.get_by_role("dialog", name="Find")
    page.keyboard.press("/")
    page.keyboard.type("rank 3")
    expect(finder.get_by_role("option", name="rank 3").first).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/w/gpt-small-ddp/10\?tab=ranks&ranks=3"))
    expect(page.locator(".panels .main-svg").first).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("node-1")
    expect(finder.get_by_role("option", name="node-1").first).to_be_visible()
    page.locator(".finder input").fill("light and dark")
    expect(finder.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("body")).to_have_class(re.compile("body--dark"))
    page.keyboard.press("Control+k")
    page.locator(".finder input").fill("moe")
    expect(finder.get_by_role("option", name="run").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(finder).to_be_hidden()


def test_an_absurd_threshold_gives_way_to_the_value_in_use(overview: Page) -> None:
    field = overview.get_by_role("spinbutton", name="dominance")
    for typed in ("", "-", "1e30", "99999999999"):
        field.fill("")
        field.press_sequentially(typed)
        overview.wait_for_timeout(400)
        overview.keyboard.press("Tab")
        expect(field).to_have_value("0.40")
        expect(overview.get_by_text(re.compile("TypeError|ValueError|OverflowError"))).to_have_count(0)
