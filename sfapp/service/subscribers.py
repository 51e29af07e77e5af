"""Callbacks through which the services notify a surface of changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Subscribers(Generic[Value]):
    """The callbacks of one kind of change. All methods are called on one thread."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Value], object]] = []

    def subscribe(self, callback: Callable[[Value], object]) -> Callable[[], None]:
        """Call back with every value from now on; return a function that ends the subscription."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def notify(self, value: Value) -> None:
        """Pass a value to every callback, in the order of subscription."""
        for callback in tuple(self._callbacks):
            callback(value)
