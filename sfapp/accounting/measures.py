"""Everything about a window that depends on its matrix and on no gate.

Only ``measure`` reads the matrix; ``judge`` turns the result into a verdict. Moving a threshold therefore
costs the same at 8 ranks and at 100,000.

One gate is an exception: ``wait_slope`` selects the sync boundary and with it an alignment of the carry-over
frontier. If it leaves no wait stage, a second wait fit is used. Each alignment and that fit are computed on
first use and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import RLock
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from sfapp.accounting.carry_over import (
    CarryOver,
    CarryOverFrontier,
    carry_over,
    frontier_before,
    steps_before,
    sync_offsets,
)
from sfapp.accounting.closure import Closure, closures
from sfapp.accounting.device import device_evidence
from sfapp.accounting.frontier import Boundaries, Walk, running_boundaries, walk
from sfapp.accounting.gains import baseline_of, clipped_frontier, clipped_makespan
from sfapp.accounting.kernels import as_float, median_last, middle_last, placed, previous_boundary
from sfapp.accounting.leaders import Floats, Handover, Ints, count_handovers
from sfapp.accounting.overflow import refuse_overflow
from sfapp.accounting.own_time import OwnBoundaries, OwnDurations, at_own_end, own_durations, split_steps
from sfapp.accounting.run_waits import RunWaits
from sfapp.accounting.wait_model import slopes_since_sync, wait_slopes
from sfapp.errors import WindowError
from sfapp.model import Baseline, DeviceEvidence, RankTable, Reference, Window, broad_stage
from sfapp.model.arrays import Array, namespace, to_numpy

Key = TypeVar("Key", bound=Hashable)
Kept = TypeVar("Kept")
Number = TypeVar("Number", np.int64, np.float64)


@dataclass(frozen=True, eq=False)
class Measures:
    """Evidence in the matrix of one window under one baseline. NumPy on the host; ns unless named a share.

    S recorded stages, B broad stages (S = B without accumulation), N steps, R ranks.

    Attributes:
        window: the measured window.
        baseline: the b̃ of the gains.
        broad: the broad stages in order; ``broad_of_S[s]`` is the position of recorded stage s in it.
        frontier_SN, advance_SN, leader_SN, gap_SN: the step-aligned accounting (§1, §3); leader and gap are
            taken at the end of the own part if the stage's waits are known (§15).
        own_advance_SN: the part of the advance by own time; ``advance_SN`` where waits are not known.
        median_SN, mean_SN, max_SN: of d over ranks.
        most_SN: the lower middle value of d over ranks, which more than half of the ranks reach.
        first_rank_SN: d of the lowest rank (rival rule); a reduced window keeps its rows.
        slowest_SN: d of the rank with the largest step total (rival rule); zeros if its rows are not kept.
        clipped_BN: F[S,t] with each broad stage clipped to the baseline (§4).
        wait_slope_S, wait_se_S: the wait fit, NaN where absent (§11).
        closure: residual and overlap (§2).
        consecutive: whether step numbers have no gap, which carry-over needs.
        before_NR: time that each rank spent before each step.
        run_waits: where ranks wait according to all windows of the run; None if these were not read.
    """

    window: Window
    baseline: Baseline
    broad: tuple[str, ...]
    broad_of_S: tuple[int, ...]
    frontier_SN: Ints
    advance_SN: Ints
    own_advance_SN: Ints
    leader_SN: Ints
    gap_SN: Ints
    median_SN: Floats
    most_SN: Floats
    mean_SN: Floats
    max_SN: Ints
    slowest_SN: Ints
    first_rank_SN: Ints
    clipped_BN: Floats
    wait_slope_S: Floats
    wait_se_S: Floats
    closure: Closure
    consecutive: bool
    _baseline_SNR: Array = field(repr=False)
    before_NR: Array = field(repr=False)
    run_waits: RunWaits | None = field(default=None, repr=False)
    _kept: dict[tuple[str, Hashable], Any] = field(default_factory=dict, repr=False)
    _lock: RLock = field(default_factory=RLock, repr=False)

    # ---- sizes and sums -------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        return int(self.frontier_SN.shape[1])

    @cached_property
    def ranks(self) -> int:
        """R: the number of ranks that took part, with or without rows of their own."""
        return self.window.rank_count

    @property
    def has_all_rows(self) -> bool:
        """Whether every rank's rows are present. Otherwise there are no medians over ranks, so gains, excess
        and wait fit are NaN."""
        return self.window.reduced is None

    @cached_property
    def led_by(self) -> RankTable:
        """The ranks to which positions of leaders refer."""
        return self.window.led_by

    @cached_property
    def makespan_N(self) -> Ints:
        """F[S,t]: the exposed time of every step, ns."""
        makespan_N: Ints = self.frontier_SN[-1]
        return makespan_N

    @cached_property
    def makespan(self) -> int:
        """Σ_t F[S,t], ns."""
        return int(self.makespan_N.sum())

    @cached_property
    def step_N(self) -> Ints:
        """Logical step numbers."""
        return self.window.step_N

    @property
    def baseline_SNR(self) -> Array:
        """b̃, float64 ns, broadcastable against [S, N, R] (§4)."""
        return self._baseline_SNR

    def members(self, broad: int) -> tuple[int, ...]:
        """Return positions of the recorded stages that make up a broad stage."""
        return tuple(stage for stage, owner in enumerate(self.broad_of_S) if owner == broad)

    def by_broad(self, value_S: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Add up recorded stages to broad ones: [S, …] to [B, …]."""
        if len(self.broad) == len(self.broad_of_S):
            return value_S
        summed = np.zeros((len(self.broad), *value_S.shape[1:]), dtype=value_S.dtype)
        np.add.at(summed, np.asarray(self.broad_of_S), value_S)
        return summed

    def in_run(self, waits: RunWaits | None) -> Measures:
        """Return these measures with the waits that the windows of the run show (§10)."""
        return self if waits == self.run_waits else replace(self, run_waits=waits)

    # ---- computed on first use, then kept -------------------------------------------------------

    def takeover_B(self, broad: int) -> Floats:
        """Return T: the change of each broad stage's share of the old makespan when one is clipped (§4)."""
        return self.keep("takeover", broad, self._takeover)

    def lag_rise(self, broad: int) -> float:
        """Return Σ_t of a broad stage's lag rise L[s] − L[s−1], ns (§3)."""
        return self.keep("lag_rise", broad, self._lag_rise)

    def sync_offsets(self, stage: int) -> tuple[Floats, float]:
        """Return rank offsets [R] and dispersion, ns, at the end of a recorded stage (§10)."""
        return self.keep("sync_offsets", stage, self._sync_offsets)

    def slopes_since_sync(self) -> tuple[Floats, Floats]:
        """Return slope and standard error [S] of the wait fit per sync, NaN where absent (§11)."""
        return self.keep("since_sync", None, self._slopes_since_sync)

    def carry(self, boundary: int | None = None) -> CarryOver | None:
        """Return the carry-over accounting aligned at a wait stage; None if steps are not consecutive."""
        if not self.consecutive:
            return None
        return self.keep("carry", boundary, self._carry)

    @cached_property
    def own(self) -> OwnDurations | None:
        """Own time over the ranks; None if no stage's waits are known (§15). Its medians are NaN for a
        reduced window."""
        if not self.has_all_rows:
            split_SN = split_steps(self.window)
            return OwnDurations(split_SN, self.median_SN, self.most_SN) if split_SN.any() else None
        if not self.window.waits:
            return None
        return own_durations(self.window, self.median_SN, self.most_SN)

    @cached_property
    def device(self) -> DeviceEvidence | None:
        """Evidence of sampled device events (§7.8)."""
        return device_evidence(self.window, self.makespan_N) if self.has_all_rows else None

    @cached_property
    def stage_median_S(self) -> Floats:
        """Median over steps and ranks of each recorded stage, ns: a reference's baseline (§4)."""
        if not self.has_all_rows:
            return np.full(len(self.window.stages), np.nan)
        return to_numpy(median_last(self.window.duration_SNR.reshape(len(self.window.stages), -1)))

    def handovers(self) -> list[Handover]:
        """Return the changes of the step-aligned leader, per boundary (§3)."""
        return count_handovers(self.leader_SN, self.window.stages, self.led_by)

    def remember_unaligned(self, boundaries: Boundaries, own: OwnBoundaries | None = None) -> None:
        """Keep the carry-over frontier without offsets and its leaders at the end of own time. It is already
        known, from the wait slopes or from a reduced window."""
        advance_SN = boundaries.frontier_SN - frontier_before(boundaries.frontier_SN)
        offset_R = np.zeros(len(self.window.ranks), dtype=np.int64)
        unaligned = CarryOverFrontier(boundaries, 0, advance_SN, offset_R, None)
        kept = CarryOver.of(unaligned, self.window, self.before_NR)
        if own is not None:
            kept = replace(kept, own_advance_SN=own.advance_SN, leader_SN=own.leader_SN, gap_SN=own.gap_SN)
        self._kept["carry", None] = kept

    def keep(self, name: str, key: Key, compute: Callable[[Key], Kept]) -> Kept:
        """Return the value of a key, computed from the matrix on first use and then kept."""
        with self._lock:
            if (name, key) not in self._kept:
                self._kept[name, key] = compute(key)
            return cast(Kept, self._kept[name, key])

    def _takeover(self, broad: int) -> Floats:
        clipped_SN = to_numpy(
            clipped_frontier(self.window.duration_SNR, self._baseline_SNR, self.members(broad))
        )
        change_S = (clipped_SN - previous_boundary(clipped_SN)).sum(axis=1) - self.advance_SN.sum(axis=1)
        return self.by_broad(change_S) / max(1, self.makespan)

    def _median_prefix(self, stage: int) -> Floats:
        """Return the median over ranks of the prefix at a recorded stage, ns [N]; the lag is F minus this."""
        if stage == 0:
            first_N: Floats = self.median_SN[0]
            return first_N
        return to_numpy(median_last(self.window.duration_SNR[: stage + 1].sum(axis=0)))

    def _lag_rise(self, broad: int) -> float:
        rise = 0.0
        for stage in self.members(broad):
            rise += float((self.frontier_SN[stage] - self._median_prefix(stage)).sum())
            if stage:
                rise -= float((self.frontier_SN[stage - 1] - self._median_prefix(stage - 1)).sum())
        return rise

    def _sync_offsets(self, stage: int) -> tuple[Floats, float]:
        offset_R, dispersion = sync_offsets(self.window.duration_SNR, self.before_NR, stage)
        return to_numpy(offset_R), dispersion

    def _slopes_since_sync(self, _: None) -> tuple[Floats, Floats]:
        if not (self.consecutive and self.has_all_rows):
            return (absent := np.full(len(self.window.stages), np.nan)), absent
        slopes = slopes_since_sync(self.window.duration_SNR)
        return to_numpy(slopes.slope), to_numpy(slopes.se)

    def _carry(self, boundary: int | None) -> CarryOver:
        offset_R = None
        if boundary is not None:
            # np.rint rounds half to even, as §10 requires.
            offset_R = placed(np.rint(self.sync_offsets(boundary)[0]).astype(np.int64), self.before_NR)
        found = carry_over(self.window.duration_SNR, self.before_NR, offset_R, boundary)
        return CarryOver.of(found, self.window, self.before_NR)


