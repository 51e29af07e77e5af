"""Collections of garbage in the server: rare while many pages are open."""

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


async def test_few_pages_are_collected_at_once() -> None:
    async with collecting():
        cycle = old_cycle()
        await asyncio.sleep(0.3)
        assert cycle() is None


async def test_many_pages_are_collected_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "FEW_PAGES", -1)
    monkeypatch.setattr(garbage, "RARELY_S", 1.0)
    async with collecting():
        cycle = old_cycle()
        await asyncio.sleep(0.3)
        assert cycle() is not None
        await asyncio.sleep(1.5)
        assert cycle() is None


async def test_python_collects_as_before_once_the_server_has_ended() -> None:
    before = gc.get_threshold()
    async with collecting():
        await asyncio.sleep(0.05)
        assert gc.get_threshold() != before
    assert gc.get_threshold() == before
