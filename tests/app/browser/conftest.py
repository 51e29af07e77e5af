"""A real Chromium in front of a real server over the recorded sample job."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from benchmarks.chromium import ONE_PROCESS, SHELL, chromium
from tests.app.browser.visitor import visitor
from tests.app.recorded_job import hostile_window, put
from tests.app.served import Served, served

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]

expect.set_options(timeout=20_000)  # as long as an action may take: the tests run beside others

_opened = ExitStack()
"""The browser, once a test has asked for it."""


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


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start one browser for all tests of this folder."""
    with _opened:
        yield _opened.enter_context(chromium(SHELL, ONE_PROCESS))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Close the browser after the last test of this folder.

    Playwright runs an event loop in this thread, which keeps asynchronous tests from running theirs.
    """
    if nextitem is None or not nextitem.path.is_relative_to(FOLDER):
        _opened.close()


@pytest.fixture(scope="session")
def contexts(browser: Browser) -> dict[str, BrowserContext]:
    """Contexts by the address of their server."""
    return {}


@pytest.fixture(scope="module")
def context(browser: Browser, contexts: dict[str, BrowserContext], server: Served) -> BrowserContext:
    """A browser that keeps what it has loaded; ``visitor`` clears what a visitor leaves behind."""
    if server.url not in contexts:
        context = contexts[server.url] = browser.new_context(
            viewport={"width": 1480, "height": 1080}, base_url=server.url
        )
        # This page keeps its process alive, with the scripts that other pages have compiled in it.
        context.new_page().goto("/assets/logo.svg")
    return contexts[server.url]


@pytest.fixture
def page(context: BrowserContext, server: Served) -> Iterator[Page]:
    """A fresh visitor; at the end, nothing was written to the console and nothing asked elsewhere."""
    with visitor(context, server.url) as page:
        yield page
