"""Measure an ingest on a cluster of two workers against one process on one core, and what tasks add.

Needs ``pip install 'sfapp[ray,dask]'``. ``python -m benchmarks engine_ingest:dask`` measures Dask only.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Result, side_by_side
from benchmarks.ingest import on_cores, write_packets
from sfapp.engines import packet_reader
from sfapp.engines.tasks import read_in_task
from sfapp.storage import location
from sfapp.store import Store
from sfapp.store.parallel_reader import PacketReader, read_all
from sfapp.store.scan import FollowedRoot, batches, scan

PACKETS = 4_000
WORKERS = 2
LARGE, LARGE_RANKS, LARGE_STEPS = 16, 512, 100
"""Packets of about 1 MB, and their number."""


def ray_cluster() -> Callable[[], None]:
    """Start Ray with two workers; return what stops it."""
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    return ray.shutdown


def dask_cluster() -> Callable[[], None]:
    """Start Dask with two workers; return what stops it."""
    from distributed import Client

    client = Client(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None)
    return lambda: client.close()


CLUSTERS = {"ray": ray_cluster, "dask": dask_cluster}


def run(*engines: str) -> Iterator[Result]:
    """Yield the results of these engines, or of all."""
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        write_packets(small, PACKETS)
        write_packets(large, LARGE, LARGE_RANKS, LARGE_STEPS)
        for engine in engines or CLUSTERS:
            stop = CLUSTERS[engine]()
            try:
                with packet_reader(engine) as reader:
                    yield speed_up(engine, reader, small)
                    yield overhead(engine, reader, large)
            finally:
                stop()


def speed_up(engine: str, reader: PacketReader, root: Path) -> Result:
    """Return how long the cluster takes, relative to one process on one core; both write a new store."""

    def ingest(by: PacketReader) -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            Store.open([root], Path(folder) / "store.duckdb") as store,
        ):
            if store.ingest(reader=by).added != PACKETS:
                raise RuntimeError(f"not all of {PACKETS} packets were read")

    def alone() -> None:
        with on_cores(1):
            ingest(read_all)

    yardstick, value = side_by_side(alone, lambda: ingest(reader), runs=3)
    return Result(
        f"ingest of {PACKETS:,} packets on {engine}, {WORKERS} workers / one core",
        value,
        1 / 1.7,
        yardstick=yardstick,
    )


def overhead(engine: str, reader: PacketReader, root: Path) -> Result:
    """Return the time of tasks, one after the other, relative to the same calls here."""
    found = scan([FollowedRoot(location(root)).look(everything=True)], {}, {}).fresh

    def here() -> None:
        for batch in batches(found, tapered=True):
            read_in_task(batch)

    def there() -> None:
        cluster: Any = _cluster(engine)
        for batch in batches(found, tapered=True):
            task = cluster.submit(read_in_task, batch)
            while not cluster.finished([task], 10.0):
                time.sleep(0)
            cluster.result(task)

    yardstick, value = side_by_side(here, there, runs=5)
    size = sum(file.stamp.size for file in found) / len(found) / 1e6
    return Result(
        f"tasks of {engine} with packets of {size:.1f} MB / the same calls", value, 1.1, yardstick=yardstick
    )


def _cluster(engine: str) -> Any:
    if engine == "ray":
        from sfapp.engines.ray_cluster import RayCluster

        return RayCluster()
    from distributed import default_client

    from sfapp.engines.dask_cluster import DaskCluster

    return DaskCluster(default_client())
