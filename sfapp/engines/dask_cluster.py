"""Read packets in tasks of Dask."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dask.config
from distributed import Client, default_client, wait
from distributed.scheduler import KilledWorker

from sfapp.engines.tasks import FileBatch, WorkersLostError, read_in_task, reader_on
from sfapp.errors import EngineError, SfappError
from sfapp.store.parallel_reader import PacketReader
from sfapp.store.verdict_builder import PacketBatch

CONNECT_SECONDS = 10


class DaskCluster:
    """Tasks of a Dask client. Dask runs a task again after its worker ended (``allowed-failures``)."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def slots(self) -> int:
        return max(1, sum(map(int, self._client.nthreads().values())))

    def submit(self, files: FileBatch) -> Any:
        return self._client.submit(read_in_task, files, pure=False)

    def finished(self, tasks: Collection[Any], seconds: float) -> Collection[Any]:
        try:
            done = wait(list(tasks), timeout=seconds, return_when="FIRST_COMPLETED").done
        except TimeoutError:
            return ()
        return list(done)

    def result(self, task: Any) -> Sequence[PacketBatch]:
        try:
            batches: Sequence[PacketBatch] = task.result()
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
        return batches

    def cancel(self, task: Any) -> None:
        task.cancel()


@contextmanager
def dask_reader(address: str | None) -> Iterator[PacketReader]:
    """Connect to Dask if there is no client yet, and yield a reader; see ``packet_reader``."""
    try:
        client, is_ours = default_client(), False
    except ValueError:
        client, is_ours = _connected(address), True
    else:
        if address is not None:
            raise EngineError("this process has a Dask client already: leave the address out to use it")
    try:
        yield reader_on(DaskCluster(client))
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
