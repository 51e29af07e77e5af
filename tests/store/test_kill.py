"""kill -9 at any moment loses nothing: the store opens, and the next ingest finishes the work."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from sfapp.store import Store
from tests.store.jobs import SLOW, contents, put, window

# Ingests in a process of its own, again and again, each time killed after the delay read from stdin. The
# libraries are loaded once, in the process that forks.
VICTIM = """
import os, signal, sys, time
from pathlib import Path
from sfapp.store import Store
packets, db = Path(sys.argv[1]), Path(sys.argv[2])
for line in sys.stdin:
    child = os.fork()
    if not child:
        with Store.open([packets], db=db) as store:
            store.ingest()
        os._exit(0)
    time.sleep(float(line))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    print("killed" if os.WIFSIGNALED(status) else "finished", flush=True)
"""


def test_a_killed_ingest_is_finished_by_the_next(tmp_path: Path) -> None:
    # given packets of two runs, and a store that was filled without interruption
    packets = tmp_path / "packets"
    for number in range(75):
        for run in ("a", "b"):
            put(packets, window(run, number, extra=SLOW if number % 7 == 3 else None))
    whole, killed = tmp_path / "whole.duckdb", tmp_path / "killed.duckdb"
    began = time.monotonic()
    with Store.open([packets], db=whole) as store:
        store.ingest()
    seconds = time.monotonic() - began
    # when another is killed at several moments
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(packets), str(killed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert victim.stdin is not None
    assert victim.stdout is not None
    fates = []
    for part in (0.1, 0.35, 0.5, 0.5, 0.6):
        victim.stdin.write(f"{part * seconds}\n")
        victim.stdin.flush()
        fates.append(victim.stdout.readline().strip())
        # then it opens every time, with whole windows in it
        with Store.open([packets], db=killed) as store:
            assert store.note == ""
            rows = store.timeline()
            assert all(store.diagnosis(row["run_id"], row["window"]).shares for row in rows[::50])
    victim.communicate()
    assert "killed" in fates
    # and the next ingest makes it what it would have been
    with Store.open([packets], db=killed) as store:
        report = store.ingest()
        assert report.added + report.unchanged == 150
    assert contents(killed) == contents(whole)
