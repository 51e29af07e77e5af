"""Collections of garbage in the server: the longer they take, the rarer they are."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sfapp.app import garbage


class Cycle:
    """Refers to itself, so that only a collection frees it."""

    def __init__(self) -> None:
        self.itself = self


def old_cycle() -> weakref.ref[Cycle]:
    """Return a reference to one that no collection of young objects finds any more."""
    cycle = Cycle()
    gc.collect(1)
    gc.collect(1)
    return weakref.ref(cycle)


@asynccontextmanager
async def collecting() -> AsyncIterator[None]:
    task = asyncio.create_task(garbage.collect_regularly())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def checked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "CHECK_S", 0.02)


async def collected(cycle: weakref.ref[Cycle]) -> None:
    async with asyncio.timeout(30):
        while cycle() is not None:
            await asyncio.sleep(0.01)


async def test_quick_collections_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given collections that may take any part of the time, so that a busy machine does not make them rare
    monkeypatch.setattr(garbage, "SHARE", 1.0)
    async with collecting():
        for _ in range(2):
            await collected(old_cycle())


async def test_slow_collections_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given collections that may take so small a part of the time that the next one is due in minutes
    monkeypatch.setattr(garbage, "SHARE", 1e-6)
    async with collecting():
        await collected(old_cycle())
        second = old_cycle()
        await asyncio.sleep(0.5)
        assert second() is not None


async def test_python_collects_as_before_once_the_server_has_ended() -> None:
    before = gc.get_threshold()
    async with collecting():
        await asyncio.sleep(0.05)
        assert gc.get_threshold() != before
    assert gc.get_threshold() == before
