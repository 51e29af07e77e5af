"""Pipeline stages of a window: own time, balance, idle time and what bounds the step (accounting.md §22)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sfapp.model.findings import StepNoise

Schedule = Literal["1f1b", "gpipe"]


@dataclass(frozen=True, slots=True)
class StagePast:
    """Own time of a pipeline stage in healthy windows of the run.

    Attributes:
        stage: its coordinate along ``pp``.
        own_ns: mean own time per step in forward and backward.
        noise: of that own time over steps; None if unknown.
    """

    stage: int
    own_ns: float
    noise: StepNoise | None


@dataclass(frozen=True, slots=True)
class StageGrowth:
    """Own time of a pipeline stage against the run's healthy windows, as a fraction of it there.

    Attributes:
        effect: the growth. low, high: its 95 % interval.
        chance: of such a growth in a healthy window, corrected for the number of stages.
        is_clear: whether the chance is at most alpha and the growth at least min_effect of the step.
    """

    effect: float
    low: float
    high: float
    chance: float
    is_clear: bool


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """One stage of a pipeline. Times are means over steps; of several replicas, the mean over replicas.

    Attributes:
        stage: its coordinate along ``pp``.
        rank: global rank with the most own time. ranks: number of ranks of the stage.
        forward_ns, backward_ns: own time per step, all micro-steps together.
        other_ns: own time in stages outside of the pipeline, such as data and optimizer.
        idle: part of the step, without ``other_ns``, that is neither forward nor backward.
        balance: own time relative to the mean over stages, less 1. low, high: its 95 % interval.
        noise: of own time over steps; None if unknown.
        slow_micro_steps: micro-steps that take longer than the others, here but not on most stages.
        slow_ns: by how much longer each of them takes on average.
        trend: change of own time from the first to the last micro-step, as a fraction; None if it is not
            beyond noise.
        growth: against the run's healthy windows; None without any.
    """

    stage: int
    rank: int
    ranks: int
    forward_ns: float
    backward_ns: float
    other_ns: float
    idle: float
    balance: float
    low: float
    high: float
    noise: StepNoise | None
    slow_micro_steps: tuple[int, ...] = ()
    slow_ns: float = 0.0
    trend: float | None = None
    growth: StageGrowth | None = None

    @property
    def own_ns(self) -> float:
        """Own time per step in forward and backward."""
        return self.forward_ns + self.backward_ns


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The pipeline of a window.

    Attributes:
        stages: ascending; one alone if the window is of one stage's group.
        micro_steps: per step. ordered: whether they were recorded separately.
        ideal_idle: idle part of every stage if all take equally long: (p − 1) / (m + p − 1).
        bounding: coordinate of the stage with the most own time; None if none has clearly more than each of
            the others, or if own time is not known.
        chance: of such a lead if two stages were equally long, corrected for the number of stages; None for
            one stage.
        schedule: the schedule that was replayed; None if none reproduces the step.
        error: by how much the nearest replay without a change differs from the mean step, as a fraction.
        fixed_ns: predicted mean step if the bounding stage took as long as the median of the others.
        balanced_ns: predicted mean step if the same work were spread evenly over the stages.
        reason: why nothing is predicted: a key of ``sfapp.model.REASONS``.
        slow_micro_steps: micro-steps that take longer than the others on most stages.
    """

    stages: tuple[PipelineStage, ...]
    micro_steps: int
    ordered: bool
    ideal_idle: float
    bounding: int | None = None
    chance: float | None = None
    schedule: Schedule | None = None
    error: float | None = None
    fixed_ns: float | None = None
    balanced_ns: float | None = None
    reason: str | None = None
    slow_micro_steps: tuple[int, ...] = ()

    def of(self, stage: int) -> PipelineStage:
        """Return the stage with this coordinate.

        Raises:
            KeyError: there is none.
        """
        for one in self.stages:
            if one.stage == stage:
                return one
        raise KeyError(stage)
