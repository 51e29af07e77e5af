"""The store of the built-in examples, in memory and separate from the user's store."""

from __future__ import annotations

import threading

from sfapp.assets import EXAMPLES, assets
from sfapp.store import Store


class ExampleStore:
    """Store of the examples, opened on first use. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._store: Store | None = None

    def open(self) -> Store:
        """Return the store with every example in it. Blocks the first time."""
        with self._lock:
            if self._store is None:
                self._store = Store.open([assets() / EXAMPLES], memory=True)
                self._store.ingest()
            return self._store

    def close(self) -> None:
        """Close the store."""
        with self._lock:
            if self._store is not None:
                self._store.close()
            self._store = None
