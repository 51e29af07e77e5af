"""Find where the ranks of a run wait for each other, by the wait fits of all its windows (accounting.md §10).

A fit cannot detect a constant lag (§11), and a rank that is late throughout a window has one: while a fault
lasts, a single window does not show where ranks synchronise. If ranks wait in several stages, a single window
may also find the less important one. The fits of the run's other windows, which show the same job, are
therefore used too. If none of them finds a wait, the fit per sync is used.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sfapp.accounting.leaders import Floats
from sfapp.model import Diagnosis

RunStages = tuple[str, tuple[str, ...]]
"""A run and its recorded stages in order; windows with the same key show the same job."""

ONE_OF = 3
"""A stage counts if at least one in this many of the windows that found any wait found one there (choice, see
accounting.md §10)."""

SYNCED_IN = 2
"""If no window found a wait, a stage counts if at least this many windows synchronise in it (choice). A
single window is judged by its own fit."""


@dataclass(frozen=True, slots=True)
class RunWaits:
    """Where the ranks of a run wait for each other.

    Attributes:
        stages: the recorded stages that its windows support, in order.
        boundary: the stage among them at whose end ranks synchronise best; None if there are none.
    """

    stages: tuple[str, ...] = ()
    boundary: str | None = None

    def boundary_for(self, own: str | None) -> str | None:
        """Return the sync boundary of a window of the run.

        Args:
            own: the boundary of its own fit. It is kept if the run does not have that stage, such as a
                barrier in this window only.
        """
        return own if own is not None and own not in self.stages else self.boundary


def wait_stages(slope_S: Floats, se_S: Floats, wait_slope: float) -> tuple[int, ...]:
    """Return the recorded stages that ranks wait in by a wait fit: β − 2·se ≥ wait_slope (§11)."""
    fits = zip(slope_S.tolist(), se_S.tolist(), strict=True)
    return tuple(stage for stage, fit in enumerate(fits) if _is_wait(*fit, wait_slope))


def _is_wait(slope: float, se: float, wait_slope: float) -> bool:
    return slope - 2 * se >= wait_slope


def own_wait_stages(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the recorded stages that are wait stages according to the window's own fit (§11)."""
    least = diagnosis.gates.wait_slope
    fits = (diagnosis.wait_fit or {}).items()
    return tuple(stage for stage, fit in fits if fit is not None and _is_wait(fit.slope, fit.se, least))


@dataclass(frozen=True, slots=True)
class WaitFacts:
    """Where the ranks of one window wait according to its own fits, as stored.

    Attributes:
        own_boundary: stage at whose end ranks synchronise according to the wait fit (§11), or None.
        own_wait_stages: recorded stages that are wait stages according to that fit.
        met_boundary: stage found by the fit per sync, or None.
    """

    own_boundary: str | None
    own_wait_stages: tuple[str, ...]
    met_boundary: str | None

    @classmethod
    def of(cls, diagnosis: Diagnosis) -> WaitFacts:
        """Return the facts of one diagnosed window."""
        return cls(diagnosis.own_boundary, own_wait_stages(diagnosis), diagnosis.met_boundary)


def run_waits(diagnoses: Iterable[Diagnosis]) -> Mapping[RunStages, RunWaits]:
    """Return where ranks wait according to all windows of a run that have the same stages.

    Args:
        diagnoses: of all ranks, under the default gates.
    """
    counts: dict[RunStages, Counter[WaitFacts]] = defaultdict(Counter)
    for diagnosis in diagnoses:
        counts[diagnosis.run_id, diagnosis.recorded_stages][WaitFacts.of(diagnosis)] += 1
    return {key: waits_of_windows(key[1], facts) for key, facts in counts.items()}


def waits_of_windows(stages: Sequence[str], counts: Mapping[WaitFacts, int]) -> RunWaits:
    """Return where the ranks of one run wait, from the facts of its windows.

    A stage needs support from one in ``ONE_OF`` of the windows that measured any wait. Among the supported
    stages, the boundary is the one preferred most often by windows that found several.

    Args:
        stages: the recorded stages in order.
        counts: number of windows with the same facts.
    """
    measuring = [
        (facts.own_boundary, facts.own_wait_stages, count)
        for facts, count in counts.items()
        if facts.own_boundary is not None
    ]
    fewest = 1
    if not measuring:
        fewest = SYNCED_IN
        measuring = [
            (facts.met_boundary, (facts.met_boundary,), count)
            for facts, count in counts.items()
            if facts.met_boundary is not None
        ]
    windows = 0
    found: Counter[str] = Counter()
    synchronising: Counter[str] = Counter()
    preferred: Counter[str] = Counter()
    for boundary, waits, count in measuring:
        windows += count
        synchronising[boundary] += count
        found.update(dict.fromkeys(waits, count))
        if len(waits) > 1:
            preferred[boundary] += count
    supported = tuple(
        stage for stage in stages if found[stage] >= fewest and ONE_OF * found[stage] >= windows
    )
    best = max(supported, key=lambda stage: (preferred[stage], synchronising[stage]), default=None)
    return RunWaits(supported, best)
