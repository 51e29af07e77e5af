"""Measure the time from a command to its first result: ``sfapp analyze`` of a small folder, and ``sfapp
serve``."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.accounting import job
from benchmarks.harness import Result, timed
from sfapp.packets import packet_path, write_packet

SAMPLE = Path(__file__).parents[1] / "sample_data" / "packets"
WINDOWS, RANKS = 10, 4
RUNS = 7

COMMAND = [sys.executable, "-c", "from sfapp.cli import main; main()"]


def run() -> Iterator[Result]:
    """Yield results for both commands as whole processes with warm files, medians of 7 runs after an
    uncounted one."""
    # Without this, every start would compile sfapp again.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(WINDOWS):
            window = job(RANKS, seed=number)
            manifest = replace(window.manifest, window=number)
            write_packet(replace(window, manifest=manifest), packet_path(Path(folder), "bench", number))
        analyze = [
            timed(
                lambda: subprocess.run(
                    [*COMMAND, "analyze", folder], check=True, stdout=subprocess.DEVNULL, env=environment
                )
            )
            for _ in range(RUNS + 1)
        ]
    yield Result(f"sfapp analyze, {WINDOWS} windows of {RANKS} ranks", statistics.median(analyze[1:]), 0.7)
    with tempfile.TemporaryDirectory() as folder:
        serve = [_first_answer(Path(folder) / "store.duckdb", environment) for _ in range(RUNS + 1)]
    yield Result("sfapp serve, to the first response of the sample job", statistics.median(serve[1:]), 1.5)


def _first_answer(store: Path, environment: dict[str, str]) -> float:
    """Return the seconds from the command to the first response."""
    command = [*COMMAND, "serve", str(SAMPLE), "--port", "0", "--no-browser", "--db", str(store)]
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as server:
        try:
            assert server.stdout is not None
            address = next(
                word for line in server.stdout for word in line.split() if word.startswith("http://")
            )
            while True:
                try:
                    with urllib.request.urlopen(address, timeout=10) as answer:
                        answer.read()
                    return time.perf_counter() - begin
                except urllib.error.URLError:
                    time.sleep(0.01)
        finally:
            server.terminate()