def measure(
    window: Window, baseline: Baseline = "cohort_median", reference: Reference | None = None
) -> Measures:
    """Measure one window in one pass over its matrix.

    Args:
        window: of all ranks or of a group, on any device.
        baseline: the durations that stages are clipped to for their gains (§4).
        reference: needed for baseline ``reference`` only.

    Raises:
        WindowError: a needed reference is missing, or durations are too large to add up.
    """
    return measure_many([window], baseline, reference)[0]


def measure_many(
    windows: Sequence[Window], baseline: Baseline = "cohort_median", reference: Reference | None = None
) -> list[Measures]:
    """Measure many windows of the same stages, steps and ranks together.

    The step-aligned accounting restarts at each step and does not depend on the window of the step. Windows
    are therefore concatenated, which saves the per-call cost that dominates small windows. The ranks of a
    reduced window have measured it already.

    Raises:
        WindowError: as for ``measure``, or the windows differ in stages, steps or ranks.
    """
    one_by_one = baseline != "cohort_median" or any(window.reduced is not None for window in windows)
    if len(windows) > 1 and one_by_one:
        return [measure(window, baseline, reference) for window in windows]
    if windows[0].reduced is not None:
        from sfapp.accounting.reduced import measure_reduced  # builds on this module

        return [measure_reduced(windows[0], baseline)]
    first = windows[0]
    if any(w.stages != first.stages or w.duration_SNR.shape != first.duration_SNR.shape for w in windows):
        raise WindowError("windows measured together must have the same stages, steps and ranks")
    return _measure_together(windows, baseline, reference)


