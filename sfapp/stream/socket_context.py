"""Open contexts of libzmq only where the system has what they take.

If libzmq cannot have the descriptors or threads of a context, it ends the whole process, and training in it.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import zmq

from sfapp.errors import StreamError, describe_error

_PIPES = 6
"""Pipes of two descriptors each: a context takes five, its first socket, monitor and connection four."""

_THREADS = 2  # of a context

_ENDING_SECONDS = 1.0  # for the kernel to remove a thread that has ended


def open_context() -> zmq.Context[Any]:
    """Return a context whose threads run.

    Raises:
        StreamError: the process has too few file descriptors or threads left.
    """
    try:
        _take_and_return()
        context: zmq.Context[Any] = zmq.Context()
        context.socket(zmq.PAIR).close()  # At once: the first socket starts the threads.
    except (OSError, RuntimeError, MemoryError) as error:
        raise StreamError(
            f"no file descriptors or threads are left for sockets: {describe_error(error)}"
        ) from error
    return context


def _take_and_return() -> None:
    """Take as many descriptors and threads as a context does, and give them back.

    Raises:
        OSError, RuntimeError: the system refuses them.
    """
    with ExitStack() as taken:
        for _ in range(_PIPES):
            for descriptor in os.pipe():
                taken.callback(os.close, descriptor)
        done = threading.Event()
        threads = [
            threading.Thread(target=done.wait, name="sfapp-probe", daemon=True) for _ in range(_THREADS)
        ]
        try:
            for thread in threads:
                thread.start()
        finally:
            done.set()
            for thread in threads:
                if thread.native_id is not None:
                    thread.join()
                    _wait_until_gone(thread.native_id)


def _wait_until_gone(thread: int) -> None:
    """Wait until the kernel no longer counts a thread, which is a moment after Python has left it."""
    task, until = Path("/proc/self/task", str(thread)), time.monotonic() + _ENDING_SECONDS
    with suppress(OSError):
        while task.exists() and time.monotonic() < until:
            time.sleep(0.001)
    time.sleep(0.005)  # A control group's limit is lowered after that.
