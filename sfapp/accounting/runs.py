"""Diagnosing many windows: each run compared with its own healthy window (accounting.md §12)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sfapp.accounting.aim import with_reference
from sfapp.accounting.judge import judge
from sfapp.accounting.measures import Measures, measure, measure_many
from sfapp.accounting.reference import healthy_reference, reference_of
from sfapp.errors import WindowError, WindowNotFoundError
from sfapp.model import ALL_RANKS, Baseline, Diagnosis, Frontier, Gates, Reference, Window

_BATCH_CELLS = 1 << 21
"""Cells measured together: enough to spread the per-call cost, few enough to stay out of memory's way."""


def measured(
    windows: Sequence[Window], baseline: Baseline = "cohort_median", reference: Reference | None = None
) -> list[Measures]:
    """Measures of windows of any shapes, in their order, those of one shape measured together."""
    by_shape: dict[object, list[int]] = defaultdict(list)
    for index, window in enumerate(windows):
        by_shape[window.stages, tuple(window.duration_SNR.shape)].append(index)
    found: dict[int, Measures] = {}
    for indices in by_shape.values():
        size = max(1, _BATCH_CELLS // windows[indices[0]].duration_SNR.numel())
        for begin in range(0, len(indices), size):
            batch = indices[begin : begin + size]
            together = measure_many([windows[index] for index in batch], baseline, reference)
            found.update(zip(batch, together, strict=True))
    return [found[index] for index in range(len(windows))]


def diagnose_runs(
    windows: Iterable[Window],
    gates: Gates | None = None,
    baseline: Baseline = "cohort_median",
    *,
    frontier: Frontier = "step",
    group: str = ALL_RANKS,
    reference: tuple[str, int] | None = None,
) -> list[Diagnosis]:
    """Diagnose windows of any runs, each against a reference.

    Args:
        windows: any number, any order; the result is sorted by run and window.
        group: windows without such a group are left out.
        reference: (run, window) to compare every window with; each run's own healthy window where None.

    Raises:
        WindowNotFoundError: no window has the group, or the reference is not among the windows.
        WindowError: baseline ``reference`` for a run without a healthy window.
    """
    every = sorted(windows, key=lambda window: (window.run_id, window.number))
    chosen = [window for window in every if group in window.groups]
    if every and not chosen:
        known = sorted({name for window in every for name in window.groups})
        raise WindowNotFoundError(f"no window has a group {group!r}; there are: {', '.join(known)}")
    chosen = [window.of_group(group) for window in chosen]
    fixed = None
    if reference is not None:
        fixed = reference_of(measure(_named(chosen, reference)))
    by_run: dict[str, list[Window]] = defaultdict(list)
    for window in chosen:
        by_run[window.run_id].append(window)
    return [
        diagnosis
        for run in by_run.values()
        for diagnosis in _diagnose_run(run, gates, baseline, frontier, fixed)
    ]


def _named(windows: Sequence[Window], key: tuple[str, int]) -> Window:
    for window in windows:
        if (window.run_id, window.number) == key:
            return window
    raise WindowNotFoundError(f"the reference window {key[0]}/{key[1]} is not among the packets given")


def _diagnose_run(
    windows: Sequence[Window],
    gates: Gates | None,
    baseline: Baseline,
    frontier: Frontier,
    fixed: Reference | None,
) -> list[Diagnosis]:
    against_reference = baseline == "reference"
    first_pass = measured(windows, "cohort_median" if against_reference else baseline, fixed)
    alone = [judge(measures, gates, frontier) for measures in first_pass]
    reference = fixed
    if reference is None:
        healthy = healthy_reference(alone)
        if healthy is not None:
            reference = reference_of(first_pass[alone.index(healthy)])
    if not against_reference:
        return [with_reference(diagnosis, reference) for diagnosis in alone]
    if reference is None:
        raise WindowError(
            f"run {windows[0].run_id!r} has no healthy window to take the baseline 'reference' from; "
            "name one with --reference RUN/WINDOW"
        )
    return [judge(m, gates, frontier, reference) for m in measured(windows, baseline, reference)]
