"""Run tasks on Dask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import dask.config
from distributed import Client, default_client, wait
from distributed.scheduler import KilledWorker

from sfapp.engines.tasks import WorkersLostError
from sfapp.errors import EngineError, SfappError

CONNECT_SECONDS = 10


class DaskCluster:
    """Tasks of a Dask client. Dask runs a task again after its worker ended (``allowed-failures``)."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def slots(self) -> int:
        return max(1, sum(map(int, self._client.nthreads().values())))

    def submit(self, function: Callable[[Any], Any], argument: Any) -> Any:
        return self._client.submit(function, argument, pure=False)

    def finished(self, tasks: Collection[Any], seconds: float) -> Collection[Any]:
        try:
            done = wait(list(tasks), timeout=seconds, return_when="FIRST_COMPLETED").done
        except TimeoutError:
            return ()
        return list(done)

    def result(self, task: Any) -> Any:
        try:
            found = task.result()
        except KilledWorker as lost:
            raise WorkersLostError("KilledWorker") from lost
        except SfappError:
            raise
        except Exception as failed:
            raise EngineError(
                f"a task failed on a worker of Dask: {type(failed).__name__}: {failed}"
            ) from failed
        finally:
            task.release()
        return found

    def cancel(self, task: Any) -> None:
        task.cancel()


@contextmanager
def dask_tasks(address: str | None) -> Iterator[DaskCluster]:
    """Connect to Dask if there is no client yet, and yield it; see ``packet_reader``."""
    try:
        client, is_ours = default_client(), False
    except ValueError:
        client, is_ours = _connected(address), True
    else:
        if address is not None:
            raise EngineError("this process has a Dask client already: leave the address out to use it")
    try:
        yield DaskCluster(client)
    finally:
        if is_ours:
            client.close()


def _connected(address: str | None) -> Any:
    """Return a client of a cluster: at the address, the configured one, or processes of this machine."""
    address = address or dask.config.get("scheduler-address", None)
    if address is None:
        return Client(threads_per_worker=1, dashboard_address=None)
    try:
        return Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise EngineError(f"cannot connect to Dask at {address}: {error}") from error
