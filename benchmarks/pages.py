"""Measure the waiting times of a user: the first page of 20,000 windows, the page of a window of 100,000
ranks, whether the server answers meanwhile, changes of a window's view, the swim-lane and the live page.

Uses a real server process and a real Chromium. A page is drawn when Plotly reports it, or when the grid shows
its rows. ``python -m benchmarks pages:first`` measures only the first page; ``_PARTS`` names the others.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser

from benchmarks.accounting import job
from benchmarks.chromium import chromium
from benchmarks.harness import Result
from benchmarks.health import health
from benchmarks.live_page import SimulatedStream, refreshes
from benchmarks.swim_lane import swim_lane_drawn
from benchmarks.view_changes import view_changes, write_viewed_windows
from benchmarks.wide_window import wide_window, write_wide_windows
from sfapp.packets import packet_path, write_packet

WINDOWS, RUNS = 20_000, 4
"""Windows of the first page; every tenth is 50 % slower."""

_FIRST_DRAWN = """() => new Promise((resolve) => {
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
        times.append(page.evaluate(_FIRST_DRAWN) / 1e3)
        context.close()
    yield Result(f"first page of {WINDOWS:,} windows: drawn, cold", statistics.median(times), 2.0)


def _first_page(root: Path, browser: Browser) -> Iterator[Result]:
    write_windows(root)
    with server(root) as (address, _):
        yield from first_page(address, browser)


def _wide_window(root: Path, _: Browser) -> Iterator[Result]:
    write_wide_windows(root)
    with server(root) as (address, pid):
        yield from wide_window(address, pid)


def _health(root: Path, browser: Browser) -> Iterator[Result]:
    write_wide_windows(root)
    with server(root) as (address, _):
        yield from health(address, browser)


def _view_changes(root: Path, browser: Browser) -> Iterator[Result]:
    write_viewed_windows(root)
    with server(root) as (address, _):
        yield from view_changes(address, browser)


def _swim_lane(_: Path, browser: Browser) -> Iterator[Result]:
    yield from swim_lane_drawn(browser)


def _live_page(root: Path, browser: Browser) -> Iterator[Result]:
    root.mkdir()
    with SimulatedStream(root), server(root) as (address, pid):
        yield from refreshes(address, pid, browser)


_PARTS: Mapping[str, Callable[[Path, Browser], Iterator[Result]]] = {
    "first": _first_page,
    "wide": _wide_window,
    "health": _health,
    "views": _view_changes,
    "lanes": _swim_lane,
    "live": _live_page,
}


def run(*parts: str) -> Iterator[Result]:
    """Yield the results of these parts, or of all."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for part in parts or _PARTS:
            yield from _PARTS[part](Path(folder) / part, browser)
