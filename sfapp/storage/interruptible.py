"""End requests with Ctrl-C: obstore's calls do not return for a signal, however long a server is silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")

_LEFT_FOR_S = 0.5
"""Seconds that an interrupted request may still take: one that ends while the interpreter does aborts it."""

_waits_since: float | None = None


def waited_s() -> float:
    """Return for how many seconds the main thread has waited for the request it waits for; else 0."""
    since = _waits_since
    return 0.0 if since is None else time.monotonic() - since


class _Awaited(Future[Result]):
    """Result of a request; a wait of the main thread for it is timed."""

    def result(self, timeout: float | None = None) -> Result:
        global _waits_since
        if threading.current_thread() is not threading.main_thread():
            return super().result(timeout)
        _waits_since = time.monotonic()
        try:
            return super().result(timeout)
        finally:
            _waits_since = None


def interruptible(request: Callable[[], Result]) -> Result:
    """Return the result of a request; on the main thread, what a signal's handler raises ends the wait."""
    if threading.current_thread() is not threading.main_thread():
        return request()
    future: Future[Result] = _Awaited()
    thread = threading.Thread(target=_complete, args=(future, request), name="sfapp-request", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # There is no thread left, or the interpreter ends.
        return request()
    try:
        return future.result()
    except BaseException:
        thread.join(_LEFT_FOR_S)
        raise


class RequestPool:
    """Threads that send requests, and for which the end of the process does not wait."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._threads: list[threading.Thread] = []
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    @classmethod
    @contextmanager
    def open(cls, size: int) -> Iterator[RequestPool]:
        """Provide a pool; requests that have not begun at the end of the block are never sent.

        Those that have begun are waited for, but only shortly if the block is left by an interruption.
        """
        pool = cls(size)
        longest: float | None = None
        try:
            yield pool
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            longest = _LEFT_FOR_S
            raise
        finally:
            pool._close(longest)

    def submit(self, request: Callable[[], Result]) -> Future[Result]:
        """Send a request on one of the threads.

        Raises:
            RuntimeError: no thread can be started.
        """
        if len(self._threads) < self._size:
            thread = threading.Thread(target=self._run, name="sfapp-fetch", daemon=True)
            thread.start()
            self._threads.append(thread)
        future: Future[Result] = _Awaited()
        self._work.put((future, request))
        return future

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            _complete(*work)

    def _close(self, longest: float | None) -> None:
        with suppress(Empty):
            while True:
                self._work.get_nowait()
        for _ in self._threads:
            self._work.put(None)
        end = None if longest is None else time.monotonic() + longest
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))


def _complete(future: Future[Result], request: Callable[[], Result]) -> None:
    try:
        future.set_result(request())
    except BaseException as error:  # noqa: BLE001  # It is raised where the result is taken.
        future.set_exception(error)
