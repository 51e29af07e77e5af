"""Measure the pages of a large fleet: a dataset of generated verdicts, a real server process, HTTP requests.

``python -m benchmarks.large_fleet --runs 2000 --windows 500`` is a million windows. The dataset is made from
the verdicts on two real runs, one of them with a late host, under other names.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pyarrow as pa

from benchmarks.generated_jobs import noisy_durations, window_on_hosts
from sfapp.model import Window
from sfapp.packets import packet_path, write_packet
from sfapp.packets.paths import folder_name
from sfapp.store import Store, ingest_to_dataset
from sfapp.store.verdict_encoding import Verdicts, decode_verdicts, encode_verdicts
from sfapp.store.verdict_writer import FILE_NAME

RANKS, NODES, STEPS = 64, 8, 20
TEMPLATES = 20
"""Windows of a real run, whose verdicts are repeated."""

HOSTS = 1_000
LATE_RUNS = 10
"""Every so many runs has a late host for a twentieth of its windows."""

WARM_S, COLD_S, MOST_BYTES = 0.3, 2.0, 1.5e9
PAGES = ("/fleet", "/", "/fleet.json")


def _window(run: str, number: int, *, is_late: bool) -> Window:
    """Return a window of a job whose ranks differ by noise only, except that one may be late."""
    durations = noisy_durations(RANKS, STEPS, number)
    if is_late:
        durations[0, :, 5] += 30_000_000
    return window_on_hosts(run, number, durations, [f"host-{node:04d}" for node in range(NODES)])


def templates(folder: Path) -> dict[str, Verdicts]:
    """Return the verdicts on a healthy run and on one with a late rank in its second half."""
    for run in ("healthy", "late"):
        for number in range(TEMPLATES):
            is_late = run == "late" and number >= TEMPLATES // 2
            write_packet(_window(run, number, is_late=is_late), packet_path(folder, run, number))
    ingest_to_dataset([folder], folder / "verdicts")
    every = [decode_verdicts(path.read_bytes()) for path in (folder / "verdicts").rglob("*.parquet")]
    return {one.table.column("run_id")[0].as_py(): one for one in every}


def write_fleet(folder: Path, runs: int, windows: int) -> None:
    """Write a dataset of so many runs, each in one file.

    The first windows of a run are those of the healthy one, and no later window may be one that the others
    are compared with, so that the reference stays that of the healthy run.
    """
    with tempfile.TemporaryDirectory() as scratch:
        made = templates(Path(scratch))
    (reference,) = made["healthy"].references
    began = datetime(2026, 1, 1, tzinfo=UTC)
    healthy = made["healthy"].table.to_pylist()
    late = made["late"].table.to_pylist()[TEMPLATES // 2 :]
    for run in range(runs):
        run_id = f"job-{run:05d}"
        rows = []
        for number in range(windows):
            is_late = run % LATE_RUNS == 0 and windows // 2 <= number < windows // 2 + windows // 20
            source = late if is_late else healthy
            at = began + timedelta(hours=run, minutes=number)
            row = _renamed(source[number % len(source)], run, run_id, number, at)
            rows.append(row if number < TEMPLATES else row | {"complete": False, "is_reference": False})
        day = f"day={began + timedelta(hours=run):%Y-%m-%d}"
        path = folder / f"run={folder_name(run_id)}" / day / FILE_NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist(rows, schema=made["healthy"].table.schema)
        of_run = msgspec.structs.replace(reference, run_id=run_id)
        path.write_bytes(encode_verdicts(Verdicts(table, (of_run,))))


def _renamed(row: dict[str, Any], run: int, run_id: str, number: int, at: datetime) -> dict[str, Any]:
    """Return a row as that of another window, on other hosts."""
    before = f'"run_id":"{row["run_id"]}","window":{row["window"]},'
    diagnosis = row["diagnosis"]
    if before not in diagnosis:
        raise RuntimeError("a diagnosis does not begin with its window")
    hosts = {f"host-{node:04d}": f"host-{(run * 7 + node) % HOSTS:04d}" for node in range(NODES)}
    diagnosis = diagnosis.replace(before, f'"run_id":"{run_id}","window":{number},', 1)
    path = f"/packets/{run_id}/{number:08d}.parquet"
    named = {name: hosts.get(row[name]) for name in ("aim_hostname", "leader_hostname", "culprit_hostname")}
    moment = at.replace(tzinfo=None)
    return (
        row
        | named
        | {
            "run_id": run_id,
            "window": number,
            "started_at": moment,
            "ended_at": moment + timedelta(minutes=1),
            "diagnosis": re.sub(r"host-\d{4}", lambda match: hosts[match[0]], diagnosis),
            "packet_files": [
                file | {"path": path, "hostnames": sorted(hosts.values())} for file in row["packet_files"]
            ],
        }
    )


def read_into(folder: Path, db: Path) -> None:
    """Fill a store from a dataset."""
    with Store.open([folder], db) as store:
        store.ingest()


def served(folder: Path, db: Path) -> Iterator[str]:
    """Serve a store; yield the time until the server answers, then those of its pages, and its memory."""
    command = [
        sys.executable,
        "-c",
        "from sfapp.cli import main; main()",
        "serve",
        str(folder),
        "--db",
        str(db),
    ]
    began = time.perf_counter()
    process = subprocess.Popen([*command, "--port", "0", "--no-browser"], stdout=subprocess.PIPE, text=True)
    try:
        printed = iter(process.stdout or ())
        found = next((match for line in printed if (match := re.search(r"http://\S+", line))), None)
        if found is None:
            raise RuntimeError("the server ended without an address")
        yield f"{'until the server answers':<40} {time.perf_counter() - began:8.2f} s"
        base = found[0].rstrip("/")
        for page in PAGES:
            yield _line(f"{page} first", _seconds(base + page), COLD_S)
        for page in PAGES:
            warm = statistics.median(_seconds(base + page) for _ in range(5))
            yield _line(f"{page} warm", warm, WARM_S)
        held = psutil.Process(process.pid).memory_info().rss
        yield f"{'memory':<40} {held / 1e9:8.2f} GB {_verdict(held, MOST_BYTES)}"
    finally:
        process.terminate()
        process.wait(timeout=60)


def _seconds(address: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        answer.read()
    return time.perf_counter() - began


def _line(name: str, seconds: float, bar: float) -> str:
    return f"{name:<40} {seconds:8.2f} s  {_verdict(seconds, bar)}"


def _verdict(value: float, bar: float) -> str:
    return "holds" if value <= bar else "MISSED"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--windows", type=int, default=500)
    parser.add_argument("--at", type=Path, help="folder that keeps the dataset and the store between calls")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sfapp-fleet-") as scratch:
        place = chosen.at or Path(scratch)
        folder, db = place / "verdicts", place / "store.duckdb"
        if not folder.exists():
            began = time.perf_counter()
            write_fleet(folder, chosen.runs, chosen.windows)
            size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
            print(f"{'dataset':<40} {size / 1e9:8.2f} GB, in {time.perf_counter() - began:.0f} s", flush=True)
        if not db.exists():
            began = time.perf_counter()
            read_into(folder, db)
            print(f"{'dataset read into a store':<40} {time.perf_counter() - began:8.2f} s", flush=True)
            print(f"{'store':<40} {db.stat().st_size / 1e9:8.2f} GB", flush=True)
        for line in served(folder, db):
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
