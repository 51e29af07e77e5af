"""Read packets on a cluster of Ray or Dask instead of on this machine's cores (docs/fleet.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Literal, get_args

from sfapp.engines.tasks import reader_on, results_on
from sfapp.errors import EngineError, MissingExtraError
from sfapp.store.parallel_reader import PacketReader, read_all

EngineName = Literal["local", "ray", "dask"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)


@contextmanager
def packet_reader(engine: str = "local", address: str | None = None) -> Iterator[PacketReader]:
    """Connect to a cluster, and yield the function that reads packets on it; disconnect at the end.

    Args:
        engine: one of ``ENGINES``; ``local`` uses the cores of this machine.
        address: of the cluster. If None: the one of the environment (``RAY_ADDRESS``,
            ``DASK_SCHEDULER_ADDRESS``), else processes on this machine. A Ray that is initialised in this
            process, and a Dask client that exists, are used as they are and stay.

    Raises:
        EngineError: there is no such engine, or the cluster cannot be reached.
        MissingExtraError: the library is not installed.
    """
    if engine == "local" and address is None:
        yield read_all
        return
    with _tasks_of(engine, address) as cluster:
        yield reader_on(cluster)


@contextmanager
def task_runner(engine: str, address: str | None) -> Iterator[Any]:
    """Connect to a cluster, and yield what calls a function of a module with each of some arguments there and
    returns the results in their order; disconnect at the end.

    Args:
        engine: ``ray`` or ``dask``. address: as of ``packet_reader``.

    Raises:
        EngineError, MissingExtraError: as ``packet_reader``.
    """
    with _tasks_of(engine, address) as cluster:
        yield partial(results_on, cluster)


def _tasks_of(engine: str, address: str | None) -> AbstractContextManager[Any]:
    """Return the connection to a cluster."""
    if engine == "local":
        raise EngineError("an address is for the engines ray and dask")
    if engine not in ENGINES:
        raise EngineError(f"no engine {engine!r}; there are: {', '.join(ENGINES)}")
    connect: Callable[[str | None], AbstractContextManager[Any]]
    try:
        if engine == "ray":
            from sfapp.engines.ray_cluster import ray_tasks as connect
        else:
            from sfapp.engines.dask_cluster import dask_tasks as connect
    except ImportError as missing:
        translated = MissingExtraError.of(missing, f"the engine {engine}")
        if translated is None:
            raise
        raise translated from missing
    return connect(address)
