"""Where the ranks of a run wait for each other, by the wait fits of all its windows (accounting.md §10).

A rank that is late all through a window is late by the same in every step, and what does not change proves
nothing to a fit (§11): just where a fault has lasted longest, a window alone cannot say where ranks meet. The
job is the same in the run's other windows, so theirs says it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sfapp.accounting.leaders import Floats
from sfapp.model import Diagnosis

RunStages = tuple[str, tuple[str, ...]]
"""A run, and stages as recorded in order: windows of the same are windows of the same job."""


@dataclass(frozen=True, slots=True, eq=False)
class RunWaits:
    """What the wait fits of a run's windows found.

    Attributes:
        least_WS: β − 2·se, one row a window, one column a recorded stage; NaN where there is no fit.
    """

    least_WS: Floats

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunWaits) and np.array_equal(self.least_WS, other.least_WS, equal_nan=True)

    def stage(self, wait_slope: float) -> int | None:
        """The recorded stage that is a wait stage in most windows, of equal ones the first; None where no
        window has any."""
        with np.errstate(invalid="ignore"):
            windows_S = (self.least_WS >= wait_slope).sum(axis=0)
        return int(windows_S.argmax()) if windows_S.any() else None

    @classmethod
    def of(cls, stages: Sequence[str], least: Iterable[Mapping[str, float]]) -> RunWaits:
        """From what ``least_slopes`` says of each window.

        Args:
            stages: as recorded, in order.
        """
        return cls(np.array([[found.get(stage, np.nan) for stage in stages] for found in least]))

    def and_those_of(self, others: RunWaits) -> RunWaits:
        """These windows together with others of the same run and stages."""
        return RunWaits(np.concatenate((self.least_WS, others.least_WS)))


def least_slopes(diagnosis: Diagnosis) -> dict[str, float]:
    """β − 2·se of the recorded stages that have a fit (§11)."""
    fits = (diagnosis.wait_fit or {}).items()
    return {stage: fit.slope - 2 * fit.se for stage, fit in fits if fit is not None}


def run_waits(diagnoses: Iterable[Diagnosis]) -> Mapping[RunStages, RunWaits]:
    """What the windows of runs say, those of the same stages together.

    Args:
        diagnoses: of all ranks.
    """
    found: dict[RunStages, list[dict[str, float]]] = defaultdict(list)
    for diagnosis in diagnoses:
        found[diagnosis.run_id, diagnosis.recorded_stages].append(least_slopes(diagnosis))
    return {key: RunWaits.of(key[1], least) for key, least in found.items()}
