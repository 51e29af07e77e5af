"""Two nodes start ``sfapp run``, each for itself, and one page shows them both."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Page, expect

from benchmarks.namespaces import MANAGE, Cluster, unavailable_reason
from tests.app.served import Served, served

pytestmark = [pytest.mark.browser, pytest.mark.torchrun]

CLI = "from sfapp.cli import main; main()"
TRAIN = Path(__file__).parents[3] / "examples" / "train.py"
NODES, LOCAL, WINDOW = 2, 2, 20
SLOW = 3


class TwoNodeJob:
    """The example on two nodes: network namespaces where they can be made, else both on loopback."""

    def __init__(self, folder: Path, resources: ExitStack) -> None:
        self._folder = folder
        resources.callback(self._end)
        cluster = None if unavailable_reason() else resources.enter_context(Cluster(NODES))
        line = [sys.executable, "-c", CLI, "run", "--run-id", "job", "--window-steps", str(WINDOW)]
        line += ["--nnodes", str(NODES), "--nproc-per-node", str(LOCAL)]
        if cluster is None:
            line += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
            line += ["--aggregator-port", str(free_port())]
        else:
            line += ["--master-addr", cluster.address(0), "--aggregator-host", cluster.address(0, MANAGE)]
        script = [str(TRAIN), "--steps", "100000", "--slow-rank", str(SLOW), "--slow-ms", "40"]
        options: dict[str, Any] = {
            "cwd": folder,
            "stdout": subprocess.DEVNULL,
            "stderr": (folder / "said").open("w"),
        }
        resources.enter_context(options["stderr"])
        self._launched = []
        for node in range(NODES):
            command = [*line, "--node-rank", str(node), *script]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            self._launched.append(
                subprocess.Popen(command, env=environment, **options)
                if cluster is None
                else cluster.start(node, command, **options)
            )

    def rank(self, number: int) -> psutil.Process:
        """The process that trains as this rank."""
        (found,) = (process for process in self._processes() if number_of(process) == number)
        return found

    def check(self) -> None:
        """Whether it still runs."""
        for process in self._launched:
            assert process.poll() is None, (self._folder / "said").read_text()[-3000:]

    def _processes(self) -> list[psutil.Process]:
        """Whatever works in its folder."""
        found = psutil.process_iter(["cwd"])
        return [process for process in found if process.info["cwd"] == str(self._folder)]

    def _end(self) -> None:
        for process in self._processes():
            process.kill()
        for launched in self._launched:
            launched.wait(10)


def number_of(process: psutil.Process) -> int | None:
    """Which rank a process is; None where it is none."""
    try:
        is_rank = "sfapp.recorder.auto" in process.cmdline()
        return int(process.environ()["RANK"]) if is_rank else None
    except psutil.Error:  # it has ended meanwhile
        return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("nodes")
    (found / "packets").mkdir()
    return found


@pytest.fixture(scope="module")
def job(folder: Path) -> Iterator[TwoNodeJob]:
    with ExitStack() as resources:
        yield TwoNodeJob(folder, resources)


@pytest.fixture(scope="module")
def server(folder: Path, job: TwoNodeJob, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(folder / "packets", "--memory", cwd=tmp_path_factory.mktemp("nodes-cwd")) as server:
        yield server


def reporting_ranks(server: Served) -> list[Any]:
    """Return the ranks that the page's JSON lists."""
    try:
        with urllib.request.urlopen(f"{server.url}live/job.json", timeout=20) as answer:
            ranks: list[Any] = json.load(answer)["ranks"]
            return ranks
    except urllib.error.HTTPError as error:  # there is nothing yet
        error.close()
        return []


def test_both_nodes_are_on_one_page_with_the_slow_and_the_silent_rank(
    page: Page, job: TwoNodeJob, server: Served
) -> None:
    # Given a job that streams from two nodes
    while len(reporting_ranks(server)) < NODES * LOCAL:
        job.check()
        page.wait_for_timeout(200)
    # Then all its ranks are in one grid
    page.goto("/live/job")
    standing = page.locator(".standing")
    expect(standing).to_have_text(f"Live: {NODES * LOCAL} ranks reporting.")
    tiles = page.locator(".figure", has=page.get_by_role("heading", name="Live ranks", exact=True))
    for rank in range(NODES * LOCAL):
        expect(tiles).to_contain_text(f"rank {rank}")
    # And the slow one is named
    expect(page.locator("a[href^='/w/job/']")).to_contain_text(f"on rank {SLOW}", timeout=60_000)
    # And each node has its tab
    for node in range(NODES):
        page.get_by_role("tab", name=f"Node {node}").click()
        expect(page.get_by_role("heading", name=f"Live ranks of node {node}")).to_be_visible()
    # When a rank stops, the duration of its silence is shown
    stopped = job.rank(SLOW)
    stopped.send_signal(signal.SIGSTOP)
    try:
        silences = page.locator(".silences")
        expect(silences).to_contain_text(f"rank {SLOW}: no data for", timeout=60_000)
        expect(standing).to_have_text(f"1 of {NODES * LOCAL} ranks silent.")
    finally:
        stopped.send_signal(signal.SIGCONT)
    # And that it is back
    expect(standing).to_have_text(f"Live: {NODES * LOCAL} ranks reporting.", timeout=60_000)
    job.check()
