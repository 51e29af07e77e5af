"""Compare the verdicts on simulated jobs with the planted faults."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.ensemble.simulated_jobs import (
    HEALTHY_WINDOWS,
    MS,
    STEP_MS,
    STEPS,
    Fault,
    FaultKind,
    SimulatedJob,
    cost,
    jobs,
    simulate,
)
from sfapp.accounting import diagnose_runs
from sfapp.accounting.episodes import episodes_of
from sfapp.accounting.onset import located
from sfapp.model import Diagnosis
from sfapp.model.findings import Finding, FindingKind
from sfapp.model.labels import STRONG_LABELS
from sfapp.model.onsets import Episode, StepEstimate
from sfapp.model.stages import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER

CLEAR = 3.0
"""Multiple of the resolution from which a fault is clear."""

_AT_MOST = 0.5
"""Part of a step above which a resolution is not tested exactly: too few ranks or steps."""


@dataclass
class HealthyScore:
    """Counts of windows of healthy jobs by noise, of steps or between windows: all, those that need
    attention, those with a strong label."""

    windows: Counter[float] = field(default_factory=Counter)
    attention: Counter[float] = field(default_factory=Counter)
    strong: Counter[float] = field(default_factory=Counter)


@dataclass
class FaultScore:
    """Outcomes on windows with faults, for faults that are clear by the window's resolution and for the
    others."""

    clear: Counter[str] = field(default_factory=Counter)
    smaller: Counter[str] = field(default_factory=Counter)


def healthy(count: int, seed: int, *, waits: bool) -> HealthyScore:
    """Judge healthy jobs."""
    score = HealthyScore()
    for job in jobs(count, seed, healthy=True):
        for diagnosis in diagnose_runs(simulate(job, waits=waits)):
            score.windows[job.noise] += 1
            score.attention[job.noise] += diagnosis.needs_attention
            score.strong[job.noise] += bool(set(STRONG_LABELS) & set(diagnosis.label_names))
    return score


DIFFERING = (0.02, 0.05)
"""Noise between windows beyond that of their steps."""

DIFFERING_WINDOWS = 16
"""Number of windows of a job whose windows differ."""

_DIFFERING_RANKS = 32
"""Most ranks of a job whose windows differ: all ranks wait for each other, so their number matters little."""


def differing(count: int, seed: int) -> HealthyScore:
    """Judge healthy jobs whose windows differ beyond the noise of their steps; counts are by how much."""
    score = HealthyScore()
    for job in jobs(count, seed, healthy=True):
        ranks = min(job.ranks, _DIFFERING_RANKS)
        for between in DIFFERING:
            differs = replace(job, ranks=ranks, windows=DIFFERING_WINDOWS, between=between)
            for diagnosis in diagnose_runs(simulate(differs, waits=True)):
                score.windows[between] += 1
                score.attention[between] += diagnosis.needs_attention
                score.strong[between] += bool(set(STRONG_LABELS) & set(diagnosis.label_names))
    return score


def faulty(count: int, seed: int, *, waits: bool) -> FaultScore:
    """Judge jobs with faults, from the window in which the first one begins."""
    score = FaultScore()
    for job in jobs(count, seed, healthy=False):
        for diagnosis in diagnose_runs(simulate(job, waits=waits)):
            if diagnosis.window < HEALTHY_WINDOWS:
                continue
            times = max(fault.per_step(diagnosis.window) / needed(fault, diagnosis) for fault in job.faults)
            outcomes = score.clear if times >= CLEAR else score.smaller
            outcomes[outcome(job, diagnosis)] += 1
    return score


def needed(fault: Fault, diagnosis: Diagnosis) -> float:
    """Return the smallest fault of this kind that the window could show, as a part of a healthy step."""
    resolution = diagnosis.resolution
    if resolution is None:
        return float("inf")
    known = [] if resolution.growth is None else [resolution.growth]
    if fault.kind not in ("all", "rotating") and fault.stage in resolution.rank:
        known.append(resolution.rank[fault.stage])
    return min(known, default=float("inf")) * _healthy_steps(diagnosis)


def outcome(job: SimulatedJob, diagnosis: Diagnosis) -> str:
    """Return ``right``, ``stage only``, ``missed`` or ``wrong`` for the verdict on a window with a fault."""
    aim = diagnosis.aim
    if not diagnosis.needs_attention or aim is None:
        return "missed"
    of_stage = [fault for fault in job.faults if fault.stage == aim.stage]
    if not of_stage:
        return "wrong"
    one_rank = {fault.rank for fault in of_stage if fault.kind not in ("all", "rotating")}
    kinds = {fault.kind for fault in of_stage}
    if aim.rank is not None:
        return "right" if aim.rank in one_rank else "wrong"
    if aim.rank_reason == "all_ranks" and "all" in kinds:
        return "right"
    if aim.rank_reason in ("rotating", "no_clear_leader") and "rotating" in kinds:
        return "right"
    late = set(diagnosis.findings[0].ranks)
    return "right" if len(late) > 1 and late <= one_rank else "stage only"


def at_resolution(count: int, seed: int) -> tuple[Counter[bool], Counter[bool]]:
    """Plant faults of exactly the stated resolution, and return how often they are found.

    Only a finding of their own kind counts: a late rank also shows as growth, which has another resolution.

    Returns:
        for one rank that is late in a stage in every step; for growth on all ranks.
    """
    random = np.random.default_rng(seed)
    rank: Counter[bool] = Counter()
    growth: Counter[bool] = Counter()
    for job in jobs(count, seed, healthy=True):
        (_, _, alone, _) = diagnose_runs(simulate(job, waits=True))
        if alone.resolution is None:
            continue
        shown = {stage: part for stage, part in alone.resolution.rank.items() if part <= _AT_MOST}
        stages = [stage for stage in (DATA, FORWARD, BACKWARD, CALLBACKS, OPTIMIZER) if stage in shown]
        if stages:
            stage = str(random.choice(stages))
            size = shown[stage] * _healthy_steps(alone)
            fault = Fault("persistent", stage, int(random.integers(job.ranks)), size)
            rank[_shows(_planted(job, fault), "rank")] += 1
        found = _growth_at_resolution(job, alone)
        if found is not None:
            growth[found] += 1
    return rank, growth


def _growth_at_resolution(job: SimulatedJob, alone: Diagnosis) -> bool | None:
    """Return whether growth of exactly the resolution is found; None if it is too large to test.

    A job that drifts grows by itself from the healthy windows on; the fault is what this lacks. The healthy
    windows depend on the growth, and the resolution on the healthy windows, so the resolution is read again.
    """
    diagnosis = alone
    for _ in range(3):
        growth = None if diagnosis.resolution is None else diagnosis.resolution.growth
        if growth is None or growth > 2 * _AT_MOST:
            return None
        size = growth * _healthy_steps(diagnosis) - _drifted(job, diagnosis)
        diagnosis = _planted(job, Fault("all", BACKWARD, 0, max(0.0, size)))
    return _shows(diagnosis, "growth")


def _drifted(job: SimulatedJob, diagnosis: Diagnosis) -> float:
    """Return by how much the job's drift makes a window longer than the healthy windows, in healthy steps."""
    windows = () if diagnosis.reference is None else diagnosis.reference.windows
    if not windows:
        return 0.0
    return job.drift * (diagnosis.window - statistics.fmean(windows)) * STEPS / (job.windows * STEPS - 1)


