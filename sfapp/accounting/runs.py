"""Diagnose many windows: align each run where its ranks synchronise and compare it with its healthy window.

Source: accounting.md §10, §12.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sfapp.accounting.aim import with_reference
from sfapp.accounting.judge import judge
from sfapp.accounting.measures import Measures, measure_many
from sfapp.accounting.noise import WindowSpread
from sfapp.accounting.reference import HealthyWindows, healthy_in_run, pooled_reference, reference_of
from sfapp.accounting.run_waits import RunStages, RunWaits, run_waits
from sfapp.accounting.window_lateness import find_lateness
from sfapp.errors import WindowError, WindowNotFoundError
from sfapp.model import (
    ALL_RANKS,
    DEFAULT_FRONTIER,
    Baseline,
    Diagnosis,
    Frontier,
    Gates,
    Reference,
    Window,
)

_BATCH_CELLS = 1 << 21
"""Cells measured together: enough to spread the per-call cost, few enough to limit memory."""


def measured(
    windows: Sequence[Window], baseline: Baseline = "cohort_median", reference: Reference | None = None
) -> list[Measures]:
    """Measure windows of any shapes, grouped by shape; the result has the order of the input."""
    by_shape: dict[object, list[int]] = defaultdict(list)
    for index, window in enumerate(windows):
        by_shape[window.stages, tuple(window.duration_SNR.shape)].append(index)
    found: dict[int, Measures] = {}
    for indices in by_shape.values():
        size = max(1, _BATCH_CELLS // math.prod(windows[indices[0]].duration_SNR.shape))
        for begin in range(0, len(indices), size):
            batch = indices[begin : begin + size]
            together = measure_many([windows[index] for index in batch], baseline, reference)
            find_lateness(together)
            found.update(zip(batch, together, strict=True))
    return [found[index] for index in range(len(windows))]


def diagnose_runs(
    windows: Iterable[Window],
    gates: Gates | None = None,
    baseline: Baseline = "cohort_median",
    *,
    frontier: Frontier = DEFAULT_FRONTIER,
    group: str = ALL_RANKS,
    reference: tuple[str, int] | None = None,
    by_hand: Mapping[str, int] | None = None,
) -> list[Diagnosis]:
    """Diagnose windows of any runs, each against a reference.

    Args:
        windows: any number in any order; the result is sorted by run and window.
        group: windows without such a group are left out.
        reference: (run, window) to compare every window with; each run's own healthy window if None.
        by_hand: by run, the window that a user chose as its healthy one; it need not be among the windows.

    Raises:
        WindowNotFoundError: no window has the group, or the windows do not include the reference.
        WindowError: baseline ``reference`` for a run without a healthy window.
    """
    every = sorted(windows, key=lambda window: (window.run_id, window.number))
    chosen = [window for window in every if group in window.groups]
    if every and not chosen:
        known = sorted({name for window in every for name in window.groups})
        raise WindowNotFoundError(f"no window has a group {group!r}; there are: {', '.join(known)}")
    runs: dict[str, _Run] = {}
    for window in every:
        run = _Run(group, baseline, gates, frontier, (by_hand or {}).get(window.run_id))
        runs.setdefault(window.run_id, run).whole.append(window)
    fixed = None
    if reference is not None:
        _check_named(chosen, reference)
        fixed = reference_of(runs[reference[0]].measures_of(reference[1]))
    # Each run's measures are released when it is done: all of them need as much memory as the windows.
    return [diagnosis for run_id in list(runs) for diagnosis in runs.pop(run_id).diagnosed(fixed)]


def _check_named(windows: Sequence[Window], key: tuple[str, int]) -> None:
    if key not in {(window.run_id, window.number) for window in windows}:
        raise WindowNotFoundError(f"the reference window {key[0]}/{key[1]} is not among the packets given")


def aligned(
    measures: Sequence[Measures],
    alone: Sequence[Diagnosis],
    waits: Mapping[RunStages, RunWaits],
    gates: Gates | None = None,
    frontier: Frontier = DEFAULT_FRONTIER,
) -> list[tuple[Measures, Diagnosis]]:
    """Judge again the windows whose runs show another synchronisation boundary (§10).

    Args:
        measures: of the windows. alone: each window judged alone, under the same gates and frontier.
        waits: by run and stages, from ``run_waits``.
    """
    found = []
    for one, diagnosis in zip(measures, alone, strict=True):
        of_run = waits.get((diagnosis.run_id, diagnosis.recorded_stages))
        known = one.in_run(of_run)
        if of_run is not None and of_run.boundary_for(diagnosis.own_boundary) != diagnosis.sync_boundary:
            diagnosis = judge(known, gates, frontier)
        found.append((known, diagnosis))
    return found


@dataclass
class _Run:
    """The windows of one run; those that have the group are diagnosed.

    Attributes:
        by_hand: number of the window that a user chose as its healthy one, whether it is there or not.
        whole: all windows, with all their ranks, ascending.
        _everyone: these windows judged with all ranks under default gates, aligned where their ranks wait.
    """

    group: str
    baseline: Baseline
    gates: Gates | None
    frontier: Frontier
    by_hand: int | None
    whole: list[Window] = field(default_factory=list)
    _everyone: list[Diagnosis] = field(default_factory=list)

    @cached_property
    def _first_pass(self) -> list[tuple[Measures, Diagnosis]]:
        """Measures and verdicts without a reference, each window aligned where its run's ranks wait.

        Waits are found on all ranks, whatever the group, because all ranks wait for each other, and under
        default gates, as in the store.
        """
        if not self._windows:
            return []
        found = measured(self._windows, "cohort_median" if self.baseline == "reference" else self.baseline)
        alone = [judge(measures, self.gates, self.frontier) for measures in found]
        everyone, of_all = alone, found
        if self.group != ALL_RANKS:
            of_all = measured(self.whole)
            everyone = [judge(measures) for measures in of_all]
        elif self.gates not in (None, Gates()):
            everyone = [judge(measures) for measures in found]
        waits = run_waits(everyone)
        self._everyone = [diagnosis for _, diagnosis in aligned(of_all, everyone, waits)]
        return aligned(found, alone, waits, self.gates, self.frontier)

    @property
    def _windows(self) -> list[Window]:
        return [window.of_group(self.group) for window in self.whole if self.group in window.groups]

    def measures_of(self, number: int) -> Measures:
        """Return the measures of one of the windows."""
        return next(measures for measures, found in self._first_pass if found.window == number)

    def _healthy_reference(self) -> Reference | None:
        """Return the mean of the run's healthy windows, found on all ranks and reduced to the group (§17)."""
        known = {measures.window.number: measures for measures, _ in self._first_pass}
        healthy = healthy_in_run(self._everyone)
        for diagnosis in self._everyone:
            if diagnosis.window == self.by_hand:
                spread = WindowSpread() if healthy is None else healthy.spread
                healthy = HealthyWindows((diagnosis.window,), diagnosis.noise, spread)
        chosen = [number for number in healthy.windows if number in known] if healthy else []
        if healthy is None or not chosen:
            return None
        parts = [reference_of(known[number]) for number in chosen]
        # Ranks of all groups wait for each other, so their windows differ as much as those of all ranks.
        return pooled_reference(parts, healthy.noise if self.group == ALL_RANKS else None, healthy.spread)

    def diagnosed(self, fixed: Reference | None) -> list[Diagnosis]:
        """Diagnose every window against this reference, or against the run's healthy window.

        Raises:
            WindowError: baseline ``reference`` for a run without a healthy window.
        """
        alone = [found for _, found in self._first_pass]
        reference = fixed
        if reference is None:
            reference = self._healthy_reference()
        if self.baseline != "reference":
            return [with_reference(found, reference) for found in alone]
        if reference is None and self._first_pass:
            raise WindowError(
                f"run {self.whole[0].run_id!r} has no healthy window to take the baseline 'reference' from; "
                "name one with --reference RUN/WINDOW"
            )
        again = measured([known.window for known, _ in self._first_pass], self.baseline, reference)
        waits = [known.run_waits for known, _ in self._first_pass]
        return [
            judge(measures.in_run(of_run), self.gates, self.frontier, reference)
            for measures, of_run in zip(again, waits, strict=True)
        ]
