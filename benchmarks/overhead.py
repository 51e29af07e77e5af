"""Estimate the throughput that a tool costs a training job, from blocks of steps with and without it.

A round has equally many steps of each kind: without the tool, with it, and without it again. The third kind
is the A/A measurement: the apparent cost of no change, in the same minutes of the same job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]

OFF, ON, AGAIN = KINDS = range(3)
"""Kinds of blocks: without the tool, with it, without it again."""

ORDERS = (
    (OFF, ON, AGAIN),
    (AGAIN, ON, OFF),
    (ON, AGAIN, OFF),
    (OFF, AGAIN, ON),
    (AGAIN, OFF, ON),
    (ON, OFF, AGAIN),
)
"""Every order of the kinds, each followed by its mirror image, so that a steady drift cancels."""

RESAMPLES = 4_000
TRIMMED = 0.2
"""Fraction of the rounds that the trimmed estimate leaves out at each end."""


COLUMNS = (
    f"{'tool':<10} {'step':>8}  {'lost':>9} {'95 %':>9}  {'trimmed':>9} {'95 %':>9}  {'A/A':>9} {'95 %':>9}"
    f"  {'noise':>8}  {'rounds':>6} {'late':>5}  launches"
)


def schedule(groups: int) -> list[int]:
    """Return the kinds of all blocks: groups of three, one of each kind, in every order in turn."""
    return [kind for order in islice(cycle(ORDERS), groups) for kind in order]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Throughput lost in percent, and its upper bound at 95 % confidence (one-sided)."""

    lost: float
    upper: float


@dataclass(frozen=True, slots=True)
class OverheadEstimate:
    """Estimates from rounds of blocks.

    Attributes:
        step_ms: mean step without the tool.
        plain: from the sums of all rounds: the loss of a long run.
        trimmed: from the mean log ratio of the middle rounds.
        noise: A/A: the second half of the blocks without the tool, treated as the tool.
        noise_bound: bound of noise: the larger A/A bound of both halves.
        rounds: number of rounds.
        late: number of windows that were not on disk when their block ended, so that the next block bore the
            rest.
        lost_by_launch: loss according to the rounds of each launch alone, in percent.
    """

    step_ms: float
    plain: Estimate
    trimmed: Estimate
    noise: Estimate
    noise_bound: float
    rounds: int
    late: int
    lost_by_launch: tuple[float, ...]

    @classmethod
    def of(cls, launches: Sequence[Sequence[Sequence[float]]], steps: int, late: int) -> OverheadEstimate:
        """Estimate from each round's seconds, by launch and kind; a round has ``steps`` of each kind."""
        off, on, again = np.concatenate(launches).T
        without = (off + again) / 2
        noise, mirrored = _bootstrap(_lost, off, again), _bootstrap(_lost, again, off)
        return cls(
            step_ms=float(without.mean()) / steps * 1e3,
            plain=_bootstrap(_lost, without, on),
            trimmed=_bootstrap(_lost_in_the_middle, without, on),
            noise=noise,
            noise_bound=max(noise.upper, mirrored.upper),
            rounds=len(on),
            late=late,
            lost_by_launch=tuple(
                float(_lost((first + last) / 2, with_it))
                for first, with_it, last in (np.transpose(rounds) for rounds in launches)
            ),
        )

    def line(self, tool: str) -> str:
        """Return a row under ``COLUMNS``."""
        pairs = (self.plain, self.trimmed, self.noise)
        shown = "  ".join(f"{pair.lost:+7.2f} % ≤ {pair.upper:5.2f} %" for pair in pairs)
        step = f"{self.step_ms:.1f} ms"
        spread = (
            f"{len(self.lost_by_launch)}: {min(self.lost_by_launch):+.2f} … {max(self.lost_by_launch):+.2f} %"
        )
        counts = f"{self.rounds:>6} {self.late:>5}  {spread}"
        return f"{tool:<10} {step:>8}  {shown}  {self.noise_bound:6.2f} %  {counts}"


def _bootstrap(statistic: Callable[[Seconds, Seconds], Seconds], off: Seconds, on: Seconds) -> Estimate:
    """Resample whole rounds, so that a disturbance of several kinds stays together."""
    drawn = np.random.default_rng(0).integers(0, len(on), (RESAMPLES, len(on)))
    found = statistic(off[drawn], on[drawn])
    return Estimate(float(statistic(off, on)), float(np.quantile(found, 0.95)))


def _lost(off: Seconds, on: Seconds) -> Seconds:
    """Return percent; the last axis is that of the rounds."""
    lost: Seconds = 100 * (1 - off.sum(-1) / on.sum(-1))
    return lost


def _lost_in_the_middle(off: Seconds, on: Seconds) -> Seconds:
    ratio = np.sort(np.log(on / off), axis=-1)
    left_out = int(TRIMMED * ratio.shape[-1])
    lost: Seconds = 100 * (1 - np.exp(-ratio[..., left_out : ratio.shape[-1] - left_out].mean(-1)))
    return lost
