"""A clock of the training's own sleep: what is recorded by it does not depend on the machine."""

from __future__ import annotations

import time

_SLEPT: list[int] = []


def sleep(seconds: float) -> None:
    """Sleep as a part of the training."""
    time.sleep(seconds)
    _SLEPT.append(round(seconds * 1e9))


def slept_ns() -> int:
    """Return for how long the training has slept: a clock that stands still in all else."""
    return sum(_SLEPT)
