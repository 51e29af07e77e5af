"""Windows from packet files without a store: read them, leave out what cannot be judged, judge the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from sfapp.accounting import WhatIf, check_totals, diagnose_runs, measure, suspect_fix, what_if_of
from sfapp.errors import WindowError
from sfapp.model import Diagnosis, Fix, Window
from sfapp.model.view import ViewState, WindowKey
from sfapp.packets import Loaded, Quarantined, read_windows


def load_windows(paths: Sequence[Path]) -> Loaded:
    """Read the windows under some paths; one whose durations overflow when added up is quarantined."""
    loaded = read_windows(paths)
    usable, refused = [], list(loaded.quarantined)
    for found in loaded.windows:
        try:
            check_totals(found.window)
        except WindowError as error:
            refused += [Quarantined(p.path, p.size, p.sha256, str(error)) for p in found.packets]
        else:
            usable.append(found)
    return replace(loaded, windows=tuple(usable), quarantined=tuple(refused))


def diagnose_windows(windows: Iterable[Window], view: ViewState) -> list[Diagnosis]:
    """Judge the windows of some runs under a view, each with what its run's others measured.

    Windows that lack the view's group are left out, unless all do.

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
    )


def what_if_windows(
    windows: Iterable[Window], diagnoses: Sequence[Diagnosis], chosen: Fix | None = None
) -> dict[WindowKey, WhatIf]:
    """Return what a fix would bring in each window; that of the suspect where none is chosen.

    Raises:
        WindowNotFoundError: a window has no such stage, rank or node.
    """
    by_key = {WindowKey(window.run_id, window.number): window for window in windows}
    found = {}
    for diagnosis in diagnoses:
        fix = chosen or suspect_fix(diagnosis)
        if fix is not None:
            key = WindowKey(diagnosis.run_id, diagnosis.window)
            group = by_key[key].of_group(diagnosis.group)
            measures = measure(group, diagnosis.baseline, diagnosis.reference)
            found[key] = what_if_of(measures, diagnosis, fix)
    return found
