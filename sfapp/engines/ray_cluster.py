"""Run tasks on Ray."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
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

from sfapp.engines.tasks import WorkersLostError
from sfapp.errors import EngineError, SfappError

REPEATS = 3
"""Times that Ray runs a task again after its worker ended."""

_LOST = (WorkerCrashedError, NodeDiedError, ObjectLostError, OutOfMemoryError, LocalRayletDiedError)


class RayCluster:
    """Tasks of the Ray to which this process is connected."""

    def __init__(self) -> None:
        self._tasks: dict[Callable[[Any], Any], Any] = {}

    @property
    def slots(self) -> int:
        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def submit(self, function: Callable[[Any], Any], argument: Any) -> Any:
        if function not in self._tasks:
            self._tasks[function] = ray.remote(num_cpus=1, max_retries=REPEATS)(function)
        return self._tasks[function].remote(argument)

    def finished(self, tasks: Collection[Any], seconds: float) -> Collection[Any]:
        done, _ = ray.wait(list(tasks), num_returns=1, timeout=seconds)
        return list(done)

    def result(self, task: Any) -> Any:
        try:
            found = ray.get(task)
        except _LOST as lost:
            raise WorkersLostError(type(lost).__name__) from lost
        except RayTaskError as failed:
            if isinstance(failed.cause, SfappError):
                raise failed.cause from None
            raise EngineError(
                f"a task failed on a worker of Ray: {type(failed.cause).__name__}: {failed.cause}"
            ) from failed
        return found

    def cancel(self, task: Any) -> None:
        ray.cancel(task)


@contextmanager
def ray_tasks(address: str | None) -> Iterator[RayCluster]:
    """Connect to Ray if this process is not connected, and yield it; see ``packet_reader``."""
    is_ours = not ray.is_initialized()
    if is_ours:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except Exception as error:  # What Ray raises if its own processes do not start.
            raise EngineError(f"cannot connect to Ray: {error}") from error
    elif address is not None:
        raise EngineError("this process is connected to Ray already: leave the address out to use it")
    try:
        yield RayCluster()
    finally:
        if is_ours:
            ray.shutdown()
