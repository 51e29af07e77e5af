"""A page moves while real processes stream to an aggregator, which the app knows nothing of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.app.browser.axe_check import View, findings_in_both_themes
from tests.app.served import Served, served

pytestmark = pytest.mark.browser

CLI = "from sfapp.cli import main; main()"
RANK = Path(__file__).parent / "live_rank.py"
WORLD = 4


class StreamingJob:
    """An aggregator and ranks, each a process; rank 3 is slow."""

    def __init__(self, root: Path, resources: ExitStack) -> None:
        self._resources = resources
        listening = self._start("-c", CLI, "aggregate", str(root), "--listen", "tcp://127.0.0.1:0")
        assert listening.stderr is not None
        self.endpoint = listening.stderr.readline().split()[-1]
        self.ranks = [
            self._start(
                str(RANK), str(root), self.endpoint, str(rank), "0.03" if rank == 3 else "0.02", "9999"
            )
            for rank in range(WORLD)
        ]

    def _start(self, *command: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(WORLD)}
        environment["SFAPP_STANDSTILL_AFTER"] = "2"
        process = subprocess.Popen(
            [sys.executable, *command], env=environment, stderr=subprocess.PIPE, text=True
        )
        self._resources.callback(_end, process)
        return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(10)
    assert process.stderr is not None
    process.stderr.close()


@pytest.fixture(scope="module")
def live_packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live") / "packets"


@pytest.fixture(scope="module")
def job(live_packets: Path) -> Iterator[StreamingJob]:
    live_packets.mkdir()
    with ExitStack() as resources:
        yield StreamingJob(live_packets, resources)


@pytest.fixture(scope="module")
def server(
    live_packets: Path, job: StreamingJob, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    with served(live_packets, "--memory", cwd=tmp_path_factory.mktemp("live-cwd")) as server:
        yield server


def newest_step(page: Page) -> int:
    """As the plot of step times says it in words."""
    plot = page.locator(".plot[aria-label*='up to']").first
    plot.wait_for()
    label = plot.get_attribute("aria-label") or ""
    return int(label.split("up to ")[1].split(":")[0])


def wait_until(page: Page, holds: Callable[[], bool], seconds: float = 20) -> None:
    for _ in range(int(10 * seconds)):
        if holds():
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"it did not happen within {seconds} seconds")


def test_a_page_moves_while_processes_stream_unless_it_is_frozen_or_hidden(
    page: Page, job: StreamingJob
) -> None:
    # Given the first page, which finds the job by itself
    page.goto("/")
    link = page.get_by_role("link", name="Watch streamed live")
    expect(link).to_be_visible(timeout=40_000)
    wait_until(page, lambda: "4 ranks" in link.inner_text())
    link.click()
    expect(page.locator(".standing")).to_have_text("Live: 4 ranks reporting.")
    # Then its plots move, and name the slow rank
    first = newest_step(page)
    wait_until(page, lambda: newest_step(page) > first + 20)
    tiles = page.locator(".figure", has=page.get_by_role("heading", name="Live ranks", exact=True))
    wait_until(page, lambda: "rank 3" in " ".join(tiles.locator(".main-svg").all_text_contents()))
    # And a finished window leads to its verdict
    expect(page.locator("a[href^='/w/streamed/']")).to_be_visible(timeout=30_000)
    # When time is frozen, nothing moves any more
    page.get_by_role("switch", name="Follow the newest step").click()
    expect(page.get_by_text("Frozen at")).to_be_visible()
    frozen = step_at_rest(page)
    # And it goes on where the job is by then
    page.get_by_role("switch", name="Follow the newest step").click()
    wait_until(page, lambda: newest_step(page) > frozen + 40)
    # When the page is hidden, nothing moves, either
    page.evaluate(TURN, True)
    hidden = step_at_rest(page)
    page.evaluate(TURN, False)
    wait_until(page, lambda: newest_step(page) > hidden + 40)


TURN = """(hidden) => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def step_at_rest(page: Page) -> int:
    """Return the newest step of a page that is not updated any more; it is updated once a second."""
    page.wait_for_timeout(1200)
    shown = newest_step(page)
    page.wait_for_timeout(2000)
    assert newest_step(page) == shown
    return shown


@contextmanager
def overview(page: Page) -> Iterator[None]:
    page.keyboard.press("o")
    expect(page.get_by_role("heading", name="Live step time")).to_be_visible(timeout=20_000)
    yield


@contextmanager
def node(page: Page) -> Iterator[None]:
    page.keyboard.press("2")
    expect(page.get_by_role("heading", name="Live ranks of node 1")).to_be_visible(timeout=20_000)
    yield


def test_a_node_tab_is_a_key_away_shows_its_machine_and_axe_finds_nothing_serious(
    page: Page, job: StreamingJob
) -> None:
    page.goto("/live/streamed")
    newest_step(page)
    with node(page):
        expect(page.locator(".plot[aria-label^='CPU: node 1 is at']")).to_be_visible()
        expect(page.get_by_role("heading", name="GPU").first).to_be_visible()
    assert (
        findings_in_both_themes(page, {"overview": View(overview, "body"), "node": View(node, "body")}) == []
    )


def test_a_stopped_rank_is_followed_from_the_alert_to_its_stack(
    page: Page, job: StreamingJob, live_packets: Path
) -> None:
    page.goto("/live")
    page.locator("a[href='/live/streamed']").first.click()
    newest_step(page)
    hold = live_packets.parent / "hold"
    hold.touch()
    try:
        # When a rank holds its interpreter lock, the others wait for it
        alert = page.locator(".live-headline")
        expect(alert).to_contain_text("rank 3 sends nothing although its process runs", timeout=20_000)
        # Then the alert leads to the problem, which shows where the rank is
        page.get_by_role("link", name="Problem", exact=True).click()
        expect(page.locator(".headline")).to_contain_text("The job stands still: rank 3")
        stack = page.locator(".stack-group", has_text="Rank 3 (read by signal")
        expect(stack).to_contain_text("read_batch", timeout=20_000)
        expect(page.locator(".stack-group", has_text="Ranks 0–2")).to_contain_text("wait_for_others")
    finally:
        hold.unlink()
        job.ranks[3].send_signal(signal.SIGUSR1)
    page.goto("/live/streamed")
    expect(page.locator(".standing")).to_have_text("Live: 4 ranks reporting.", timeout=20_000)


def test_a_rank_that_dies_is_shown_as_silent(page: Page, job: StreamingJob) -> None:
    page.goto("/live/streamed?tab=node:1")
    expect(page.locator(".standing")).to_be_visible()
    job.ranks[2].kill()
    expect(page.locator(".silences")).to_contain_text("rank 2: no data for", timeout=30_000)
    expect(page.locator(".standing")).to_have_text("1 of 4 ranks silent.")
