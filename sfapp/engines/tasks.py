"""Read and diagnose packets in tasks of a cluster.

The task is the function with which one machine reads a batch (``sfapp.store.verdict_builder.read_batch``):
packet files in, Arrow rows out. It is pure, so a cluster may run it on any worker, and again if a worker is
lost. What spans the windows of a run follows from the store afterwards, as it does for one machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol, TypeVar

from sfapp.accounting.kernels import limit_threads
from sfapp.errors import EngineError
from sfapp.heap import keep_freed_memory
from sfapp.storage import FoundFile
from sfapp.store.parallel_reader import PacketReader, read_whole
from sfapp.store.scan import batches
from sfapp.store.verdict_builder import PacketBatch, StoredWaits, refused_batch

FileBatch = Sequence[FoundFile]

AHEAD = 2
"""Number of submitted tasks per slot of the cluster: while a result is stored, the next task runs."""

WAIT_SECONDS = 0.5
"""Seconds after which a cancelled ingest is noticed."""

Task = TypeVar("Task", bound=Hashable)
Result = TypeVar("Result")


class WorkersLostError(Exception):
    """Every worker that ran a task ended; the cluster does not try again."""


class TaskCluster(Protocol[Task]):
    """What a cluster does with tasks."""

    @property
    def slots(self) -> int:
        """Number of tasks that run at the same time; it may change while the cluster scales."""

    def submit(self, function: Callable[[Any], Any], argument: Any) -> Task:
        """Start a function of a module with this argument."""

    def finished(self, tasks: Collection[Task], seconds: float) -> Collection[Task]:
        """Wait for at least one of these tasks, at most so long, and return those that have ended."""

    def result(self, task: Task) -> Any:
        """Return the result of an ended task.

        Raises:
            WorkersLostError: its workers ended.
            SfappError: the task failed, for example because a bucket refuses access.
        """

    def cancel(self, task: Task) -> None:
        """Stop a task whose result is not needed."""


def read_in_task(files: FileBatch) -> list[PacketBatch]:
    """Read and diagnose files; runs on a worker."""
    with _in_task():
        return list(read_whole(files))


def call_in_task(call: tuple[Callable[[Any], Any], Any]) -> Any:
    """Call a function with its argument; runs on a worker."""
    function, argument = call
    with _in_task():
        return function(argument)


@contextmanager
def _in_task() -> Iterator[None]:
    limit_threads(1)  # A worker has as many tasks as cores.
    with keep_freed_memory():
        yield


def results_on(
    cluster: TaskCluster[Task], function: Callable[[Any], Result], arguments: Sequence[Any]
) -> list[Result]:
    """Return the results of a function for all arguments, in their order, each in a task of a cluster.

    Raises:
        EngineError: all workers that ran a task ended.
        SfappError: a task failed.
    """
    found: dict[int, Result] = {}
    waiting = iter(enumerate(arguments))
    running: dict[Task, int] = {}
    try:
        while True:
            for index, argument in islice(waiting, max(0, AHEAD * cluster.slots - len(running))):
                running[cluster.submit(call_in_task, (function, argument))] = index
            if not running:
                return [found[index] for index in range(len(arguments))]
            for task in cluster.finished(running, WAIT_SECONDS):
                index = running.pop(task)
                try:
                    found[index] = cluster.result(task)
                except WorkersLostError as lost:
                    raise EngineError(
                        f"every worker that ran a task ended ({lost}): its packets may need more memory than "
                        "a worker has; try --engine local"
                    ) from lost
    finally:
        for task in running:
            cluster.cancel(task)


def reader_on(cluster: TaskCluster[Task]) -> PacketReader:
    """Return the function that reads packets on a cluster."""

    def read(
        files: Sequence[FoundFile], cancel: threading.Event, stored_waits: StoredWaits
    ) -> Generator[PacketBatch, None, None]:
        waiting, again = batches(files, tapered=True), list[FileBatch]()
        running: dict[Task, FileBatch] = {}
        try:
            while not cancel.is_set():
                while len(running) < AHEAD * cluster.slots:
                    batch = again.pop() if again else next(waiting, None)
                    if batch is None:
                        break
                    running[cluster.submit(read_in_task, batch)] = batch
                if not running:
                    return
                for task in cluster.finished(running, WAIT_SECONDS):
                    batch = running.pop(task)
                    try:
                        yield from cluster.result(task)
                    except WorkersLostError as lost:
                        if len(batch) == 1:
                            yield refused_batch(batch, f"every worker that read it ended: {lost}")
                        else:  # One of its files may be the cause; the others must be read.
                            middle = len(batch) // 2
                            again += batch[:middle], batch[middle:]
        finally:
            for task in running:
                cluster.cancel(task)

    return read
