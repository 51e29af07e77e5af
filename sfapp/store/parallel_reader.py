"""Read and diagnose many packets on all cores.

Reading and diagnosing is mostly computation, and Python lets one thread of a process compute at a time. A
large ingest therefore starts helper processes that receive batches of file names on standard input and
answer with rows. They are plain children, not ``multiprocessing``: no code of the caller's script runs in
them. They end when their input ends, even if this process is killed, and this process reads what a failed
helper could not.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, repeat
from queue import SimpleQueue
from typing import IO

from sfapp.accounting.kernels import limit_threads
from sfapp.storage import FoundFile
from sfapp.store.scan import batches
from sfapp.store.verdict_builder import PacketBatch, StoredWaits, read_batch

FileBatch = Sequence[FoundFile]
Reader = Callable[[FileBatch], PacketBatch]
PacketReader = Callable[
    [Sequence[FoundFile], threading.Event, StoredWaits], Generator[PacketBatch, None, None]
]
"""Function that reads and diagnoses files as ``read_all`` does, here or on a cluster."""

FILES_A_HELPER = 800
"""Number of files from which a helper process is worthwhile: loading its libraries takes as long as reading
them."""

MAX_HELPERS = 7

_READY = b"ready\n"

_COLLECTED_AFTER = (100_000, 50, 50)
"""Garbage is collected after this many new objects, and of older ones after as many collections."""


def read_all(
    files: Sequence[FoundFile], cancel: threading.Event, stored_waits: StoredWaits
) -> Generator[PacketBatch, None, None]:
    """Yield batches as they are read and diagnosed, in any order; stop early when cancelled.

    Args:
        stored_waits: see ``read_batch``. Not used in a large ingest, which usually starts with an empty store
            and has batches large enough to determine waits from their own windows.
    """
    helpers = min(_cores() - 1, len(files) // FILES_A_HELPER, MAX_HELPERS)
    if helpers > 0:
        yield from _read_together(batches(files, tapered=True), helpers, cancel)
        return
    for file_batch in batches(files):
        for batch in read_whole(file_batch, partial(read_batch, stored_waits=stored_waits)):
            yield batch
            if cancel.is_set():
                return


def read_whole(file_batch: FileBatch, reader: Reader = read_batch) -> Iterator[PacketBatch]:
    """Yield what is read of a batch until all of it is; usually all at once."""
    while file_batch:
        batch = reader(file_batch)
        yield batch
        file_batch = file_batch[max(1, len(batch.found)) :]


def _read_together(
    file_batches: Iterator[FileBatch], helpers: int, cancel: threading.Event
) -> Iterator[PacketBatch]:
    """Read in this process from the start, and in each helper as soon as it is ready."""
    processes = [helper for helper in (_ReaderProcess.start() for _ in range(helpers)) if helper is not None]
    ahead = 2 * (helpers + 1)  # Results wait in memory while batches are committed.
    with (
        _rare_collections(),
        _one_core() as here,
        ThreadPoolExecutor(ahead + helpers, "sfapp-ingest") as pool,
    ):
        free: SimpleQueue[Reader] = SimpleQueue()
        free.put(lambda file_batch: here.submit(read_batch, file_batch).result())

        def read(file_batch: FileBatch) -> list[PacketBatch]:
            reader = free.get()
            try:
                return list(read_whole(file_batch, reader))
            finally:
                free.put(reader)

        def join(helper: _ReaderProcess) -> None:
            if helper.is_ready():
                free.put(helper.read)

        try:
            for helper in processes:
                pool.submit(join, helper)
            pending: set[Future[list[PacketBatch]]] = set()
            for file_batch in chain(file_batches, repeat(None)):
                if file_batch is not None:
                    pending.add(pool.submit(read, file_batch))
                if cancel.is_set() or not pending:
                    return
                if file_batch is None or len(pending) >= ahead:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield from (batch for future in done for batch in future.result())
        finally:
            # Helpers are stopped first, so that every thread that waits for a helper ends at once.
            for helper in processes:
                helper.stop()
            pool.shutdown(cancel_futures=True)


@contextmanager
def _one_core() -> Iterator[ThreadPoolExecutor]:
    """Return an executor of one thread whose array kernels stay in that thread.

    With a helper on every other core, additional threads slow each other down: an ingest on two cores took a
    fifth longer.
    """
    with ThreadPoolExecutor(1, "sfapp-read", limit_threads, (1,)) as thread:
        yield thread


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage less often, and not among existing objects, such as libraries.

    A verdict consists of many small objects without cycles, so that collections are frequent and find
    nothing. Traversing the libraries each time took a sixth of the time of an ingest, the rest a twentieth.

    A server has exempted what it loaded. To exempt more each time would keep what its closed pages leave.
    """
    usual, was_frozen = gc.get_threshold(), gc.get_freeze_count() > 0
    if not was_frozen:
        gc.freeze()
    gc.set_threshold(*_COLLECTED_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        if not was_frozen:
            gc.unfreeze()


class _ReaderProcess:
    """Helper process that reads batches for this one."""

    def __init__(self, process: subprocess.Popen[bytes], requests: IO[bytes], answers: IO[bytes]) -> None:
        self._process = process
        self._requests = requests
        self._answers = answers
        self._stopped = False

    @classmethod
    def start(cls) -> _ReaderProcess | None:
        """Start a helper; return None if the system cannot start a process."""
        # -P keeps modules in the working directory from being imported. The new session keeps Ctrl-C from
        # reaching the helper: this process handles it and then stops its helpers.
        try:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-c",
                    # Without looking for garbage among the libraries while they are loaded.
                    "import gc; gc.disable(); "
                    "from sfapp.store.parallel_reader import serve_requests; serve_requests()",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # There is one helper per core.
            )
        except OSError:
            return None
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the child process has no pipes")
        return cls(process, process.stdin, process.stdout)

    def is_ready(self) -> bool:
        """Wait until the libraries are loaded; return False if that failed."""
        return self._answers.readline() == _READY

    def read(self, file_batch: FileBatch) -> PacketBatch:
        """Return a batch read by the helper, or by this process if the helper has died."""
        try:
            pickle.dump(file_batch, self._requests)
            self._requests.flush()
            batch: PacketBatch = pickle.load(self._answers)
        # ValueError: the pipe was closed by stop().
        except (OSError, ValueError, EOFError, pickle.UnpicklingError):
            return read_batch(() if self._stopped else file_batch)
        return batch

    def stop(self) -> None:
        self._stopped = True
        self._process.kill()
        self._process.wait()
        with suppress(OSError):  # A request that was never read.
            self._requests.close()
        self._answers.close()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def serve_requests() -> None:
    """Process requests from standard input until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Output of libraries must not mix with the results.
    limit_threads(1)  # There is one helper per core.
    gc.enable()
    answers.write(_READY)
    answers.flush()
    with _rare_collections(), suppress(EOFError):
        while True:
            pickle.dump(read_batch(pickle.load(sys.stdin.buffer)), answers)
            answers.flush()
