"""Read packets in tasks of Ray."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayTaskError,
    WorkerCrashedError,
)

from sfapp.engines.tasks import FileBatch, WorkersLostError, read_in_task, reader_on
from sfapp.errors import EngineError, SfappError
from sfapp.store.parallel_reader import PacketReader
from sfapp.store.verdict_builder import PacketBatch

REPEATS = 3
"""Times that Ray runs a task again after its worker ended."""

_LOST = (WorkerCrashedError, NodeDiedError, ObjectLostError, OutOfMemoryError, LocalRayletDiedError)


class RayCluster:
    """Tasks of the Ray to which this process is connected."""

    def __init__(self) -> None:
        self._task: Any = ray.remote(num_cpus=1, max_retries=REPEATS)(read_in_task)

    @property
    def slots(self) -> int:
        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def submit(self, files: FileBatch) -> Any:
        return self._task.remote(files)

    def finished(self, tasks: Collection[Any], seconds: float) -> Collection[Any]:
        done, _ = ray.wait(list(tasks), num_returns=1, timeout=seconds)
        return list(done)

    def result(self, task: Any) -> Sequence[PacketBatch]:
        try:
            batches: Sequence[PacketBatch] = ray.get(task)
        except _LOST as lost:
            raise WorkersLostError(type(lost).__name__) from lost
        except RayTaskError as failed:
            if isinstance(failed.cause, SfappError):
                raise failed.cause from None
            raise EngineError(
                f"a task failed on a worker of Ray: {type(failed.cause).__name__}: {failed.cause}"
            ) from failed
        return batches

    def cancel(self, task: Any) -> None:
        ray.cancel(task)


@contextmanager
def ray_reader(address: str | None) -> Iterator[PacketReader]:
    """Connect to Ray if this process is not connected, and yield a reader; see ``packet_reader``."""
    is_ours = not ray.is_initialized()
    if is_ours:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise EngineError(f"cannot connect to Ray: {error}") from error
    elif address is not None:
        raise EngineError("this process is connected to Ray already: leave the address out to use it")
    try:
        yield reader_on(RayCluster())
    finally:
        if is_ours:
            ray.shutdown()
