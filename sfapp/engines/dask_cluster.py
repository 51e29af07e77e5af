"""Run tasks on Dask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any

import dask.config
from distributed import Client, default_client, wait
from distributed.scheduler import KilledWorker

from sfapp.engines.tasks import WorkersLostError
from sfapp.errors import EngineError, SfappError
from sfapp.terminal import first_line

CONNECT_SECONDS = 10


class DaskCluster:
    """Tasks of a Dask client. Dask runs a task again after its worker ended (``allowed-failures``)."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def slots(self) -> int:
        with _while_connected():
            return max(1, sum(map(int, self._client.nthreads().values())))

    def submit(self, function: Callable[[Any], Any], argument: Any) -> Any:
        with _while_connected():
            return self._client.submit(function, argument, pure=False)

    def finished(self, tasks: Collection[Any], seconds: float) -> Collection[Any]:
        with _while_connected():
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
        except CancelledError as lost:
            raise _disconnected(lost) from lost
        except Exception as failed:
            raise EngineError(
                f"a task failed on a worker of Dask: {type(failed).__name__}: {failed}"
            ) from failed
        finally:
            task.release()
        return found

    def cancel(self, task: Any) -> None:
        with suppress(OSError, RuntimeError, CancelledError):  # There is no cluster any more.
            task.cancel()


@contextmanager
def _while_connected() -> Iterator[None]:
    """Run a call to the scheduler.

    Raises:
        EngineError: the scheduler has ended, or the connection is lost; Dask cancels all tasks then.
    """
    try:
        yield
    except (OSError, RuntimeError, CancelledError) as lost:
        raise _disconnected(lost) from lost


def _disconnected(lost: BaseException) -> EngineError:
    reason = first_line(str(lost)) or type(lost).__name__
    return EngineError(
        f"the connection to Dask was lost ({reason}): repeat the command once the cluster is there again"
    )


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
