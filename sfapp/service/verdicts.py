"""Measure and judge windows under a view: the only module that combines both for the surfaces.

The verdict itself is ``sfapp.accounting.judge``. ``judging`` does the same for a store, with caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sfapp.accounting import Measures, RunWaits, diagnose_runs, judge, measure
from sfapp.errors import WindowError
from sfapp.model import Diagnosis, Reference, Window
from sfapp.model.view import ViewState


def measure_window(
    window: Window, view: ViewState, reference: Reference | None, run_waits: RunWaits | None
) -> Measures:
    """Measure the group of a window that a view names. Reads the matrix.

    Args:
        reference: the healthy window, reduced to the same group.
        run_waits: where the windows of the run measured ranks to wait; None to use this window's fit alone.

    Raises:
        WindowNotFoundError: the window has no such group.
        WindowError: the baseline is ``reference`` and there is none.
    """
    group = window.of_group(view.group)
    if view.baseline == "reference" and reference is None:
        raise WindowError("this run has no healthy window to take as the baseline; choose a reference window")
    return measure(group, view.baseline, reference).in_run(run_waits)


def judge_measures(measures: Measures, view: ViewState, reference: Reference | None) -> Diagnosis:
    """Return the verdict on measures under a view's gates and frontier, without reading the matrix."""
    return judge(measures, view.gates, view.frontier, reference)


def measures_behind(window: Window, diagnosis: Diagnosis, run_waits: RunWaits | None = None) -> Measures:
    """Return the measures that a verdict is based on, of its group. Reads the matrix.

    Args:
        window: with all its ranks.
        run_waits: as used by the verdict.
    """
    group = window.of_group(diagnosis.group)
    return measure(group, diagnosis.baseline, diagnosis.reference).in_run(run_waits)


def diagnose_windows(
    windows: Iterable[Window], view: ViewState, chosen: Mapping[str, int] | None = None
) -> list[Diagnosis]:
    """Judge the windows of some runs under a view, each with the waits measured in its run.

    Windows that lack the view's group are left out, unless all do.

    Args:
        chosen: by run, the window that a user chose as its reference; the view's own goes before it.

    Raises:
        WindowNotFoundError: none has the group, or the reference is not among them.
        WindowError: the baseline is ``reference`` and a run has no healthy window.
    """
    return diagnose_runs(
        windows,
        view.gates,
        view.baseline,
        frontier=view.frontier,
        group=view.group,
        reference=None if view.reference is None else (view.reference.run_id, view.reference.window),
        by_hand=chosen,
    )
