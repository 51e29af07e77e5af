"""A recorder on one rank whose clock moves only when a test moves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfapp.model import Window
from sfapp.packets import read_window
from sfapp.recorder import Recorder
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now

    def tick(self, ns: int) -> None:
        self.now += ns


def recorder(root: Path, clock: Clock, **options: Any) -> Recorder:
    """Return a recorder without host evidence, whose values no test could foresee."""
    return Recorder(root, run_id="run", clock=clock, **{"window_steps": 3, "evidence": False, **options})


def train(perf: Recorder, clock: Clock, steps: int = 1, other: int = 7) -> None:
    for _ in range(steps):
        with perf.step():
            for place, name in enumerate((DATA, FORWARD, BACKWARD, CALLBACKS, OPTIMIZER)):
                with perf.stage(name):
                    clock.tick(100 * (place + 1))
            clock.tick(other)


def only_window(root: Path) -> Window:
    return read_window(root)
