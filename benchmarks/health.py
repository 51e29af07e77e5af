"""Measure how fast a server answers ``/healthz`` while it computes everything about windows of 100,000 ranks.

A real Chromium opens every tab, and three clients ask for documents, tables and archives, all at once.
"""

from __future__ import annotations

import http.client
import statistics
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle, islice
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Error

from benchmarks.harness import Result
from benchmarks.wide_window import RANKS, WINDOWS
from sfapp.model.view import TABS

BAR_S = 0.100
POLL_S = 0.01
SETTLED_MS = 2_000
"""Time for which a tab stays open after it was loaded, so that the server computes its plots."""

DOCUMENTS = (
    ".json",
    "/what-if.json?rank=7",
    "/findings.json",
    "/ranks.csv",
    "/steps.csv",
    "/perfetto.zip?step=3",
    "?frontier=step&gamma_a=0.5",
)


class _Polling:
    """The seconds that ``/healthz`` took, again and again, while the ``with`` block runs."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(address).netloc)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self.taken: list[float] = []

    def __enter__(self) -> _Polling:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._stop.wait(POLL_S):
            begin = time.perf_counter()
            self._connection.request("GET", "/healthz")
            self._connection.getresponse().read()
            self.taken.append(time.perf_counter() - begin)


def _ask(address: str, first: int, stop: threading.Event) -> None:
    """Request one document after another until the event is set."""
    every = [f"{address}/w/wide/{window}{document}" for document in DOCUMENTS for window in range(WINDOWS)]
    for url in cycle([*every[first:], *every[:first]]):
        if stop.is_set():
            return
        with suppress(urllib.error.HTTPError), urllib.request.urlopen(url) as answer:
            while answer.read(1 << 20) and not stop.is_set():
                pass


def health(address: str, browser: Browser) -> Iterator[Result]:
    """Yield the 99th percentile of the time that the server takes to say that it is well."""
    stop = threading.Event()
    clients = [threading.Thread(target=_ask, args=(address, 7 * number, stop)) for number in range(3)]
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    with _Polling(address) as polling:
        for client in clients:
            client.start()
        try:
            for tab in islice(cycle((*TABS, "node:0")), 2 * (len(TABS) + 1)):
                with suppress(Error):  # A page that takes longer than half a minute is left.
                    page.goto(f"{address}/w/wide/1?tab={tab}")
                page.wait_for_timeout(SETTLED_MS)
        finally:
            stop.set()
            for client in clients:
                client.join()
    p99 = statistics.quantiles(polling.taken, n=100)[98]
    what = f"/healthz while windows of {RANKS:,} ranks are computed"
    yield Result(f"{what}: p99 of {len(polling.taken):,}", p99, BAR_S)
