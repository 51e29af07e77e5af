"""Predict the step time with a stage fixed, by replaying a window (accounting.md §15, What-if).

Where waits were measured, a window can be replayed: each rank takes its own time, and ranks go on together
where they wait. Clipping own time to a typical rank's then shows what fixing it would bring.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfapp.accounting.carry_over import CarryOver
from sfapp.accounting.leaders import Ints
from sfapp.accounting.measures import Measures
from sfapp.errors import WindowNotFoundError
from sfapp.model import Diagnosis
from sfapp.model.arrays import to_numpy

MAX_ERROR = 0.05
"""Above this error of the replay without a change nothing is predicted."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Predicted mean step of a window with one stage fixed, on all ranks or on one.

    Attributes:
        stage: the broad stage whose own time is clipped to the step's lower middle value over ranks.
        rank: global rank whose time is clipped; all ranks where None.
        step_ns: the mean step as it was, Σ a' / N.
        predicted_ns: the mean step of the replay with the stage clipped; None where nothing is predicted.
        error: by how much the replay without a change differs from the window, as a fraction; None without a
            replay.
        reason: why nothing is predicted: a key of ``sfapp.model.REASONS``.
    """

    stage: str
    rank: int | None
    step_ns: float
    predicted_ns: float | None = None
    error: float | None = None
    reason: str | None = None

    @property
    def saved_ns(self) -> float | None:
        """How much shorter the mean step would be, ns."""
        return None if self.predicted_ns is None else self.step_ns - self.predicted_ns


def what_if(
    measures: Measures, diagnosis: Diagnosis, stage: str | None = None, rank: int | None = None
) -> WhatIf | None:
    """Return the step time that fixing a stage would leave; None where the verdict names no suspect either.

    Args:
        diagnosis: of these measures; says where the carry-over frontier is aligned.
        stage: a broad stage; the stage and rank of the suspect where None.
        rank: a global rank with rows; all ranks where None.

    Raises:
        WindowNotFoundError: the window has no such stage or rank.
    """
    if stage is None:
        if diagnosis.aim is None:
            return None
        stage, rank = diagnosis.aim.stage, diagnosis.aim.rank
    _check(measures, stage, rank)
    as_it_was = diagnosis.step_time.mean_ns
    boundary = diagnosis.sync_boundary
    carry = measures.carry(None if boundary is None else measures.window.stages.index(boundary))
    reason = _why_not(measures, carry)
    if reason is not None or carry is None:
        return WhatIf(stage, rank, as_it_was, reason=reason)
    replay = _Replay.of(measures, carry)
    unchanged = replay.mean_step(replay.own_SNR)
    error = abs(unchanged - as_it_was) / as_it_was
    if error > MAX_ERROR:
        return WhatIf(stage, rank, as_it_was, error=error, reason="replay_differs")
    saved = unchanged - replay.mean_step(replay.clipped(measures, stage, rank))
    return WhatIf(stage, rank, as_it_was, as_it_was - saved, error)


def _check(measures: Measures, stage: str, rank: int | None) -> None:
    if stage not in measures.broad:
        raise WindowNotFoundError(f"no stage {stage!r}; there are: {', '.join(measures.broad)}")
    if rank is not None and rank not in measures.window.ranks.rank:
        raise WindowNotFoundError(f"no rows of rank {rank} in window {measures.window.number}")


def _why_not(measures: Measures, carry: CarryOver | None) -> str | None:
    if not measures.has_all_rows:
        return "reduced_rows"
    if carry is None:
        return "steps_not_consecutive"
    if measures.own is None or not measures.own.split_SN.any():
        return "no_waits_recorded"
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Replay:
    """A window as own time and meetings.

    Attributes:
        own_SNR: int64 ns, durations with known waits taken out.
        least_SN: int64 ns, the least wait over ranks at each meeting; -1 where ranks do not meet.
        start_R: int64 ns, where each rank's time begins.
    """

    own_SNR: Ints
    least_SN: Ints
    start_R: Ints

    @classmethod
    def of(cls, measures: Measures, carry: CarryOver) -> _Replay:
        window = measures.window
        own_SNR = to_numpy(window.duration_SNR).copy()
        least_SN = np.full(own_SNR.shape[:2], -1, dtype=np.int64)
        assert measures.own is not None  # the caller asked
        for stage in np.flatnonzero(measures.own.split_SN.any(axis=1)).tolist():
            met_N = measures.own.split_SN[stage]
            wait_NR = to_numpy(window.waits[window.stages[stage]])
            own_SNR[stage, met_N] -= wait_NR[met_N]
            least_SN[stage, met_N] = wait_NR[met_N].min(axis=1)
        return cls(own_SNR, least_SN, -carry.offset_R)

    def mean_step(self, own_SNR: Ints) -> float:
        """Return the mean exposed step of a replay with these own times, ns."""
        stages, steps, _ = own_SNR.shape
        time_R = self.start_R.copy()
        for step in range(steps):
            for stage in range(stages):
                time_R += own_SNR[stage, step]
                least = self.least_SN[stage, step]
                if least >= 0:
                    time_R[:] = time_R.max() + least
        exposed_ns = int(time_R.max()) - int(self.start_R.max())
        return float(exposed_ns / steps)

    def clipped(self, measures: Measures, stage: str, rank: int | None) -> Ints:
        """Return own times with those of a broad stage clipped to the step's lower middle value."""
        own_SNR = self.own_SNR.copy()
        ranks = slice(None) if rank is None else [measures.window.ranks.rank.index(rank)]
        for member in measures.members(measures.broad.index(stage)):
            # Of an even number the lower middle value: the mean of two ranks keeps half of one's delay.
            middle = (own_SNR.shape[2] - 1) // 2
            typical_N = np.partition(own_SNR[member], middle, axis=1)[:, middle]
            own_SNR[member][:, ranks] = np.minimum(own_SNR[member][:, ranks], typical_N[:, None])
        return own_SNR
