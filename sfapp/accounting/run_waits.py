"""Where the ranks of a run wait for each other, by the wait fits of all its windows (accounting.md §10).

A rank that is late all through a window is late by the same in every step, and what does not change proves
nothing to a fit (§11): just where a fault has lasted longest, a window alone cannot say where ranks meet. And
of several stages that ranks wait in, a window alone may find the lesser one. The job is the same in the run's
other windows, so theirs says it. Where none of them finds any wait, the fit from meeting to meeting is asked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sfapp.model import Diagnosis

RunStages = tuple[str, tuple[str, ...]]
"""A run, and stages as recorded in order: windows of the same are windows of the same job."""

ONE_OF = 3
"""A stage counts where one in so many of the windows that measured any wait measured one there (choice, see
accounting.md §10)."""

MET_IN = 2
"""Where no window measured any, a stage counts where so many windows, at the fewest, met in it (choice): one
alone is judged by its own fit."""


@dataclass(frozen=True, slots=True)
class RunWaits:
    """Where the ranks of a run wait for each other.

    Attributes:
        stages: the recorded stages that its windows vouch for, in order.
        boundary: of these the one at whose end ranks meet best; None where there are none.
    """

    stages: tuple[str, ...] = ()
    boundary: str | None = None

    def boundary_for(self, own: str | None) -> str | None:
        """The sync boundary of a window of the run.

        Args:
            own: what its own fit finds. It stands where the run knows nothing of that stage: a barrier, say,
                that this window alone holds.
        """
        return own if own is not None and own not in self.stages else self.boundary


def own_wait_stages(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Recorded stages that are wait stages by the window's own fit (§11)."""
    fits = (diagnosis.wait_fit or {}).items()
    slope = diagnosis.gates.wait_slope
    return tuple(stage for stage, fit in fits if fit is not None and fit.slope - 2 * fit.se >= slope)


def run_waits(diagnoses: Iterable[Diagnosis]) -> Mapping[RunStages, RunWaits]:
    """What the windows of runs say, those of the same stages together.

    Args:
        diagnoses: of all ranks, under the default gates.
    """
    windows: dict[RunStages, list[Diagnosis]] = defaultdict(list)
    for diagnosis in diagnoses:
        windows[diagnosis.run_id, diagnosis.recorded_stages].append(diagnosis)
    return {key: _vouched_for(key[1], of_job) for key, of_job in windows.items()}


def _vouched_for(stages: Sequence[str], windows: Sequence[Diagnosis]) -> RunWaits:
    """What one job's windows say. Where ranks meet best is best known to windows that could choose."""
    own = [(own_wait_stages(window), window.own_boundary) for window in windows if window.own_boundary]
    since = [((window.met_boundary,), window.met_boundary) for window in windows if window.met_boundary]
    measuring = own or since
    found = Counter(stage for waits, _ in measuring for stage in waits)
    met = Counter(boundary for _, boundary in measuring)
    preferred = Counter(boundary for waits, boundary in measuring if len(waits) > 1)
    fewest = max(1 if own else MET_IN, len(measuring) / ONE_OF)
    vouched = tuple(stage for stage in stages if found[stage] >= fewest)
    best = max(vouched, key=lambda stage: (preferred[stage], met[stage]), default=None)
    return RunWaits(vouched, best)
