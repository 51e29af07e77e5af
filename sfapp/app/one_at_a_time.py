"""Ignore a second click while what the first one began is under way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakSet

Owner = TypeVar("Owner")
Arguments = ParamSpec("Arguments")


def one_at_a_time(
    method: Callable[Concatenate[Owner, Arguments], Awaitable[None]],
) -> Callable[Concatenate[Owner, Arguments], Awaitable[None]]:
    """Have calls of an object's method do nothing while an earlier one of the same object is under way.

    An edit may wait for a bucket, or for a log that another process keeps locked: a double click, or Enter
    and a click, would write it twice.
    """
    under_way: WeakSet[Any] = WeakSet()

    @wraps(method)
    async def call(self: Owner, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> None:
        if self in under_way:
            return
        under_way.add(self)
        try:
            await method(self, *arguments, **named)
        finally:
            under_way.discard(self)

    return call
