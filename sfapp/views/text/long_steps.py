"""Find windows whose time lies in a few long steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfapp.model import Diagnosis
from sfapp.views import format

_DOMINANT = 0.5
"""Share of the window's exposed time from which a few long steps are mentioned."""


@dataclass(frozen=True, slots=True)
class LongSteps:
    """The statement that at most ``most`` of ``steps`` steps took at least ``share`` of the time, in whole
    percents."""

    most: int
    steps: int
    share: float

    @property
    def which(self) -> str:
        """The clause ``in 5 of 100 steps at most``."""
        return f"in {format.count(self.most)} of {format.counted(self.steps, 'step')} at most"

    @property
    def sentence(self) -> str:
        """The sentence ``At least 87 % of the window's time was spent in at most 5 of its 100 steps.``"""
        return (
            f"At least {format.percent(self.share)} of the window's time was spent in at most "
            f"{format.count(self.most)} of its {format.counted(self.steps, 'step')}."
        )


def long_steps(diagnosis: Diagnosis) -> LongSteps | None:
    """Return the few steps in which most of the window's time was spent; None if no few steps dominate.

    Step times are those of the frontier in use.

    At most k = N − 1 − ⌊0.95 (N − 1)⌋ of N steps lie above the 95th percentile. Each of the other N − k steps
    takes no longer than that percentile, so the rest of the total was spent in the k steps.
    """
    steps, total_ns = diagnosis.steps, diagnosis.exposed_makespan_ns
    if diagnosis.frontier == "carry_over" and diagnosis.carry_over_advances_ns is not None:
        total_ns = sum(diagnosis.carry_over_advances_ns.values())
    most = steps - 1 - math.floor(0.95 * (steps - 1))
    if most < 1 or total_ns <= 0:
        return None
    share = 1 - (steps - most) * diagnosis.step_time.p95_ns / total_ns
    return LongSteps(most, steps, math.floor(100 * share) / 100) if share >= _DOMINANT else None