def _measure_together(
    windows: Sequence[Window], baseline: Baseline, reference: Reference | None
) -> list[Measures]:
    stages, steps, ranks = windows[0].duration_SNR.shape
    per_window = (len(windows), steps, ranks)
    duration = _end_to_end([window.duration_SNR for window in windows], axis=1)
    walked = walk(duration)
    refuse_overflow(windows, walked.largest_SN.reshape(stages, len(windows), steps))
    total = walked.total_NR.reshape(per_window)
    before = steps_before(total)
    drift = running_boundaries(duration, before.reshape(-1, ranks))
    slopes = wait_slopes(
        duration.reshape(stages, *per_window),
        before,
        total,
        drift.frontier_SN.reshape(stages, len(windows), steps),
    )
    most, median = middle_last(duration)
    level = baseline_of(duration, median, windows[0].stages, baseline, reference)
    broad = windows[0].broad_stages
    broad_of_S = tuple(broad.index(broad_stage(stage)) for stage in windows[0].stages)
    planes = {
        **_host_planes(duration, walked),
        "median_SN": to_numpy(median),
        "most_SN": to_numpy(most),
        "clipped_BN": to_numpy(clipped_makespan(duration, walked.total_NR, level, broad_of_S)),
    }
    residual = windows[0].residual_index
    explicit = total if residual is None else total - duration[residual].reshape(per_window)
    wall = _end_to_end([window.wall_NR for window in windows], axis=0)
    closed = closures(explicit, wall.reshape(per_window))
    slope_SW, se_SW = to_numpy(slopes.slope), to_numpy(slopes.se)
    found = []
    for index, window in enumerate(windows):
        rows = slice(index * steps, (index + 1) * steps)
        consecutive = bool((np.diff(window.step_N) == 1).all())
        absent_S = np.full(stages, np.nan)
        measured = Measures(
            window=window,
            baseline=baseline,
            broad=broad,
            broad_of_S=broad_of_S,
            wait_slope_S=slope_SW[:, index] if consecutive else absent_S,
            wait_se_S=se_SW[:, index] if consecutive else absent_S,
            closure=closed[index],
            consecutive=consecutive,
            _baseline_SNR=level[:, rows] if level.shape[1] == duration.shape[1] else level,
            before_NR=before[index],
            **cast(
                dict[str, Any], _with_own(window, {name: plane[:, rows] for name, plane in planes.items()})
            ),
        )
        measured.remember_unaligned(
            Boundaries(drift.frontier_SN[:, rows], drift.leader_SN[:, rows], drift.second_SN[:, rows])
        )
        found.append(measured)
    return found


