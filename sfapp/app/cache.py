"""What was worked out last, kept within a budget of memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """The most recently used values within a budget of bytes. Safe to use from several threads."""

    def __init__(self, budget: int, size_of: Callable[[Value], int]) -> None:
        self._budget = budget
        self._size_of = size_of
        self._kept: OrderedDict[Hashable, Value] = OrderedDict()
        self._used = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Value | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: Hashable, value: Value) -> Value:
        """Keep a value, and let go of the oldest ones past the budget (never of this one)."""
        with self._lock:
            replaced = self._kept.pop(key, None)
            self._used += self._size_of(value) - (0 if replaced is None else self._size_of(replaced))
            self._kept[key] = value
            while self._used > self._budget and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self._used -= self._size_of(dropped)
        return value
