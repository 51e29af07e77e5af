"""From "which host?" over all jobs of a bucket to the work and waiting of its ranks in one window."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from playwright.sync_api import Page, expect

from benchmarks.fleet_demo import LATE_HOST, LATE_RANK, FleetDemo, fleet_demo
from tests.app.served import Served, served

pytestmark = pytest.mark.browser

JOBS = 28


@pytest.fixture(scope="module")
def demo() -> Iterator[FleetDemo]:
    with fleet_demo(JOBS, "ray" if find_spec("ray") else "local") as found:
        yield found


@pytest.fixture(scope="module")
def server(demo: FleetDemo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The app over the dataset that the cluster wrote, and over the packets."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in demo.environment.items():
            patch.setenv(name, value)
        folder = tmp_path_factory.mktemp("fleet")
        with served(demo.verdicts, demo.packets, "--memory", cwd=folder) as found:
            deadline = time.monotonic() + 60
            while b'"live"' not in _answer(f"{found.url}healthz"):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield found


def _answer(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        content: bytes = answer.read()
        return content


def test_which_host_leads_to_the_work_and_waiting_of_its_ranks(page: Page) -> None:
    page.goto("/fleet")
    expect(page.locator("h1")).to_contain_text(f"{LATE_HOST} has the late rank in more runs")
    page.get_by_role("link", name="job-0000").first.click()
    expect(page).to_have_url(re.compile("needs_attention=true"))
    windows = page.locator(".ag-row a[href*='/w/job-0000/']")  # each row is there twice, its link once
    expect(windows).to_have_count(2)
    windows.first.click()
    expect(page).to_have_url(re.compile(r"/w/job-0000/\d"))
    expect(page.locator(".verdict")).to_contain_text(f"data on rank {LATE_RANK}")
    card = page.locator(".card", has_text="Work and waiting by rank").last
    card.scroll_into_view_if_needed()
    expect(card.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    expect(card).to_contain_text(f"rank {LATE_RANK}")
