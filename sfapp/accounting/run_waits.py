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

from sfapp.accounting.leaders import Flags, Floats, Ints
from sfapp.model import Diagnosis

RunStages = tuple[str, tuple[str, ...]]
"""A run, and stages as recorded in order: windows of the same are windows of the same job."""

ONE_OF = 3
"""A stage counts where one in so many of the windows that measured any wait measured one there (choice). Half
of them miss one of the two stages that a sharded job waits in; a tenth would let in the barrier of a single
evaluation."""


@dataclass(frozen=True, slots=True, eq=False)
class RunWaits:
    """What the wait fits of a run's windows found. All ascending, windows without a fit left out.

    Attributes:
        least_S: for every recorded stage β − 2·se of the windows.
        largest: of every window the largest of these.
    """

    least_S: tuple[Floats, ...]
    largest: Floats

    @classmethod
    def of(cls, stages: Sequence[str], found: Iterable[Mapping[str, float]]) -> RunWaits:
        """From the windows.

        Args:
            stages: as recorded, in order.
            found: of each window β − 2·se by stage, those without a fit left out (``least_slopes``).
        """
        windows = [least for least in found if least]
        by_stage = ([least[stage] for least in windows if stage in least] for stage in stages)
        return cls(tuple(map(_ascending, by_stage)), _ascending([max(least.values()) for least in windows]))

    def __eq__(self, other: object) -> bool:
        # Each stage's slopes and their largest tell all that is asked of them.
        if not isinstance(other, RunWaits):
            return NotImplemented
        ours, theirs = (*self.least_S, self.largest), (*other.least_S, other.largest)
        return len(ours) == len(theirs) and all(map(np.array_equal, ours, theirs))

    def and_those_of(self, others: RunWaits) -> RunWaits:
        """These windows together with others of the same run and stages."""
        pairs = zip(self.least_S, others.least_S, strict=True)
        return RunWaits(
            tuple(_ascending([*ours, *theirs]) for ours, theirs in pairs),
            _ascending([*self.largest, *others.largest]),
        )

    def stages(self, wait_slope: float) -> tuple[int, ...]:
        """The recorded stages that ranks of this run wait in: wait stages of at least one in ``ONE_OF`` of
        the windows that have any."""
        return tuple(int(stage) for stage in np.flatnonzero(self._counting(np.array([wait_slope]))[:, 0]))

    def turns(self) -> list[float]:
        """The slopes just above which ``stages`` gives another answer, ascending."""
        slopes = np.unique(self.largest if not self.least_S else np.concatenate(self.least_S))
        counting = self._counting(slopes)
        none = np.zeros((len(self.least_S), 1), dtype=bool)  # above the last of them no window has any
        changes = (counting != np.concatenate((counting[:, 1:], none), axis=1)).any(axis=0)
        return [float(slope) for slope in slopes[changes]]

    def _counting(self, slopes: Floats) -> Flags:
        """Whether each stage counts under each of these slopes: [S, slopes]."""
        windows_S = np.array([_at_least(least, slopes) for least in self.least_S]).reshape(-1, len(slopes))
        counts: Flags = (windows_S > 0) & (ONE_OF * windows_S >= _at_least(self.largest, slopes))
        return counts


def _ascending(values: Sequence[float]) -> Floats:
    return np.sort(np.asarray(values, dtype=np.float64))


def _at_least(ascending: Floats, slopes: Floats) -> Ints:
    """How many reach each slope."""
    return len(ascending) - np.searchsorted(ascending, slopes)


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
