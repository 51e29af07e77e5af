"""Measure the waiting times of a user: the first page of 20,000 windows, a moved gate, another baseline.

Uses a real server process and a real Chromium. A page is drawn when Plotly reports it, or when the grid shows
its rows.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.accounting import job
from benchmarks.harness import Result
from benchmarks.live_page import SimulatedStream, refreshes
from benchmarks.swim_lane import swim_lane_drawn
from sfapp.packets import packet_path, write_packet

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
RANKS = 1_024

WINDOWS, RUNS = 20_000, 4
"""Windows of the first page; every tenth is 50 % slower."""

# Time from the next key or click to the last plot drawn after it, by the page's own clock.
SIGTERM_WATCH = """() => {
  const seen = window.drawnAfter = { begin: undefined, last: undefined };
  const start = () => { seen.begin ??= performance.now(); };
  window.addEventListener('keydown', start, { capture: true, once: true });
  window.addEventListener('click', start, { capture: true, once: true });
  for (const plot of document.querySelectorAll('.js-plotly-plot')) {
    plot.on('plotly_afterplot', () => { if (seen.begin) seen.last = performance.now(); });
  }
}"""
DRAWN = "() => window.drawnAfter.last && performance.now() - window.drawnAfter.last > 400"
TOOK = "() => window.drawnAfter.last - window.drawnAfter.begin"

FIRST_DRAWN = """() => new Promise((resolve) => {
  const look = () => {
    const problem = document.querySelector('.problem');
    const plot = document.querySelector('.js-plotly-plot .main-svg');
    if (problem && problem.innerText.trim() && plot) resolve(performance.now());
    else requestAnimationFrame(look);
  };
  look();
})"""


@contextmanager
def server(root: Path) -> Iterator[tuple[str, int]]:
    """Run ``sfapp serve`` on a free port until its packets are ingested; yield its address and process id."""
    command = [sys.executable, "-c", "from sfapp.cli import main; main()", "serve", str(root)]
    process = subprocess.Popen([*command, "--port", "0", "--no-browser"], stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        found = re.search(r"http://\S+", line)
        if not found:
            raise RuntimeError(f"the server printed {line!r} instead of its address")
        address = found[0].rstrip("/")
        wait_for_ingest(address, sum(1 for _ in root.rglob("*.parquet")))
        yield address, process.pid
    finally:
        process.terminate()
        process.wait(timeout=20)


def wait_for_ingest(address: str, packets: int) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            found = re.search(r"^sfapp_windows (\S+)", answer.read().decode(), re.MULTILINE)
        if found and float(found[1]) >= packets:
            return
        time.sleep(0.2)
    raise RuntimeError("the packets were not ingested in time")


def write_windows(root: Path) -> None:
    """Write small windows of a few runs."""
    kinds = [job(8, 40, seed=seed) for seed in range(40)]
    for index in range(WINDOWS):
        number, run = divmod(index, RUNS)
        window = kinds[index % len(kinds)]
        duration_SNR = window.duration_SNR * (3 if index % 10 == 9 else 2) // 2
        window = replace(
            window,
            manifest=replace(window.manifest, run_id=f"run-{run}", window=number),
            duration_SNR=duration_SNR,
            wall_NR=duration_SNR.sum(axis=0),
            step_N=window.step_N + number * 40,
        )
        write_packet(window, packet_path(root, window.run_id, number))


def first_page(address: str, browser: Browser) -> Iterator[Result]:
    """Yield HTML size, the server's time, and a cold visit: a new browser context without a cache."""
    served = []
    for _ in range(9):
        begin = time.perf_counter()
        with urllib.request.urlopen(address) as answer:
            size = len(answer.read())
        served.append(time.perf_counter() - begin)
    yield Result(f"first page of {WINDOWS:,} windows: HTML", size, 60_000, unit="B")
    yield Result(f"first page of {WINDOWS:,} windows: served", statistics.median(served), 0.150)
    times = []
    for _ in range(5):
        context = browser.new_context(viewport={"width": 1480, "height": 1080})
        page = context.new_page()
        page.goto(address, wait_until="commit")
        times.append(page.evaluate(FIRST_DRAWN) / 1e3)
        context.close()
    yield Result(f"first page of {WINDOWS:,} windows: drawn, cold", statistics.median(times), 2.0)


def until_drawn(page: Page, acts: Iterable[Callable[[], None]]) -> float:
    """Return the median seconds from an action to its last drawn plot."""
    times: list[float] = []
    for act in acts:
        page.evaluate(SIGTERM_WATCH)
        act()
        page.wait_for_function(DRAWN)
        times.append(page.evaluate(TOOK) / 1e3)
    return statistics.median(times)


def window_page(address: str, browser: Browser) -> Iterator[Result]:
    """Yield results for a gate moved by keyboard and a changed baseline, on the Overview tab at 1,024 × 100 ×
    6."""
    page = browser.new_page(viewport={"width": 1480, "height": 1080})
    page.goto(f"{address}/w/bench/2")
    page.wait_for_selector(".js-plotly-plot .main-svg")
    page.wait_for_timeout(3_000)
    page.get_by_role("slider", name="candidate threshold").locator("[tabindex='0']").focus()
    keys = [lambda key=key: page.keyboard.press(key) for key in ("ArrowLeft", "ArrowRight") * 5]
    yield Result("moved gate, 1,024 × 100 × 6, until drawn", until_drawn(page, keys), 0.100)
    picks = [
        lambda word=word: page.get_by_role("button", name=word, exact=True).click()
        for word in ("rank", "cohort") * 4
    ]
    yield Result("another baseline, 1,024 × 100 × 6, until drawn", until_drawn(page, picks), 0.250)
    yield Result("another group, 1,024 × 100 × 6, until drawn", until_drawn(page, groups(page)), 0.250)
    page.close()


def groups(page: Page) -> Iterator[Callable[[], None]]:
    """Yield the time of alternating choices of a node; opening the list of nodes is not timed."""
    for name in ("node 3", "node 7", "node 5", "node 9"):
        page.get_by_role("combobox", name="group").click()
        option = page.get_by_role("option", name=name, exact=True)
        option.wait_for()
        yield option.click


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        many, wide = Path(folder) / "many", Path(folder) / "wide"
        write_windows(many)
        for number in range(3):
            window = job(RANKS, seed=number)
            window = replace(window, manifest=replace(window.manifest, window=number))
            write_packet(window, packet_path(wide, window.run_id, number))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        with server(many) as (address, _):
            yield from first_page(address, browser)
        with server(wide) as (address, _):
            yield from window_page(address, browser)
        yield from swim_lane_drawn(browser)
        live = Path(folder) / "live"
        with SimulatedStream(live), server(live) as (address, pid):
            yield from refreshes(address, pid, browser)
        browser.close()
