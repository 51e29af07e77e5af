"""Collect garbage for a hundredth of the time at most, because a collection stops the event loop.

A full collection takes 0.3 µs per object, and an open page has up to 10,000 objects. Python would begin one
whenever a quarter as many objects were made as there are: with 200 pages that were open within the last 30 s,
one of 0.7 s every second or two.
"""

from __future__ import annotations

import asyncio
import gc
import time

CHECK_S = 5.0
"""Seconds between full collections at least."""

SHARE = 0.01
"""Part of the time that they may take. Until the next one, what refers to itself in removed pages stays: up
to half of a page's objects."""

_NEVER = 1 << 30


async def collect_regularly() -> None:
    """Collect long-lived garbage instead of Python, until cancelled; young garbage stays Python's."""
    usual = gc.get_threshold()
    gc.set_threshold(usual[0], usual[1], _NEVER)
    try:
        wait = CHECK_S
        while True:
            await asyncio.sleep(wait)
            if gc.get_count()[2] > 0:  # Otherwise there is no new garbage of that age.
                begin = time.perf_counter()
                gc.collect()
                wait = max(CHECK_S, (time.perf_counter() - begin) / SHARE)
    finally:
        gc.set_threshold(*usual)
