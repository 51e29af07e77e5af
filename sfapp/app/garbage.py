"""Collect garbage when that is quick or due, because a collection stops the event loop.

A full collection takes 0.3 µs per object, and an open page has up to 10,000 objects. Python would begin one
whenever a quarter as many objects were made as there are: with 200 pages that were open within the last 30 s,
one of 0.7 s every second or two.
"""

from __future__ import annotations

import asyncio
import gc
import time

from nicegui import Client

CHECK_S = 5.0
"""Seconds between checks whether to collect."""

FEW_PAGES = 20
"""Open pages up to which a full collection takes 0.1 s at most."""

RARELY_S = 60.0
"""Seconds between full collections while there are more pages. Until then, what refers to itself in removed
pages stays: up to half of a page's objects."""

_NEVER = 1 << 30


async def collect_regularly() -> None:
    """Collect long-lived garbage instead of Python, until cancelled; young garbage stays Python's."""
    usual = gc.get_threshold()
    gc.set_threshold(usual[0], usual[1], _NEVER)
    try:
        last = time.monotonic()
        while True:
            await asyncio.sleep(CHECK_S)
            has_new = gc.get_count()[2] > 0
            if has_new and (len(Client.instances) <= FEW_PAGES or time.monotonic() - last >= RARELY_S):
                gc.collect()
                last = time.monotonic()
    finally:
        gc.set_threshold(*usual)
