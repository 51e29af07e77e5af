"""Read and diagnose packets in tasks of a cluster.

The task is the function with which one machine reads a batch (``sfapp.store.verdict_builder.read_batch``):
packet files in, Arrow rows out. It is pure, so a cluster may run it on any worker, and again if a worker is
lost. What spans the windows of a run follows from the store afterwards, as it does for one machine.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Generator, Hashable, Sequence
from typing import Protocol, TypeVar

from sfapp.accounting.kernels import limit_threads
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


class WorkersLostError(Exception):
    """Every worker that ran a task ended; the cluster does not try again."""


class TaskCluster(Protocol[Task]):
    """What a cluster does with tasks."""

    @property
    def slots(self) -> int:
        """Number of tasks that run at the same time; it may change while the cluster scales."""

    def submit(self, files: FileBatch) -> Task:
        """Start ``read_in_task`` with these files."""

    def finished(self, tasks: Collection[Task], seconds: float) -> Collection[Task]:
        """Wait for at least one of these tasks, at most so long, and return those that have ended."""

    def result(self, task: Task) -> Sequence[PacketBatch]:
        """Return what an ended task has read.

        Raises:
            WorkersLostError: its workers ended.
            SfappError: reading failed, for example because a bucket refuses access.
        """

    def cancel(self, task: Task) -> None:
        """Stop a task whose result is not needed."""


def read_in_task(files: FileBatch) -> list[PacketBatch]:
    """Read and diagnose files; runs on a worker."""
    limit_threads(1)  # A worker has as many tasks as cores.
    return list(read_whole(files))


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
                    running[cluster.submit(batch)] = batch
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
