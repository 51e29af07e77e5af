"""A cache with a budget of memory, which several threads may share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from cachetools import LRUCache

Value = TypeVar("Value")


class MemoryCache(Generic[Value]):
    """Cache of the most recently used values within a budget of bytes. Safe to use from several threads."""

    def __init__(self, budget: int, size_of: Callable[[Value], int]) -> None:
        # A value larger than the budget counts as the whole budget, so that it is kept alone.
        self._values: LRUCache[Hashable, Value] = LRUCache(
            budget, getsizeof=lambda value: min(size_of(value), budget)
        )
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Value | None:
        """Return a value from the cache, or None."""
        with self._lock:
            return self._values.get(key)

    def put(self, key: Hashable, value: Value) -> Value:
        """Keep and return a value; the least recently used values beyond the budget are dropped."""
        with self._lock:
            self._values[key] = value
        return value
