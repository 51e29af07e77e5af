"""Compare faults planted inside waiting stages with verdicts and predictions of the replay. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from benchmarks.experiments.waits_plan import PAUSE_EVERY, WaitFault, WaitJob
from sfapp.accounting import WhatIf, diagnose_runs, measure, what_if
from sfapp.model import Diagnosis, Window
from sfapp.model.arrays import to_numpy
from sfapp.model.window import NOT_MEASURED


@dataclass(frozen=True, slots=True)
class WaitSeen:
    """One window: the planted fault, the verdict, and the replay's prediction without the fault.

    Attributes:
        fix: the replay with the planted stage and rank clipped; None without a fault, or if the window has no
            such stage.
        around_ns: mean steps of the nearest windows without a fault before and after it.
        transfer_ns, healthy_transfer_ns: wait of the last rank to arrive in all stages, mean over the steps
            of this window and of the windows around it.
    """

    job: WaitJob
    fault: WaitFault
    diagnosis: Diagnosis
    fix: WhatIf | None
    around_ns: tuple[float, ...]
    transfer_ns: float
    healthy_transfer_ns: float

    @property
    def healthy_ns(self) -> float:
        """The mean step without a fault, next to this window."""
        return mean(self.around_ns)

    @property
    def drift(self) -> float:
        """Difference of the healthy windows before and after it, as a fraction."""
        return max(self.around_ns) / min(self.around_ns) - 1

    @property
    def names_stage(self) -> bool:
        aim = self.diagnosis.aim
        return aim is not None and aim.stage == self.fault.stage

    @property
    def names_rank(self) -> bool:
        aim = self.diagnosis.aim
        return aim is not None and aim.rank == self.fault.rank

    @property
    def names_both(self) -> bool:
        return self.names_stage and self.names_rank

    @property
    def names_period(self) -> bool:
        """Whether it names stage, rank and period of the pause."""
        aim = self.diagnosis.aim
        return self.names_both and aim is not None and aim.steps == f"every {PAUSE_EVERY}"

    @property
    def suspect(self) -> str:
        """The stage and rank of the verdict, in words."""
        aim = self.diagnosis.aim
        if aim is None:
            return "nothing"
        return f"{aim.stage}, {aim.rank_reason if aim.rank is None else f'rank {aim.rank}'}"

    @property
    def step_ns(self) -> float:
        return self.diagnosis.step_time.mean_ns

    @property
    def growth(self) -> float:
        """Growth of its steps compared with those without the fault, as a fraction."""
        return self.step_ns / self.healthy_ns - 1

    @property
    def miss(self) -> float | None:
        """Difference of the prediction from the step without the fault, as a fraction of it."""
        if self.fix is None or self.fix.predicted_ns is None:
            return None
        return self.fix.predicted_ns / self.healthy_ns - 1


def judge_waits(job: WaitJob, windows: Sequence[Window]) -> list[WaitSeen]:
    """Judge a job's windows in its run, except warm-up windows; a missing window is an error.

    Raises:
        SystemExit: windows are missing.
    """
    by_number = {window.number: window for window in windows}
    diagnoses = {found.window: found for found in diagnose_runs(windows)}
    if sorted(diagnoses) != list(range(len(job.faults))):
        raise SystemExit(f"{job.name}: windows {sorted(diagnoses)} of {len(job.faults)} are there")
    steps = {number: found.step_time.mean_ns for number, found in diagnoses.items()}
    transfers = {number: _transfer(window) for number, window in by_number.items()}
    rows = []
    for number, fault in enumerate(job.faults):
        if not fault.is_warm_up:
            diagnosis, around = diagnoses[number], _around(job, number)
            fix = _fix(by_number[number], diagnosis, fault)
            around_ns = tuple(steps[place] for place in around)
            healthy = mean(transfers[place] for place in around)
            rows.append(WaitSeen(job, fault, diagnosis, fix, around_ns, transfers[number], healthy))
    return rows


def _fix(window: Window, diagnosis: Diagnosis, fault: WaitFault) -> WhatIf | None:
    measures = measure(window)
    if fault.stage is None or fault.stage not in measures.broad:
        return None
    return what_if(measures, diagnosis, fault.stage, fault.rank)


def _transfer(window: Window) -> float:
    """Return the least wait over ranks, summed over stages, as a mean over steps, ns."""
    found = 0.0
    for wait_NR in map(to_numpy, window.waits.values()):
        if (wait_NR != NOT_MEASURED).all():
            found += float(wait_NR.min(axis=1).mean())
    return found


def _around(job: WaitJob, number: int) -> list[int]:
    """Return the number of the next healthy window on each side of a window."""
    healthy = [
        place for place, fault in enumerate(job.faults) if fault.stage is None and not fault.is_warm_up
    ]
    before = [place for place in healthy if place < number][-1:]
    after = [place for place in healthy if place > number][:1]
    return before + after


def planted(rows: Iterable[WaitSeen], stage: str | None) -> list[WaitSeen]:
    """Return the windows with a fault in a stage; without a fault if None."""
    return [row for row in rows if row.fault.stage == stage]
