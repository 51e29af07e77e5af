"""Measure an ingest with diagnosis against one DuckDB statement that reads the same files into a table."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import duckdb

from benchmarks.accounting import job
from benchmarks.harness import Result, side_by_side
from sfapp.packets import packet_path, write_packet
from sfapp.store import Store

PACKETS, RUNS, RANKS, STEPS = 2_000, 4, 32, 100
CORES = 2


def write_packets(root: Path, packets: int = PACKETS, ranks: int = RANKS, steps: int = STEPS) -> None:
    """Write windows of a few runs, every tenth of them 50 % slower."""
    for index in range(packets):
        number, run = divmod(index, RUNS)
        window = job(ranks, steps, seed=index)
        duration_SNR = window.duration_SNR * (3 if index % 10 == 9 else 2) // 2
        window = replace(
            window,
            manifest=replace(window.manifest, run_id=f"run-{run}", window=number),
            duration_SNR=duration_SNR,
            wall_NR=duration_SNR.sum(axis=0),
            step_N=window.step_N + number * steps,
        )
        write_packet(window, packet_path(root, window.run_id, number))


def run() -> Iterator[Result]:
    """Yield the result for 2,000 packets of 32 × 100 × 6, from opening an empty file to closing it, on two
    cores."""
    with tempfile.TemporaryDirectory() as folder, on_cores(CORES):
        root = Path(folder) / "packets"
        write_packets(root)
        numbers = count()

        def copy_into_table() -> None:
            with duckdb.connect(
                Path(folder) / f"{next(numbers)}.duckdb", config={"threads": CORES}
            ) as database:
                database.execute(f"CREATE TABLE cells AS SELECT * FROM read_parquet('{root}/**/*.parquet')")

        def ingest() -> None:
            with Store.open([root], db=Path(folder) / f"{next(numbers)}.duckdb") as store:
                report = store.ingest()
            if report.added != PACKETS:
                raise RuntimeError(f"{report.added} of {PACKETS} packets ingested")

        yardstick, value = side_by_side(copy_into_table, ingest, runs=3)
    yield Result(
        f"ingest of {PACKETS:,} packets of {RANKS} × {STEPS} × 6 / CREATE TABLE AS read_parquet",
        value,
        2.0,
        yardstick=yardstick,
    )


@contextmanager
def on_cores(number: int) -> Iterator[None]:
    """Limit this process, and the threads that it starts, to some of its cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:number])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
