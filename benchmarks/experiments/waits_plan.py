"""The plan of ranks that are slow inside waiting stages or between steps, by job and window."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.experiments.plan import BACKWARD, FORWARD
from sfapp.model.manifest import Wrapper

BETWEEN = "step.between_cpu_wall"
"""The stage of accounting.md §16. Packets of an older recorder lack it."""

BLOCKS = 4
"""Layers of the model, which compute one after the other in forward and, in reverse, in backward."""

PLACES = {
    "early": (0.5, 0.5, 0.0, 0.0),
    "middle": (0.0, 0.5, 0.5, 0.0),
    "spread": (0.25, 0.25, 0.25, 0.25),
}
"""Place of the delay in a stage: its part in each layer, in the order of computation."""

SLOWNESS = 0.20
"""Additional computing time of the slow rank per step, as a part of a healthy step of the same job."""

WRAPPERS: tuple[Wrapper, ...] = ("ddp", "zero1", "fsdp1", "fsdp2")
SHARDED = ("fsdp1", "fsdp2")
"""Wrappers whose ranks wait in forward too."""

WARM_UP, HEALTHY_FIRST = 1, 2
"""Number of windows before the first fault: the first makes connections, the others show the duration of a
step."""

PACES = {8: 1.0, 32: 1.85}
"""Pace by number of ranks: with 1.85, exchanges between 32 processes on two cores are a quarter of a step."""

PAUSE_SECONDS, PAUSE_EVERY = 1.4, 50
"""Length of a pause between steps, and its period in steps (marin issue 9205)."""


@dataclass(frozen=True, slots=True)
class WaitFault:
    """The fault in one window.

    Attributes:
        stage: where the rank is slow; None without a fault.
        place: a key of ``PLACES``; empty between steps.
        is_warm_up: whether the window is left out of every table.
    """

    stage: str | None = None
    rank: int = 0
    place: str = ""
    is_warm_up: bool = False


@dataclass(frozen=True, slots=True)
class WaitJob:
    """One launch: a run of windows with waits recorded.

    Attributes:
        wrapper: one of ``WRAPPERS``.
        steps: number of steps of a window.
        pace: multiple of the 100 ms that an accelerator would take for a step.
    """

    name: str
    wrapper: Wrapper
    ranks: int
    steps: int
    pace: float
    faults: tuple[WaitFault, ...]

    @property
    def module(self) -> str:
        """The script that torchrun starts on every rank."""
        return "benchmarks.experiments.waits_job"


def windows(name: str, ranks: int, stages: tuple[str, ...], count: int) -> Iterator[WaitFault]:
    """Return healthy windows, then ``count`` faults in each stage: two, a healthy window, two, and so on.

    Each fault has a different rank and place; ranks are drawn without repetition while any are left.
    """
    yield from _healthy_first()
    drawn = random.Random(name)
    faults = []
    for stage in stages:
        ranks_drawn: list[int] = []
        for number in range(count):
            if not ranks_drawn:
                ranks_drawn = drawn.sample(range(ranks), ranks)
            faults.append(WaitFault(stage, ranks_drawn.pop(), [*PLACES][number % len(PLACES)]))
    drawn.shuffle(faults)
    for number, fault in enumerate(faults, start=1):
        yield fault
        if number % 2 == 0 or number == len(faults):
            yield WaitFault()


def pauses(ranks: int, count: int) -> Iterator[WaitFault]:
    """Return healthy windows, then pairs of a window in which one rank pauses between steps and a healthy
    one."""
    yield from _healthy_first()
    for rank in random.Random("pauses").sample(range(ranks), count):
        yield WaitFault(BETWEEN, rank)
        yield WaitFault()


def _healthy_first() -> Iterator[WaitFault]:
    for _ in range(WARM_UP):
        yield WaitFault(is_warm_up=True)
    for _ in range(HEALTHY_FIRST):
        yield WaitFault()


def full_waits() -> tuple[WaitJob, ...]:
    """Return the plan of all tables: about 25 minutes on two cores."""
    jobs = []
    for ranks in PACES:
        for wrapper in WRAPPERS:
            name = f"waits-{wrapper}-{ranks}"
            stages = (BACKWARD, FORWARD) if wrapper in SHARDED else (BACKWARD,)
            # Steps of 32 sharded ranks take the longest time on a few cores.
            count = 8 if ranks == 32 and wrapper in SHARDED else 15
            faults = tuple(windows(name, ranks, stages, count))
            jobs.append(WaitJob(name, wrapper, ranks, 20, PACES[ranks], faults))
    # Four pauses in each window: three spacings are the fewest that make a period (accounting.md §12).
    jobs.append(WaitJob("between-8", "ddp", 8, 4 * PAUSE_EVERY, 0.3, tuple(pauses(8, 3))))
    return tuple(jobs)


def small_waits() -> tuple[WaitJob, ...]:
    """Return the plan for the tests: one launch of four ranks."""
    faults = (
        *_healthy_first(),
        WaitFault(BACKWARD, 2, "middle"),
        WaitFault(FORWARD, 1, "early"),
        WaitFault(),
    )
    return (WaitJob("waits-fsdp2-4", "fsdp2", 4, 12, 1.0, faults),)
