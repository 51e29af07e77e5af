"""The store of the built-in examples: read-only, in memory, apart from the operator's own."""

from __future__ import annotations

import threading

from sfapp.assets import EXAMPLES, assets
from sfapp.store import Store


class ExampleStore:
    """Opened when an example is first asked for; most servers never do. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._store: Store | None = None

    def opened(self) -> Store:
        """The store with every example in it. Blocking the first time."""
        with self._lock:
            if self._store is None:
                self._store = Store.open([assets() / EXAMPLES], memory=True)
                self._store.ingest()
            return self._store

    def close(self) -> None:
        """Let go of the store."""
        with self._lock:
            if self._store is not None:
                self._store.close()
            self._store = None
