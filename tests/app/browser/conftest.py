"""A real Chromium in front of a real server over the recorded sample job."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request

from benchmarks.chromium import SHELL, chromium
from tests.app.recorded_job import hostile_window, put
from tests.app.served import Served, served

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample job, and a run that means harm by its names."""
    root = tmp_path_factory.mktemp("browser") / "packets"
    shutil.copytree(ROOT / "sample_data" / "packets", root)
    put(root, hostile_window())
    return root


@pytest.fixture(scope="session")
def server(packets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(packets, "--memory", cwd=tmp_path_factory.mktemp("cwd")) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium(SHELL) as browser:
        yield browser


@pytest.fixture(scope="module")
def context(browser: Browser, server: Served) -> Iterator[BrowserContext]:
    """A browser that keeps what it has loaded and compiled; ``page`` clears what a visitor leaves behind."""
    context = browser.new_context(viewport={"width": 1480, "height": 1080}, base_url=server.url)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, server: Served) -> Iterator[Page]:
    """A fresh visitor; at the end, nothing was written to the console and nothing asked elsewhere."""
    complaints: list[str] = []

    def only_here(request: Request) -> None:
        if request.url.startswith(("http:", "https:")) and not request.url.startswith(server.url):
            complaints.append(f"asked for {request.url}")

    # Routes would say the same, but they turn off the cache.
    context.on("request", only_here)
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.set_default_timeout(20_000)
    yield page
    context.remove_listener("request", only_here)
    for each in context.pages:
        each.close()
    context.clear_cookies()  # nothing else is kept: a new tab has its own session storage
    assert complaints == []