def _shows(diagnosis: Diagnosis, kind: FindingKind) -> bool:
    """Return whether a window has a finding of this kind that needs attention."""
    return any(finding.kind == kind and finding.needs_attention for finding in diagnosis.findings)


def _planted(job: SimulatedJob, fault: Fault) -> Diagnosis:
    """Return the verdict on the first window with a fault."""
    return diagnose_runs(simulate(replace(job, faults=(fault,)), waits=True))[HEALTHY_WINDOWS]


def _healthy_steps(diagnosis: Diagnosis) -> float:
    """Return the window's mean step in units of a healthy step."""
    return diagnosis.step_time.mean_ns / (STEP_MS * MS)


LARGE = 0.10
"""Size in the affected steps, as a part of a healthy step, from which the onset of a fault must be found."""

SHOWN = 0.0005
"""Part of a step by which a true cost may lie outside its interval: half of the last digit that is shown."""


@dataclass
class CostScore:
    """Stated against true costs of the faults that were found, by kind of fault.

    Attributes:
        within: whether the true cost lies in the interval. widths: of the intervals, as parts of the cost.
    """

    within: dict[FaultKind, Counter[bool]] = field(default_factory=lambda: defaultdict(Counter))
    widths: dict[FaultKind, list[float]] = field(default_factory=lambda: defaultdict(list))


