"""Start threads inside training, where the system may have none left."""

from __future__ import annotations

import threading
from collections import deque


def start_or_note(thread: threading.Thread, failures: deque[str]) -> bool:
    """Start a thread; if the system refuses it, note this once and return False.

    A limit of processes (``ulimit -u``, or a container's) counts threads too. Training continues without the
    thread; it can be started again later.
    """
    try:
        thread.start()
    except RuntimeError as error:
        failure = f"the thread {thread.name} was not started: {error}"
        if failure not in failures:
            failures.append(failure)
        return False
    return True
