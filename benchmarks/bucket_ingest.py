"""Measure an ingest from a bucket against the same packets in a local folder, with the S3 server on this
machine, and how soon a new packet in a large bucket is noticed."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import obstore
import psutil

from benchmarks.harness import Result, side_by_side
from benchmarks.ingest import PACKETS, RANKS, STEPS, on_cores, write_packets
from benchmarks.listing_server import listed_bucket
from benchmarks.s3_server import make_bucket, s3_environment, s3_server
from sfapp.storage import StoragePath, location, storage_of
from sfapp.store import Store
from sfapp.store.scan import REMOTE_LOOK_S

BUCKET = "packets"

OBJECTS, LARGE_RUNS = 100_000, 50
"""Objects and runs of a large bucket; each run has had a packet within the last hour."""


def run() -> Iterator[Result]:
    """Yield the result for 2,000 packets of 32 × 100 × 6, and for a bucket of 100,000 objects."""
    yield _noticed()
    with tempfile.TemporaryDirectory() as folder, s3_server() as port:
        root = Path(folder) / "packets"
        write_packets(root)
        os.environ.update(s3_environment(port))
        _upload(root, port)
        yield _ingested(root, "with the server on the same cores")
        with _apart_from_children():
            yield _ingested(root, "on one core, with the server on another")


def _ingested(root: Path, where: str) -> Result:
    """Return the ratio from opening an empty store file to closing it."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = count()

        def ingest(path: StoragePath) -> None:
            with Store.open([path], db=Path(folder) / f"{next(numbers)}.duckdb") as store:
                report = store.ingest()
            if report.added != PACKETS:
                raise RuntimeError(f"{report.added} of {PACKETS} packets ingested")

        bucket = location(f"s3://{BUCKET}")
        yardstick, value = side_by_side(lambda: ingest(root), lambda: ingest(bucket), runs=3)
    return Result(
        f"ingest of {PACKETS:,} packets of {RANKS} × {STEPS} × 6 from S3 / a folder, {where}",
        value,
        1.5,
        yardstick=yardstick,
    )


@contextmanager
def _apart_from_children() -> Iterator[None]:
    """Let this process use one core within the block, and its present children, the server, the others."""
    cores = sorted(os.sched_getaffinity(0))
    children = psutil.Process().children(recursive=True)
    for child in children:
        child.cpu_affinity(cores[1:])
    with on_cores(1):
        yield


def _noticed() -> Result:
    """Return the longest time until a new packet of a new and of an active run is listed.

    Raises:
        RuntimeError: it was not listed, or by a complete listing.
    """
    keys = [f"run-{index % LARGE_RUNS:03d}/{index // LARGE_RUNS:08d}.parquet" for index in range(OBJECTS)]
    with listed_bucket(keys) as bucket:
        os.environ.update(s3_environment(bucket.port))
        path = location(f"s3://{BUCKET}")
        follower = storage_of(path).follower(path, ".parquet")
        follower.look(everything=True)
        bucket.requests = 0
        new = {f"run-007/{OBJECTS // LARGE_RUNS:08d}.parquet", "run-new/00000000.parquet"}
        for key in new:
            bucket.add(key)
        begin = time.perf_counter()
        listing = follower.look(everything=False)
        seconds = time.perf_counter() - begin
    found = {str(file.path).removeprefix(f"{path}/") for file in listing.files}
    if listing.is_complete or not new <= found or bucket.requests > LARGE_RUNS + 2:
        raise RuntimeError(f"{bucket.requests} requests, complete: {listing.is_complete}")
    return Result(
        f"new packets among {OBJECTS:,} objects of {LARGE_RUNS} active runs noticed after",
        REMOTE_LOOK_S + 1 + seconds,  # The watcher looks about once a second whether a scan is due.
        10.0,
    )


def _upload(root: Path, port: int) -> None:
    store = make_bucket(port, BUCKET)
    with ThreadPoolExecutor(8) as pool:
        done = pool.map(
            lambda path: obstore.put(store, path.relative_to(root).as_posix(), path.read_bytes()),
            root.rglob("*.parquet"),
        )
        list(done)
