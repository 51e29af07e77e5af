"""Caches that several threads may share: with a budget of memory, and of what a store holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from cachetools import LRUCache

if TYPE_CHECKING:
    from sfapp.store import Store

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

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._values.clear()


class StoreCache(Generic[Value]):
    """Some values derived from a store, kept until the store changes. Safe to use from several threads."""

    def __init__(self, store: Store, most: int = 16) -> None:
        """Keep at most so many values; others are derived again."""
        self._store = store
        self._most = most
        self._known: tuple[int, dict[Hashable, Value]] = (-1, {})

    def get(self, key: Hashable, derive: Callable[[], Value]) -> Value:
        """Return the value of a key, derived on first use."""
        generation, (known_at, known) = self._store.generation, self._known
        if known_at != generation:
            known = {}
            self._known = generation, known
        if key in known:
            return known[key]
        value = derive()
        if len(known) < self._most:
            known[key] = value
        return value
