"""Predict the step time with a part of a window fixed, by replaying it (accounting.md §15, What-if).

Where waits were measured, a window can be replayed: each rank takes its own time, and ranks go on together
where they wait. Clipping own time to a typical rank's then shows what fixing it would bring. Where a window
cannot be replayed, the range [G, X] bounds what it would bring.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from sfapp.accounting.carry_over import CarryOver
from sfapp.accounting.leaders import Floats, Ints
from sfapp.accounting.measures import Measures
from sfapp.accounting.own_time import own_duration
from sfapp.accounting.saving_range import saving_range
from sfapp.errors import WindowNotFoundError
from sfapp.model import Diagnosis, Fix
from sfapp.model.arrays import Array, to_numpy

MAX_ERROR = 0.05
"""Above this error of the replay without a change nothing is predicted."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Predicted mean step of a window with a part of it fixed.

    Attributes:
        stage: the broad stage whose own time is clipped to the step's lower middle value over ranks; every
            stage if None.
        rank: global rank whose time is clipped; all ranks if None and ``node`` is None too.
        step_ns: the mean step as it was, Σ a' / N.
        predicted_ns: the mean step of the replay with the fix; None if nothing is predicted.
        error: by how much the replay without a change differs from the window, as a fraction; None without a
            replay.
        reason: why nothing is predicted: a key of ``sfapp.model.REASONS``.
        node: the node whose ranks' time is clipped.
        least_ns, most_ns: where nothing is predicted, the mean step if the fix brings the excess X and if it
            brings the static gain G alone (§4); None if these are not known either.
    """

    stage: str | None
    rank: int | None
    step_ns: float
    predicted_ns: float | None = None
    error: float | None = None
    reason: str | None = None
    node: int | None = None
    least_ns: float | None = None
    most_ns: float | None = None

    @property
    def fix(self) -> Fix:
        """What is fixed."""
        return Fix(self.stage, self.rank, self.node)

    @property
    def saved_ns(self) -> float | None:
        """How much shorter the mean step would be, ns."""
        return None if self.predicted_ns is None else self.step_ns - self.predicted_ns


def suspect_fix(diagnosis: Diagnosis) -> Fix | None:
    """Return the fix of the likely cause: its stage and rank; None if the verdict names no suspect."""
    aim = diagnosis.aim
    return None if aim is None else Fix(aim.stage, aim.rank)


def what_if(
    measures: Measures,
    diagnosis: Diagnosis,
    stage: str | None = None,
    rank: int | None = None,
    node: int | None = None,
) -> WhatIf | None:
    """Return the step time that fixing a stage would leave; None if the verdict names no suspect either.

    Args:
        diagnosis: of these measures; says where the carry-over frontier is aligned.
        stage: a broad stage; every stage where only ranks are given, the suspect where nothing is.
        rank: a global rank with rows; all ranks if None.
        node: a node of which all ranks are fixed, in the place of ``rank``.

    Raises:
        WindowNotFoundError: the window has no such stage, rank or node.
    """
    fix = suspect_fix(diagnosis) if (stage, rank, node) == (None, None, None) else Fix(stage, rank, node)
    return None if fix is None else what_if_of(measures, diagnosis, fix)


def what_if_of(measures: Measures, diagnosis: Diagnosis, fix: Fix) -> WhatIf:
    """Return the step time that a fix would leave, or the range that it lies in.

    Raises:
        WindowNotFoundError: the window has no such stage, rank or node.
    """
    step_ns = diagnosis.step_time.mean_ns
    stages = _stages(measures, fix)
    if not measures.has_all_rows:
        return WhatIf(fix.stage, fix.rank, step_ns, reason="reduced_rows", node=fix.node)
    places = _places(measures, fix)
    if not step_ns:
        return WhatIf(fix.stage, fix.rank, step_ns, reason="denominator_floor", node=fix.node)
    boundary = diagnosis.sync_boundary
    carry = measures.carry(None if boundary is None else measures.window.stages.index(boundary))
    reason, error = _why_not(measures, carry), None
    if reason is None and carry is not None:
        replay = _Replay.of(measures, carry)
        unchanged = replay.mean_step()
        error = abs(unchanged - step_ns) / step_ns
        if error <= MAX_ERROR:
            members = frozenset(member for stage in stages for member in measures.members(stage))
            saved = unchanged - replay.mean_step(members, places)
            return WhatIf(fix.stage, fix.rank, step_ns, step_ns - saved, error, node=fix.node)
        reason = "replay_differs"
    bounds = None if measures.ranks < 2 else saving_range(measures, diagnosis, carry, stages, places)
    least, most = (None, None) if bounds is None else (step_ns - bounds[1], step_ns - bounds[0])
    return WhatIf(fix.stage, fix.rank, step_ns, None, error, reason, fix.node, least, most)


def _stages(measures: Measures, fix: Fix) -> list[int]:
    """Return the positions of the broad stages that are fixed."""
    if fix.stage is None:
        return list(range(len(measures.broad)))
    if fix.stage not in measures.broad:
        raise WindowNotFoundError(f"no stage {fix.stage!r}; there are: {', '.join(measures.broad)}")
    return [measures.broad.index(fix.stage)]


def _places(measures: Measures, fix: Fix) -> Ints | None:
    """Return the positions of the ranks that are fixed; None for all."""
    ranks, number = measures.window.ranks, measures.window.number
    if fix.rank is not None:
        if fix.rank not in ranks.rank:
            raise WindowNotFoundError(f"no rows of rank {fix.rank} in window {number}")
        return np.array([ranks.rank.index(fix.rank)])
    if fix.node is not None:
        places = np.flatnonzero(np.asarray(ranks.node_rank) == fix.node)
        if not places.size:
            raise WindowNotFoundError(f"no rows of node {fix.node} in window {number}")
        return places
    return None


def _why_not(measures: Measures, carry: CarryOver | None) -> str | None:
    if measures.ranks < 2:
        return "single_rank"
    if carry is None:
        return "steps_not_consecutive"
    if measures.own is None or not measures.own.split_SN.any():
        return "no_waits_recorded"
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Replay:
    """A window as own time and synchronisations. Only stages with waits are copied: a window may be large.

    Attributes:
        duration_SNR: int64 ns, of stages without waits.
        own: by recorded stage with waits, own time [N, R], int64 ns: known waits are taken out.
        least_SN: int64 ns, the least wait over ranks at each sync; -1 where ranks do not synchronise.
        typical_SN: ns, the lower middle value of own time over ranks: of an even number the mean of two
            ranks would keep half of one's delay.
        start_R: int64 ns, where each rank's time begins.
    """

    duration_SNR: Array
    own: dict[int, Ints]
    least_SN: Ints
    typical_SN: Floats
    start_R: Ints

    @classmethod
    def of(cls, measures: Measures, carry: CarryOver) -> _Replay:
        window = measures.window
        assert measures.own is not None  # the caller asked
        split_SN = measures.own.split_SN
        duration_SNR = to_numpy(window.duration_SNR)
        least_SN = np.full(split_SN.shape, -1, dtype=np.int64)
        own = {}
        for stage in np.flatnonzero(split_SN.any(axis=1)).tolist():
            is_synced_N = split_SN[stage]
            wait_NR = to_numpy(window.waits[window.stages[stage]])
            own[stage] = np.where(
                is_synced_N[:, None], to_numpy(own_duration(window, stage)), duration_SNR[stage]
            )
            least_SN[stage, is_synced_N] = wait_NR[is_synced_N].min(axis=1)
        return cls(duration_SNR, own, least_SN, measures.own.most_SN, -carry.offset_R)

    def mean_step(self, clipped: Collection[int] = (), places: Ints | None = None) -> float:
        """Return the mean exposed step of a replay, ns.

        Args:
            clipped: recorded stages in which own time is clipped to the typical one.
            places: positions of the ranks whose time is clipped; of all ranks if None.
        """
        stages, steps = self.least_SN.shape
        plane_of = [self.own.get(stage, self.duration_SNR[stage]) for stage in range(stages)]
        time_R = self.start_R.copy()
        for step in range(steps):
            for stage in range(stages):
                own_R = plane_of[stage][step]
                if stage in clipped:
                    own_R = self._clipped(own_R, int(self.typical_SN[stage, step]), places)
                time_R += own_R
                least = self.least_SN[stage, step]
                if least >= 0:
                    time_R[:] = time_R.max() + least
        exposed_ns = int(time_R.max()) - int(self.start_R.max())
        return float(exposed_ns / steps)

    @staticmethod
    def _clipped(own_R: Ints, typical: int, places: Ints | None) -> Ints:
        if places is None:
            return np.minimum(own_R, typical)
        clipped_R = own_R.copy()
        clipped_R[places] = np.minimum(own_R[places], typical)
        return clipped_R
