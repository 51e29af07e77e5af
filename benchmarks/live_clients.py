"""Measure one server while 50 browsers follow a real streamed job: changes of view, and memory.

Forty-nine clients keep the page open as a browser does: they load it, connect, and answer and acknowledge
what the server sends. The fiftieth is a real Chromium, in which views are changed. ``python -m
benchmarks.live_clients`` prints the results.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import websockets
from playwright.sync_api import Page
from websockets.typing import Origin

from benchmarks.chromium import chromium
from benchmarks.harness import HEADER, Result
from benchmarks.live_verdict import opened
from benchmarks.pages import server
from benchmarks.streamed_job import RUN, StreamedJob

CLIENTS = 49
START_MS = 120_000
"""Time for all ranks to report: 64 starting processes share the cores with a server."""

CHANGES = 40
BAR_S = 0.300
BAR_BYTES = 10 * 2**20

# From a key until the heading of the view that it opens is visible, by the page's own clock.
CHANGE = """([key, heading]) => new Promise((resolve, reject) => {
  const begin = performance.now();
  document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  const look = () => {
    const found = [...document.querySelectorAll("h2, h3")].some(
      (each) => each.innerText === heading && each.offsetParent !== null);
    if (found) resolve(performance.now() - begin);
    else if (performance.now() - begin > 30_000) reject(new Error(`${heading} is not shown`));
    else requestAnimationFrame(look);
  };
  look();
})"""

VIEWS = (("1", "Live ranks of node 0"), ("2", "Live ranks of node 1"), ("o", "Live ranks"))


class Crowd:
    """Clients that keep a page open, inside the ``with`` block, on a thread of their own."""

    def __init__(self, address: str, count: int) -> None:
        self._address = address
        self._count = count
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()))
        self.connected = 0
        self.received = 0

    def __enter__(self) -> Crowd:
        self._thread.start()
        deadline = time.monotonic() + 120
        while self.connected < self._count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"only {self.connected} of {self._count} clients connected")
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    async def _all(self) -> None:
        await asyncio.gather(*(self._follow(number) for number in range(self._count)))

    async def _follow(self, number: int) -> None:
        await asyncio.sleep(0.1 * number)
        client = await asyncio.to_thread(_load, f"{self._address}/live/{RUN}")
        names = {"client_id": client, "tab_id": secrets.token_hex(8), "document_id": secrets.token_hex(8)}
        query = "&".join(f"{name}={value}" for name, value in names.items())
        host = self._address.partition("//")[2]
        socket = (
            f"ws://{host}/_nicegui_ws/socket.io/?EIO=4&transport=websocket&{query}"
            "&next_message_id=0&implicit_handshake=true"
        )
        async with websockets.connect(socket, max_size=None, origin=Origin(self._address)) as connection:
            await connection.recv()
            await connection.send("40")
            await connection.recv()
            self.connected += 1
            while not self._stop.is_set():
                with suppress(TimeoutError):
                    message = await asyncio.wait_for(connection.recv(), 1.0)
                    self.received += len(message)
                    if message == "2":
                        await connection.send("3")
                        continue
                    newest = re.findall(r'"_id":\s*(\d+)', str(message)[-4000:])
                    if newest:
                        acknowledged = {"client_id": client, "next_message_id": int(newest[-1]) + 1}
                        await connection.send("42" + json.dumps(["ack", acknowledged]))


def _load(url: str) -> str:
    """Load the page and return the id of the client that the server made for it."""
    with urllib.request.urlopen(url) as answer:
        content = answer.read().decode()
    found = re.search(r"client_id[\"'\\]*:\s*[\"'\\]*([0-9a-f-]{36})", content)
    if found is None:
        raise RuntimeError("the page names no client")
    return found[1]


def wait_for_views(page: Page) -> None:
    """Wait until the page has all views that are changed: the ranks of a node may be the last that report."""
    page.wait_for_selector(".js-plotly-plot .main-svg")
    page.get_by_role("tab", name="Node 1").wait_for(timeout=START_MS)


def changes(page: Page, count: int) -> Iterator[float]:
    """Yield the seconds that changes of view take."""
    for number in range(count):
        key, heading = VIEWS[number % len(VIEWS)]
        yield page.evaluate(CHANGE, [key, heading]) / 1e3
        page.wait_for_timeout(300 + 37 * (number % 10))


def run() -> Iterator[Result]:
    """Yield the 95th percentile of a change of view, and memory by client."""
    with (
        tempfile.TemporaryDirectory() as name,
        StreamedJob(Path(name)),
        server(Path(name)) as (address, pid),
        chromium() as browser,
    ):
        page = opened(browser, address)
        wait_for_views(page)
        process = psutil.Process(pid)
        list(changes(page, len(VIEWS)))
        before = process.memory_info().rss
        with Crowd(address, CLIENTS) as crowd:
            page.wait_for_timeout(5_000)
            busy = process.cpu_times()
            begin = time.monotonic()
            taken = sorted(changes(page, CHANGES))
            wall_s = time.monotonic() - begin
            after = process.cpu_times()
            memory = process.memory_info().rss - before
            if not crowd.received:
                raise RuntimeError("the clients received nothing")
        used = (after.user + after.system - busy.user - busy.system) / wall_s
        what = f"{CLIENTS + 1} browsers on a live job"
        yield Result(f"{what}: a change of view, p95 of {CHANGES}", taken[int(0.95 * CHANGES)], BAR_S)
        yield Result(f"{what}: memory of the server by client", memory / CLIENTS, BAR_BYTES, "B")
        yield Result(f"{what}: server time a second", used, 1.0)


if __name__ == "__main__":
    print(HEADER)
    for result in run():
        print(result.line(), flush=True)