def _with_own(window: Window, planes: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Return the planes of one window, with leaders at the end of own time where waits are known (§15)."""
    whole = OwnBoundaries(planes["advance_SN"], planes["leader_SN"], planes["gap_SN"])
    own = whole
    if window.waits:
        own = at_own_end(window, previous_boundary(planes["frontier_SN"]), whole)
    found = {"own_advance_SN": own.advance_SN, "leader_SN": own.leader_SN, "gap_SN": own.gap_SN}
    return planes | found


def _host_planes(duration: Array, walked: Walk) -> dict[str, npt.NDArray[Any]]:
    """Return the results of one pass over the matrix, each [S, N], by field of ``Measures``."""
    aligned = walked.boundaries
    return {
        "frontier_SN": to_numpy(aligned.frontier_SN),
        "advance_SN": to_numpy(aligned.frontier_SN - previous_boundary(aligned.frontier_SN)),
        "leader_SN": to_numpy(aligned.leader_SN),
        "gap_SN": to_numpy(aligned.gap_SN),
        "mean_SN": to_numpy(as_float(walked.sum_SN) / duration.shape[-1]),
        "max_SN": to_numpy(walked.largest_SN),
        "first_rank_SN": to_numpy(duration[:, :, 0]),
        "slowest_SN": to_numpy(_of_rank(duration, aligned.leader_SN[-1])),
    }


def _end_to_end(parts: Sequence[Array], axis: int) -> Array:
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concatenate(tuple(parts), axis=axis)


def _of_rank(duration_SNR: Array, rank_N: Array) -> Array:
    """Return d of one chosen rank per step: [S, N]."""
    return duration_SNR[:, placed(np.arange(len(rank_N)), rank_N), rank_N]