def costs(count: int, seed: int, *, waits: bool) -> CostScore:
    """Compare what faults cost with what is stated, in jobs with one fault and without drift, whose growth
    would be added to that of a fault on all ranks."""
    score = CostScore()
    for job in jobs(count, seed, healthy=False):
        if len(job.faults) > 1 or job.drift:
            continue
        (fault,) = job.faults
        for diagnosis in diagnose_runs(simulate(job, waits=waits))[HEALTHY_WINDOWS:]:
            finding = next((one for one in diagnosis.findings if _shows_fault(one, fault)), None)
            if finding is not None:
                true = cost(job, diagnosis.window) / diagnosis.step_time.mean_ns
                score.within[fault.kind][finding.low - SHOWN <= true <= finding.high + SHOWN] += 1
                score.widths[fault.kind].append((finding.high - finding.low) / finding.effect)
    return score


def _shows_fault(finding: Finding, fault: Fault) -> bool:
    """Return whether a finding that needs attention is that of a fault, by its kind, stage and rank."""
    kind = "growth" if fault.kind == "all" else "rank"
    is_of_rank = fault.kind in ("all", "rotating") or fault.rank in finding.ranks
    return finding.needs_attention and (finding.kind, finding.stage) == (kind, fault.stage) and is_of_rank


_ENDING_WINDOWS = 6
"""Number of windows of a job whose fault ends, so that a healthy window follows."""


@dataclass
class OnsetScore:
    """Estimated against true begins or ends of large faults.

    Attributes:
        within: whether the true step lies in the interval. widths: number of steps in the intervals.
    """

    within: Counter[bool] = field(default_factory=Counter)
    widths: list[int] = field(default_factory=list)

    def add(self, found: StepEstimate, true: int) -> None:
        self.within[found.low <= true <= found.high] += 1
        self.widths.append(found.high - found.low + 1)


def onsets(count: int, seed: int) -> tuple[OnsetScore, OnsetScore]:
    """Locate large faults of jobs with one fault that begins in the third window and ends in a later one.

    Returns:
        the begins of the faults that were found; their ends.
    """
    random = np.random.default_rng(seed)
    began, ended = OnsetScore(), OnsetScore()
    for job in jobs(count, seed, healthy=False):
        first = HEALTHY_WINDOWS * STEPS + int(random.integers(STEPS))
        until = int(random.integers(first + STEPS // 2, (_ENDING_WINDOWS - 1) * STEPS))
        fault = replace(job.faults[0], first=first, until=until)
        if fault.size < LARGE:
            continue
        windows = simulate(replace(job, faults=(fault,), windows=_ENDING_WINDOWS), waits=True)
        by_number = {window.number: window for window in windows}
        every = episodes_of(diagnose_runs(windows))
        of_fault = [located(one, by_number) for one in every if _is_of(one.episode(), fault)]
        if not of_fault:
            continue
        began.add(of_fault[0].began, int(fault.steps()[0]))
        last = max(of_fault, key=lambda episode: episode.last_window)
        if last.ended is not None:
            ended.add(last.ended, int(fault.steps()[-1]))
    return began, ended


def _is_of(episode: Episode, fault: Fault) -> bool:
    """Return whether an episode shows a fault: same stage, time and, for one late rank, the same rank."""
    first, last = int(fault.steps()[0]) // STEPS, int(fault.steps()[-1]) // STEPS
    if episode.stage != fault.stage or episode.last_window < first or episode.first_window > last:
        return False
    return episode.kind == "growth" or fault.kind in ("all", "rotating") or fault.rank in episode.ranks
