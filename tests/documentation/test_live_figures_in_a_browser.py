"""A reader moves the slider of docs/exposed-time.md, and figures and numbers change."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from benchmarks.chromium import ONE_PROCESS, SHELL, chromium

pytestmark = pytest.mark.browser

PATIENCE_MS = 60_000
"""The page loads the plot library while other tests run."""


class Files(SimpleHTTPRequestHandler):
    """Serve the site without a log."""

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The built site on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(SHELL, ONE_PROCESS) as browser:
        yield browser


def opened(
    browser: Browser,
    address: str,
    scheme: Literal["light", "dark"] = "light",
    width: int = 1400,
    **settings: Any,
) -> Page:
    """Open the page with its figures drawn; refuse every request to another server."""

    def check(request: Request) -> None:
        assert request.url.startswith(address), request.url

    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900}, **settings)
    page.set_default_timeout(PATIENCE_MS)
    page.on("request", check)
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto(f"{address}/exposed-time.html")
    return page


def drawn(page: Page) -> Page:
    expect(page.locator(".live-plot .main-svg .xaxislayer-above")).to_have_count(3, timeout=PATIENCE_MS)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_moving_the_slider_changes_the_step_time_the_shares_and_the_figures(
    browser: Browser, address: str, scheme: Literal["light", "dark"]
) -> None:
    page = drawn(opened(browser, address, scheme))
    slider = page.get_by_role("slider", name="Delay of rank 0's loader")
    text = page.locator(".live-text")
    expect(slider).to_have_attribute("aria-valuetext", "5.0 s")
    expect(text).to_contain_text("Step time 8.20 s. Exposed: data 6.00 s (73.2 %)")
    lanes, frontier = page.locator(".live-plot").first, page.locator(".live-plot").nth(1)
    expect(lanes).to_contain_text("waits 5.00 s")
    expect(frontier).to_contain_text("+6.0 s")

    slider.press("Home")

    expect(text).to_contain_text("Step time 3.30 s. Exposed: data 1.10 s (33.3 %)")
    expect(lanes).not_to_contain_text("waits 5.00 s")
    expect(frontier).to_contain_text("+1.1 s")
    expect(frontier).to_have_attribute("aria-label", re.compile("reaches 3.30 s"))
    page.close()


def test_the_figures_take_the_colours_of_the_theme(browser: Browser, address: str) -> None:
    page = drawn(opened(browser, address))
    line = page.locator(".live-plot").nth(1).locator(".yaxislayer-above text").first
    light = line.evaluate("text => getComputedStyle(text).fill")
    page.locator("label[title='Switch to dark mode']").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    expect(line).not_to_have_css("fill", light)
    page.close()


def test_the_figures_fit_a_narrow_page(browser: Browser, address: str) -> None:
    page = drawn(opened(browser, address, width=390))
    for plot in page.locator(".live-plot").all():
        assert plot.evaluate("box => box.querySelector('.main-svg').clientWidth <= box.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def test_without_scripts_the_page_shows_drawings(browser: Browser, address: str) -> None:
    page = opened(browser, address, java_script_enabled=False)
    drawings = page.locator("article img[src*='live/']")
    expect(drawings).to_have_count(3)
    for image in drawings.all():
        expect(image).to_be_visible()
        assert (image.bounding_box() or {"height": 0})["height"] > 100
    expect(page.locator(".live-slider")).to_have_count(0)
    page.close()


def test_other_pages_do_not_load_the_plot_library(browser: Browser, address: str) -> None:
    page = browser.new_page()
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"{address}/labels.html", wait_until="networkidle", timeout=PATIENCE_MS)
    assert any("figures.js" in url for url in requested)
    assert not any("/built/" in url for url in requested)
    page.close()
