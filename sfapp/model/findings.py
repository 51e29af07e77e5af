"""Findings of a window: effects beyond noise, with an interval and a chance (accounting.md §17)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FindingKind = Literal["growth", "rank", "jitter"]

FINDINGS: Mapping[FindingKind, str] = {
    "growth": "The mean step is longer than in the run's healthy windows, beyond noise.",
    "rank": "Ranks are later than the others in a stage, beyond noise.",
    "jitter": "Time is lost because the slowest rank changes from step to step; no rank is at fault.",
}
"""Every kind of finding with its meaning."""


@dataclass(frozen=True, slots=True)
class StepNoise:
    """Differences within series of consecutive values, from which their noise follows (§17).

    Attributes:
        steps: number of values in all series.
        lag1, lag2: mean squared difference between values 1 and 2 apart.
        block1, block2: the same for means of blocks of values; 0 for too few blocks.
    """

    steps: int
    lag1: float
    lag2: float
    block1: float = 0.0
    block2: float = 0.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One effect in a window. Sizes are parts of its mean exposed step.

    Attributes:
        kind: ``growth`` of the mean step against the healthy windows; ``rank``: ranks later than the others
            in this stage, beyond noise; ``jitter``: time lost because the slowest rank changes.
        stage: the broad stage.
        ranks: global ranks that are late, the latest first; empty if it concerns no particular ranks.
        hostname: of the latest rank.
        effect: its cost. low, high: its 95 % interval.
        chance: of such an effect in a healthy window, corrected for the number of ranks and stages; None for
            jitter, which is not tested.
        steps: numbers of the late steps if only a few are late, else empty.
        needs_attention: whether the chance is at most alpha and the effect at least min_effect.
    """

    kind: FindingKind
    stage: str
    ranks: tuple[int, ...]
    hostname: str | None
    effect: float
    low: float
    high: float
    chance: float | None
    steps: tuple[int, ...] = ()
    needs_attention: bool = False


@dataclass(frozen=True, slots=True)
class Resolution:
    """The smallest effects that this window could show with 95 % power, as parts of its mean step.

    Attributes:
        growth: of the mean step; None without healthy windows.
        rank: by broad stage, lateness of one rank in every step; a stage is absent if the own time of one
            rank is unknown.
    """

    growth: float | None
    rank: dict[str, float]
