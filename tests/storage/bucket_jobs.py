"""Jobs whose packets go to a bucket."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import sfapp
from sfapp.packets import read_windows
from sfapp.storage import location

STEPS = 2
"""Steps of a window."""


def record(url: str, windows: int = 1, **options: object) -> sfapp.Recorder:
    """Return the recorder of a job that has recorded some windows, each of which is on disk."""
    settings: dict[str, object] = {"run_id": "run", "window_steps": STEPS, "timeout": 5.0, **options}
    perf = sfapp.Recorder(url, **settings)  # type: ignore[arg-type]  # the options of a test
    train(perf, windows)
    return perf


def train(perf: sfapp.Recorder, windows: int) -> None:
    """Record windows, each of which is on disk before the next begins."""
    for _ in range(windows):
        for _ in range(STEPS):
            with perf.step(), perf.stage("data.next_wait"):
                pass
        until(lambda: not perf.pending)


def numbers_in(url: str) -> list[int]:
    """Return the numbers of the windows below an address, of which no file is in conflict with another."""
    loaded = read_windows([location(url)])
    assert not loaded.quarantined
    assert not loaded.conflicts
    return [each.window.number for each in loaded.windows]


def waiting_in(spool: Path) -> list[str]:
    """Return the names of the packets that wait in any spool, oldest window first."""
    paths = [path for path in spool.rglob("*") if ".parquet" in path.name]
    return sorted(path.name.strip(".").removesuffix(".uploading") for path in paths)


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)


def main() -> None:
    """Record windows, report that they are on disk, and wait to be killed: ``URL WINDOWS``."""
    perf = record(sys.argv[1], int(sys.argv[2]))
    until(lambda: any("packets wait in" in failure for failure in perf.failures))
    print("recorded", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
