"""Keep 50 browsers on the live page of a streamed job: memory of the server, and changes of view.

A part of ``make soak``. Forty-nine clients behave as browsers do (``live_clients``); the fiftieth is a real
Chromium, in which the view is changed again and again.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil

from benchmarks.chromium import chromium
from benchmarks.live_clients import BAR_S, CLIENTS, VIEWS, Crowd, changes, wait_for_views
from benchmarks.live_verdict import opened
from benchmarks.many_ranks_report import GROWTH, MEASURE_SECONDS, Measurement, growth, minutes
from benchmarks.pages import server
from benchmarks.streamed_job import STEP_S, Size, StreamedJob

SIZE = Size(ranks=64, pace=20.0)
"""Steps of a second: 64 processes share the cores with the server and the browser."""

REST_SECONDS = 5.0
"""Pause after a few changes of view."""


class MemoryLog:
    """Measurements of a process while the ``with`` block runs."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._measure)
        self.measured: list[Measurement] = []

    def __enter__(self) -> MemoryLog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _measure(self) -> None:
        while True:
            spent = self._process.cpu_times()
            rss = self._process.memory_info().rss
            self.measured.append((time.time(), spent.user + spent.system, rss))
            if self._stop.wait(MEASURE_SECONDS):
                return


def run_app_soak(duration: float) -> tuple[str, bool]:
    """Return the section of the page, and whether both bars hold.

    Args:
        duration: minutes.
    """
    taken: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as name,
        StreamedJob(Path(name), SIZE),
        server(Path(name)) as (address, pid),
        chromium() as browser,
    ):
        page = opened(browser, address)
        wait_for_views(page)
        list(changes(page, len(VIEWS)))
        with Crowd(address, CLIENTS) as crowd, MemoryLog(pid) as log:
            end = time.monotonic() + 60 * duration
            while time.monotonic() < end:
                taken += changes(page, len(VIEWS))
                page.wait_for_timeout(REST_SECONDS * 1e3)
            received = crowd.received
    return section(duration, taken, log.measured, received)


def section(
    duration: float, taken: list[float], measured: list[Measurement], received: int
) -> tuple[str, bool]:
    """Return the section of the page, and whether both bars hold.

    Args:
        duration: minutes. taken: seconds of each change of view. measured: of the server. received: bytes
            that the clients received.
    """
    slope, part = growth(measured)
    median, p95, longest = np.quantile(taken, [0.5, 0.95, 1.0])
    by_minute = minutes(measured)
    busy = float(np.mean([minute.core_share for minute in by_minute])) if by_minute else 0.0
    shown = ", ".join(f"{minute.core_share:.2f}/{minute.rss_bytes / 2**20:.0f}" for minute in by_minute)
    lines = [
        f"{CLIENTS + 1} browsers on the live page of a streamed job of {SIZE.ranks} ranks, steps of "
        f"{SIZE.pace * STEP_S:.2g} s, {duration:g} minutes, {os.cpu_count()} cores. One is Chromium; the "
        "others load the page, connect, and acknowledge what they receive.",
        "",
        f"- A change of view in Chromium, {len(taken)} of them: median {median * 1e3:.0f} ms, p95 "
        f"{p95 * 1e3:.0f} ms (bar: {BAR_S * 1e3:.0f} ms), longest {longest * 1e3:.0f} ms.",
        f"- The server's memory after the first 55% of the time: {slope / 2**20:+.2f} MB per minute, "
        f"{part:+.1%} in all (bar for half an hour: {GROWTH:.0%}).",
        f"- It took {busy:.2f} of a core; the other clients received {received / 1e6:.0f} MB.",
        "",
        f"Server by minute, share of a core / MB: {shown}.",
    ]
    return "\n".join(lines), part <= GROWTH and p95 <= BAR_S and received > 0
