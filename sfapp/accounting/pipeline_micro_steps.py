"""Compare the micro-steps of each pipeline stage with each other (accounting.md §22).

A stage with one rank has no other ranks of its role to be compared with, but it does the same work in every
micro-step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfapp.accounting.late_ranks import Flags, Floats, lateness, persistently_late, stages_lateness
from sfapp.accounting.leaders import Ints
from sfapp.accounting.noise import mean_error
from sfapp.accounting.pipeline_times import PipelineTimes

LEAST_MICRO_STEPS = 3
"""Number of micro-steps from which one can be found to be longer than the others."""

_MOST = 0.5
"""Part of the stages above which a micro-step that is longer there is so for all of them."""


@dataclass(frozen=True, slots=True, eq=False)
class MicroSteps:
    """What micro-steps show, by pipeline stage.

    Attributes:
        slow_PM: bool, which are longer than the stage's other ones, beyond noise.
        late_PM: by how much, mean over steps, ns.
        common_M: bool, which are so on most stages.
        trend_P: change of own time from the first to the last one, as a fraction; NaN within noise.
    """

    slow_PM: Flags
    late_PM: Floats
    common_M: Flags
    trend_P: Floats

    def slow_of(self, place: int) -> Ints:
        """Return the micro-steps that are longer on this stage, but not on most stages."""
        return np.flatnonzero(self.slow_PM[place] & ~self.common_M)


def compare_micro_steps(times: PipelineTimes, alpha: float, least_ns: float) -> MicroSteps | None:
    """Return which micro-steps are longer than the others; None if they were merged or are too few.

    Args:
        alpha: chance of a false alarm. least_ns: least effect per step.
    """
    if not times.ordered or times.micro_steps < LEAST_MICRO_STEPS:
        return None
    own_MNP = (times.forward_MNDP + times.backward_MNDP).mean(axis=2)
    own_PNM = np.ascontiguousarray(own_MNP.transpose(2, 1, 0))
    stages, _, micro_steps = own_PNM.shape
    found = stages_lateness(np.stack([lateness(own_NM) for own_NM in own_PNM]))
    chance = alpha / (2 * stages * micro_steps)
    late_PM = np.stack([stage.mean_R for stage in found])
    slow_PM = np.stack([persistently_late(stage, chance) for stage in found]) & (late_PM >= least_ns)
    common_M = slow_PM.sum(axis=0) > max(1, _MOST * stages)
    usual_PM = ~(slow_PM | common_M)
    trends = zip(own_PNM, usual_PM, strict=True)
    trend_P = np.array([_trend(own_NM, usual_M, alpha / (4 * stages)) for own_NM, usual_M in trends])
    # A trend costs half of its rise in each micro-step.
    costs_P = np.abs(trend_P) * own_PNM.mean(axis=1).sum(axis=1) / 2.0
    return MicroSteps(slow_PM, late_PM, common_M, np.where(costs_P >= least_ns, trend_P, np.nan))


def _trend(own_NM: Floats, usual_M: Flags, chance: float) -> float:
    """Return the change of own time over all micro-steps as a fraction of the mean, by a line through them;
    NaN within noise.

    Args:
        usual_M: the micro-steps that count. chance: that it rises (or falls) as much by chance.
    """
    micro_step_M, own_NM = np.flatnonzero(usual_M), own_NM[:, usual_M]
    if len(micro_step_M) < LEAST_MICRO_STEPS:
        return np.nan
    x_M = micro_step_M - micro_step_M.mean()
    rise_N = own_NM @ x_M / float(x_M @ x_M) * float(micro_step_M[-1] - micro_step_M[0])
    error, rise = mean_error(rise_N), float(rise_N.mean())
    if error is None or error.chance(abs(rise)) > chance:
        return np.nan
    return rise / max(1.0, float(own_NM.mean()))
