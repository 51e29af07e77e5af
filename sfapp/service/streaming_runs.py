"""The runs that are being streamed, which every open page asks for, read once for all pages."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from sfapp.store import Store

STREAM_TIMEOUT_S = 60.0
"""Age of the newest sample up to which a streamed run counts as running."""

SHARED_S = 1.0
"""Seconds for which the list is shared."""


class StreamingRuns:
    """The runs of one store that are being streamed. Safe to use from several threads."""

    def __init__(self, store: Store) -> None:
        """Read nothing yet."""
        self._store = store
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._runs: list[dict[str, Any]] = []

    def newest(self) -> list[dict[str, Any]]:
        """Return them as ``Store.live_runs`` does, read now or a moment ago for another page; without ranks
        that have not reported for ``STREAM_TIMEOUT_S``."""
        with self._lock:
            if time.monotonic() - self._read_at > SHARED_S:
                since = datetime.now(UTC) - timedelta(seconds=STREAM_TIMEOUT_S)
                recent = self._store.live_runs(since)
                self._runs = [run for run in recent if run["left"] < run["ranks"]]
                self._read_at = time.monotonic()
            return self._runs
