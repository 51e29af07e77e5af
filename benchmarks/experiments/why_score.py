"""Compare planted causes with those that verdicts name. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.experiments.why_plan import FAMILIES, WhyFault, WhyJob
from sfapp.accounting import diagnose_runs
from sfapp.model import Diagnosis, Window
from sfapp.model.explanation import Explanation


@dataclass(frozen=True, slots=True)
class WhySeen:
    """One window: the planted cause and the verdict."""

    job: WhyJob
    fault: WhyFault
    diagnosis: Diagnosis

    @property
    def found(self) -> Explanation | None:
        """Why the planted rank is late according to the verdict; None if it is not the suspect."""
        found = self.diagnosis.aim_explanation
        return found if found is not None and found.rank == self.fault.rank else None

    @property
    def first(self) -> str:
        """The class of the cause that accounts for most of the delay, in words if there is none."""
        if self.found is None:
            return "rank not named"
        return self.found.causes[0].kind if self.found.causes else "nothing explains it"

    @property
    def is_right(self) -> bool:
        """Whether the class of the planted cause comes first."""
        return self.fault.family is not None and self.first in FAMILIES[self.fault.family]

    @property
    def claims(self) -> tuple[str, ...]:
        """Every cause that the window's explanations name."""
        return tuple(cause.kind for one in self.diagnosis.explanations or () for cause in one.causes)


def judge_why(job: WhyJob, windows: Sequence[Window]) -> list[WhySeen]:
    """Judge a job's windows in its run, except warm-up windows; a missing window is an error.

    Raises:
        SystemExit: windows are missing.
    """
    diagnoses = {found.window: found for found in diagnose_runs(windows)}
    if sorted(diagnoses) != list(range(len(job.faults))):
        raise SystemExit(f"{job.name}: windows {sorted(diagnoses)} of {len(job.faults)} are there")
    return [
        WhySeen(job, fault, diagnoses[number])
        for number, fault in enumerate(job.faults)
        if not fault.is_warm_up
    ]
