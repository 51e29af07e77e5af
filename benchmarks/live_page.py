"""Measure the server's CPU time per second for an open live page of 1,024 ranks.

Samples are appended once a second and the newest rows of all ranks are replaced, as by an aggregator, with
one rank late in data. A real server follows them, and a real Chromium shows the page. The cost of following
without an open page is measured too and subtracted.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from playwright.sync_api import Browser

from benchmarks.harness import Result
from sfapp.metrics import MetricsLog
from sfapp.model import DEFAULT_STAGES, RankIdentity
from sfapp.model.live_rows import LiveRank, LiveRows
from sfapp.model.samples import (
    AggregatorSample,
    AnySample,
    GpuSample,
    LinkSample,
    NodeSample,
    PaceSample,
    ProcessSample,
)
from sfapp.packets.newest_steps import newest_steps_path, write_newest_steps

RUN = "crowd"
LATE_RANK = 777
KEPT_STEPS = 64
NODES, LOCAL = 128, 8
HISTORY_S = 300
"""Time range that the page shows by default."""

WATCHED_S = 45.0
"""Longer than DuckDB's checkpoints are apart, one of which would otherwise count for or against a page."""
BAR_S = 0.100


def second(number: int, at_ns: int) -> list[AnySample]:
    """Return the samples of all ranks for one second: ten steps of about 100 ms each."""
    found: list[AnySample] = [AggregatorSample(at_ns=at_ns, node_rank=0, messages=number)]
    for node in range(NODES):
        common: dict[str, Any] = {"at_ns": at_ns, "node_rank": node}
        found.append(
            NodeSample(
                **common, hostname=f"node-{node}", cpu_percent=40.0 + (number + node) % 7, load_1min=3.5
            )
        )
        found += [
            GpuSample(**common, gpu=gpu, utilisation_percent=90.0 + (number + gpu) % 9)
            for gpu in range(LOCAL)
        ]
    for rank in range(NODES * LOCAL):
        subject: dict[str, Any] = {"at_ns": at_ns, "node_rank": rank // LOCAL, "rank": rank}
        wall_ns = 100_000_000 + (rank * 7919 + number * 104_729) % 1_000_000
        found += [
            LinkSample(
                **subject,
                local_rank=rank % LOCAL,
                hostname=f"node-{rank // LOCAL}",
                world_size=NODES * LOCAL,
                silent_s=0.2,
                has_left=False,
            ),
            PaceSample(
                **subject, step=10 * number, steps=10, wall_mean_ns=float(wall_ns), wall_max_ns=wall_ns
            ),
            ProcessSample(**subject, cpu_percent=101.0, rss_bytes=3 * 10**9),
        ]
    return found


def newest_rows(number: int) -> LiveRows:
    """Return the rows of the last steps of all ranks after that second; one rank is late in data."""
    base_S = np.array([5, 25, 60, 1, 8, 1]) * 1_000_000
    generator = np.random.default_rng(number)
    noise_RNS = generator.integers(0, 200_000, (NODES * LOCAL, KEPT_STEPS, len(base_S)))
    own_RNS = base_S + noise_RNS
    own_RNS[LATE_RANK, :, 0] += 20_000_000
    ready_RN = own_RNS[:, :, :3].sum(axis=2)
    own_RNS[:, :, 2] += ready_RN.max(axis=0) - ready_RN  # ranks wait for the latest one in backward
    step_N = np.arange(10 * number - KEPT_STEPS, 10 * number) + 1
    ranks = []
    for rank in range(NODES * LOCAL):
        node = rank // LOCAL
        row_NC = np.column_stack([step_N, own_RNS[rank].sum(axis=1), own_RNS[rank]])
        place = RankIdentity(rank, rank % LOCAL, node, f"node-{node}")
        ranks.append(LiveRank(place, DEFAULT_STAGES, row_NC, 0.1, 0.1))
    return LiveRows(RUN, time.time_ns(), NODES * LOCAL, tuple(ranks))


class SimulatedStream:
    """A job whose samples are appended every second, inside the ``with`` block."""

    def __init__(self, root: Path) -> None:
        self._log = MetricsLog(root, RUN)
        self._newest = newest_steps_path(root, RUN)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._append_samples)
        begin_ns = time.time_ns() - HISTORY_S * 10**9
        for number in range(1, HISTORY_S + 1):
            self._log.add(second(number, begin_ns + number * 10**9))

    def _append_samples(self) -> None:
        number = HISTORY_S
        while not self._stop.wait(1.0):
            number += 1
            self._log.add(second(number, time.time_ns()))
            write_newest_steps(self._newest, newest_rows(number))

    def __enter__(self) -> SimulatedStream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def busy_s(process: psutil.Process) -> float:
    """Return a process's CPU seconds per second, over ``WATCHED_S`` seconds."""
    before = process.cpu_times()
    begin = time.monotonic()
    time.sleep(WATCHED_S)
    after = process.cpu_times()
    taken = after.user + after.system - before.user - before.system
    return taken / (time.monotonic() - begin)


def until_read(address: str) -> None:
    """Wait until the server has read the history."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        time.sleep(1.0)
        try:
            with urllib.request.urlopen(f"{address}/live/{RUN}.json?span=60") as answer:
                at = datetime.fromisoformat(json.load(answer)["at"])
        except urllib.error.HTTPError as error:  # no sample has been read yet
            error.close()
            continue
        if (datetime.now(UTC) - at).total_seconds() < 3:
            return
    raise RuntimeError("the samples were not read in time")


def refreshes(address: str, pid: int, browser: Browser) -> Iterator[Result]:
    """Yield results for the overview and a node's tab, minus the cost without an open page."""
    process = psutil.Process(pid)
    until_read(address)
    alone = busy_s(process)
    for name, query in (("overview", ""), ("a node", "?tab=node:3")):
        page = browser.new_page(viewport={"width": 1480, "height": 1080})
        page.goto(f"{address}/live/{RUN}{query}")
        page.wait_for_selector(".js-plotly-plot .main-svg")
        page.get_by_text(f"Rank {LATE_RANK} holds the job in data").first.wait_for()
        page.wait_for_timeout(2_000)
        yield Result(f"a second of a live page, 1,024 ranks, {name}: server", busy_s(process) - alone, BAR_S)
        page.close()
