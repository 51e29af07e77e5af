"""Read packets on a cluster of Ray or Dask instead of on this machine's cores (docs/fleet.md)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

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
    if engine == "local":
        if address is not None:
            raise EngineError("an address is for the engines ray and dask")
        yield read_all
        return
    if engine not in ENGINES:
        raise EngineError(f"no engine {engine!r}; there are: {', '.join(ENGINES)}")
    try:
        if engine == "ray":
            from sfapp.engines.ray_cluster import ray_reader as connect
        else:
            from sfapp.engines.dask_cluster import dask_reader as connect
    except ImportError as missing:
        translated = MissingExtraError.of(missing, f"the engine {engine}")
        if translated is None:
            raise
        raise translated from missing
    with connect(address) as reader:
        yield reader
