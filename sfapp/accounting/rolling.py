"""Judge the last steps of a running job as they arrive (accounting.md §15 to §17).

The rows of the last steps become a ``Window``, which ``judge`` judges like any other. The result also says
what a window on disk cannot show: which ranks have not reported, and whether steps still arrive.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sfapp.accounting.judge import judge
from sfapp.accounting.late_ranks import Flags, Floats, has_enough_steps
from sfapp.accounting.leaders import Ints
from sfapp.accounting.measures import Measures, measure
from sfapp.accounting.run_waits import RunWaits
from sfapp.accounting.window_lateness import late_in_stage, lateness_of
from sfapp.model import Diagnosis, Gates, Manifest, RankTable, Reference, Window, stage_hash
from sfapp.model.arrays import to_numpy
from sfapp.model.findings import Finding
from sfapp.model.live_rows import FIRST_STAGE, LiveRows

ROLLING_STEPS = 20
"""Default number of steps in a rolling verdict."""

SILENT_S = 5.0
"""Seconds without a message after which a rank is silent."""

STANDING_STEPS = 10
"""Number of step times without an ended step after which a job stands still, if ``SILENT_S`` have passed
too."""

RollingKind = Literal["starting", "healthy", "late", "growth", "incomplete", "standing", "ended"]

ROLLING_KINDS: dict[RollingKind, str] = {
    "starting": "Too few steps have ended to judge them.",
    "healthy": "No effect is beyond noise and large enough.",
    "late": "Ranks are later than the others in a stage.",
    "growth": "Steps are longer than in the run's healthy windows, and no late rank explains it.",
    "incomplete": "Some ranks have not reported the last steps; the verdict is that of the others.",
    "standing": "No rank finishes steps any more.",
    "ended": "All ranks have left.",
}
"""Every kind of rolling verdict with its meaning, in no order."""

_OVER_STEPS = 3
"""Number of last steps without lateness after which a rank is no longer late."""


@dataclass(frozen=True, slots=True)
class StepReports:
    """Which ranks have reported, and up to which step.

    Attributes:
        newest_step: the newest step that any rank has finished; None before the first one.
        idle_s: seconds since any rank finished a step; None before the first one.
        absent: ranks that have never reported.
        silent: ranks without a message for ``SILENT_S``, with the seconds, the longest silence first.
        left: ranks that have closed their recorder.
        behind: ranks whose newest step is older than ``newest_step``, with that step (None: no step yet), the
            one furthest behind first.
        apart: reporting ranks whose rows do not match those of the others: other stages or other steps.
        reporting: number of ranks that are neither silent nor have left.
    """

    newest_step: int | None
    idle_s: float | None
    absent: tuple[int, ...]
    silent: tuple[tuple[int, float], ...]
    left: tuple[int, ...]
    behind: tuple[tuple[int, int | None], ...]
    apart: tuple[int, ...] = ()
    reporting: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class RankDelays:
    """Lateness of each rank in the last steps, before ranks synchronise.

    Attributes:
        behind_R: how far it is behind the median rank of its role at the boundary where it is furthest
            behind, mean over steps, ns.
        stages: broad stages. late_BR: own time in each minus that of the other ranks, mean over steps, ns;
            NaN where not known.
    """

    ranks: RankTable
    behind_R: Floats
    stages: tuple[str, ...]
    late_BR: Floats


@dataclass(frozen=True, slots=True, eq=False)
class RollingVerdict:
    """The verdict on the last steps of a running job.

    Attributes:
        asked: number of steps requested.
        finding: the largest effect that needs attention, or None.
        late_N: for each judged step, whether the finding's first rank is late in its stage; true for growth.
        diagnosis, measures, delays: of the judged steps; None if there are too few.
    """

    kind: RollingKind
    asked: int
    world_size: int
    roll: StepReports
    finding: Finding | None = None
    late_N: Flags | None = None
    diagnosis: Diagnosis | None = None
    measures: Measures | None = None
    delays: RankDelays | None = None

    @property
    def steps(self) -> int:
        """Number of judged steps."""
        return 0 if self.diagnosis is None else self.diagnosis.steps

    @property
    def late_steps(self) -> int:
        """Number of judged steps with the finding."""
        return 0 if self.late_N is None else int(self.late_N.sum())

    @property
    def step_ns(self) -> float | None:
        """Mean exposed step, ns."""
        return None if self.diagnosis is None else self.diagnosis.step_time.mean_ns

    @property
    def since_step(self) -> int | None:
        """First step with the finding; None if it began before the judged steps."""
        places = self._late_places
        return None if self.measures is None or not places or places[0] == 0 else self._step(places[0])

    @property
    def until_step(self) -> int | None:
        """Last step with the finding; None while it lasts."""
        places = self._late_places
        if self.measures is None or not places or places[-1] + _OVER_STEPS >= self.steps:
            return None
        return self._step(places[-1])

    @property
    def _late_places(self) -> list[int]:
        return [] if self.late_N is None else np.flatnonzero(self.late_N).tolist()

    def _step(self, place: int) -> int:
        assert self.measures is not None
        return int(self.measures.step_N[place])


def rolling_verdict(
    rows: LiveRows,
    steps: int = ROLLING_STEPS,
    *,
    gates: Gates | None = None,
    reference: Reference | None = None,
    run_waits: RunWaits | None = None,
    older_s: float = 0.0,
    window: Window | None = None,
) -> RollingVerdict:
    """Judge the last steps that all reporting ranks have finished.

    Args:
        steps: maximum number of steps.
        reference, run_waits: from the run's finished windows: the healthy ones, and where ranks wait.
        older_s: seconds since the rows were collected.
        window: the result of ``rolling_window``, if already known.
    """
    gates = gates or Gates()
    window = window or rolling_window(rows, steps, older_s)
    roll = step_reports(rows, window, older_s)
    if window is None or not has_enough_steps(len(window.step_N)):
        return RollingVerdict(_kind(rows, roll, None, None), steps, rows.world_size, roll)
    measures = measure(window).in_run(run_waits)
    diagnosis = judge(measures, gates, "carry_over", reference)
    finding = diagnosis.main_finding
    return RollingVerdict(
        _kind(rows, roll, window, finding),
        steps,
        rows.world_size,
        roll,
        finding,
        None if finding is None else _late_N(measures, finding, gates),
        diagnosis,
        measures,
        _delays(measures, diagnosis),
    )


def with_age(found: RollingVerdict, rows: LiveRows, older_s: float) -> RollingVerdict:
    """Return the verdict on the same rows at a later time, without judging them again."""
    window = None if found.measures is None else found.measures.window
    roll = step_reports(rows, window, older_s)
    return replace(found, roll=roll, kind=_kind(rows, roll, window, found.finding))


def _kind(rows: LiveRows, roll: StepReports, window: Window | None, finding: Finding | None) -> RollingKind:
    """Return the kind of verdict, which the headline states.

    Args:
        window: the judged steps; None if there are too few.
    """
    if rows.ranks and len(roll.left) == len(rows.ranks) and not roll.absent:
        return "ended"
    if window is not None and _is_standing(roll, window):
        return "standing"
    if roll.absent or roll.silent or roll.apart:
        return "incomplete"
    if window is None:
        return "starting"
    if finding is None:
        return "healthy"
    return "late" if finding.kind == "rank" else "growth"


def rolling_window(rows: LiveRows, steps: int, older_s: float = 0.0) -> Window | None:
    """Return the last steps that all reporting ranks have finished, as a window; None if there are none.

    It excludes ranks that have left, are silent, have other stages than most, or are so far behind that no
    step is common.
    """
    here = [
        rank
        for rank in rows.ranks
        if len(rank.row_NC) and not rank.has_left and rank.silent_s + older_s <= SILENT_S
    ]
    if not here:  # All ranks are silent or have left: their last steps are still worth a look.
        here = [rank for rank in rows.ranks if len(rank.row_NC)]
    if not here:
        return None
    (stages, _), *_ = Counter(rank.stages for rank in here).most_common(1)
    here = [rank for rank in here if rank.stages == stages]
    middle = sorted(int(rank.row_NC[-1, 0]) for rank in here)[len(here) // 2]
    here = [rank for rank in here if rank.row_NC[0, 0] <= middle <= rank.row_NC[-1, 0] + steps]
    keys = [rank.row_NC[:, 0].tobytes() for rank in here]
    different = {key: rank.row_NC[:, 0] for key, rank in zip(keys, here, strict=True)}
    step_N = _common_steps(list(different.values()))[-steps:]
    if not len(step_N):
        return None
    places = {key: _places(numbers, step_N) for key, numbers in different.items()}
    row_RNC = np.stack([rank.row_NC[places[key]] for key, rank in zip(keys, here, strict=True)])
    manifest = Manifest(
        run_id=rows.run_id,
        window=0,
        stages=stages,
        stage_hash=stage_hash(stages),
        world_size=len(here),
        closed_by="flush",
    )
    cell_CNR = row_RNC.transpose(2, 1, 0)
    return Window(
        manifest=manifest,
        duration_SNR=np.ascontiguousarray(cell_CNR[FIRST_STAGE:]),
        wall_NR=np.ascontiguousarray(cell_CNR[1]),
        step_N=step_N,
        ranks=RankTable.of([rank.identity for rank in here]),
    )


def _common_steps(number_N: Sequence[Ints]) -> Ints:
    """Return the step numbers common to all of these, ascending."""
    first, *others = number_N
    for other in others:
        first = np.intersect1d(first, other, assume_unique=True)
    return np.array(first, dtype=np.int64)


def _places(numbers_N: Ints, step_N: Ints) -> Ints | slice:
    """Return the positions of these steps, as a slice if they are consecutive, which is faster."""
    found = np.searchsorted(numbers_N, step_N)
    first, end = int(found[0]), int(found[-1]) + 1
    return slice(first, end) if end - first == len(found) else found


def step_reports(rows: LiveRows, window: Window | None, older_s: float = 0.0) -> StepReports:
    """Return which ranks have reported, and up to which step.

    Args:
        window: of the ranks whose rows are judged.
    """
    judged = set() if window is None else set(window.ranks.rank)
    newest = max((rank.newest_step for rank in rows.ranks if rank.newest_step is not None), default=None)
    idle = min((rank.idle_s for rank in rows.ranks if rank.idle_s is not None), default=None)
    present = {rank.identity.rank for rank in rows.ranks}
    silent, left, behind, apart = [], [], [], []
    for rank in rows.ranks:
        number, step = rank.identity.rank, rank.newest_step
        if rank.has_left:
            left.append(number)
            continue
        if rank.silent_s + older_s > SILENT_S:
            silent.append((number, rank.silent_s + older_s))
        elif step is not None and number not in judged and window is not None:
            apart.append(number)
        if newest is not None and (step is None or step < newest):
            behind.append((number, step))
    return StepReports(
        newest,
        None if idle is None else idle + older_s,
        tuple(rank for rank in range(rows.world_size) if rank not in present),
        tuple(sorted(silent, key=lambda each: -each[1])),
        tuple(left),
        tuple(sorted(behind, key=lambda each: (-1 if each[1] is None else each[1], each[0]))),
        tuple(apart),
        len(rows.ranks) - len(silent) - len(left),
    )


def _is_standing(roll: StepReports, window: Window) -> bool:
    """Return whether no step has ended for much longer than a step takes.

    That is not known if no rank reports: the aggregator or the network may have stopped, and not the job.
    """
    if roll.idle_s is None or not roll.reporting:
        return False
    longest = float(to_numpy(window.wall_NR).max(initial=0)) / 1e9
    typical = float(np.median(to_numpy(window.wall_NR))) / 1e9
    return roll.idle_s > max(SILENT_S, STANDING_STEPS * typical, 2 * longest)


def _late_N(measures: Measures, finding: Finding, gates: Gates) -> Flags:
    """Return the steps in which the first rank is late: by at least min_effect of the mean step, and by at
    least half of its usual lateness in late steps."""
    if finding.kind != "rank":
        return np.ones(measures.steps, dtype=bool)
    if finding.steps:
        return np.isin(measures.step_N, finding.steps)
    place = measures.led_by.rank.index(finding.ranks[0])
    late_N = late_in_stage(measures, measures.broad.index(finding.stage))[:, place]
    usual = float(np.quantile(late_N, 0.9))
    found: Flags = late_N >= max(gates.min_effect * measures.makespan / measures.steps, usual / 2)
    return found


def _delays(measures: Measures, diagnosis: Diagnosis) -> RankDelays:
    stages, boundary = measures.window.stages, None
    if diagnosis.sync_boundary is not None:
        boundary = stages.index(diagnosis.sync_boundary)
    known = lateness_of(measures, boundary)
    late_BR = np.full((len(measures.broad), measures.ranks), np.nan)
    if known is not None:
        late_BR = np.stack([stage.mean_R for stage in known])
    return RankDelays(measures.window.ranks, _furthest_behind(measures, boundary), measures.broad, late_BR)


def _furthest_behind(measures: Measures, boundary: int | None) -> Floats:
    """Return how far each rank is behind the median rank of its role at the boundary where it is furthest
    behind, mean over steps, ns [R].

    Ranks that wait for each other reach the end of a step together, so the sum of their stages does not show
    which one is late. Before they synchronise, the late rank is behind.
    """
    carried = measures.carry(boundary)
    position_NR = np.zeros((measures.steps, measures.ranks))
    if carried is not None:
        position_NR = to_numpy(measures.before_NR) - carried.offset_R
    by_role: dict[str | None, list[int]] = defaultdict(list)
    for place, role in enumerate(measures.window.ranks.role):
        by_role[role].append(place)
    behind_R = np.full(measures.ranks, -np.inf)
    for duration_NR in to_numpy(measures.window.duration_SNR):
        position_NR = position_NR + duration_NR
        for places in by_role.values():
            part_NR = position_NR[:, places] if len(by_role) > 1 else position_NR
            ahead_R = (part_NR - np.median(part_NR, axis=1, keepdims=True)).mean(axis=0)
            behind_R[places] = np.maximum(behind_R[places], ahead_R)
    return behind_R
