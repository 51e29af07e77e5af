"""The healthy window that others are compared with (accounting.md §4, §12)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sfapp.accounting.measures import Measures
from sfapp.model import Diagnosis, Reference


def reference_of(source: Measures | Diagnosis) -> Reference:
    """Return what a window contributes as a reference.

    From ``Measures`` it serves deltas and the baseline ``reference``; from a ``Diagnosis``, deltas alone.
    The carry-over part of measures is the one aligned under default gates.
    """
    if isinstance(source, Measures):
        from sfapp.accounting.judge import judge  # judge builds on this package; only this needs it back

        if not source.has_all_rows:
            return _from_diagnosis(judge(source), {})
        medians = zip(source.window.stages, source.stage_median_S, strict=True)
        return _from_diagnosis(judge(source), {stage: float(median) for stage, median in medians})
    return _from_diagnosis(source, {})


def _from_diagnosis(diagnosis: Diagnosis, stage_median_ns: dict[str, float]) -> Reference:
    steps = diagnosis.steps
    carried = diagnosis.carry_over_advances_ns
    return Reference(
        run_id=diagnosis.run_id,
        window=diagnosis.window,
        group=diagnosis.group,
        step_time_ns=diagnosis.step_time.mean_ns,
        stage_median_ns=stage_median_ns,
        typical_ns=diagnosis.typical_ns,
        advance_ns={stage: advance / steps for stage, advance in diagnosis.advances_ns.items()},
        carry_advance_ns=None
        if carried is None
        else {stage: advance / steps for stage, advance in carried.items()},
    )


def healthy_reference(diagnoses: Iterable[Diagnosis]) -> Diagnosis | None:
    """Return the run's healthy window: the lowest mean step among complete windows after the first (§12).

    Means, not medians: a callback every ten steps leaves the median untouched, and would make a sick window
    the reference. **choice** Complete: closed full, nothing missing, usable shares, no limited telemetry.

    Args:
        diagnoses: of one run; any order.
    """
    ordered = sorted(diagnoses, key=lambda diagnosis: diagnosis.window)
    complete = [diagnosis for diagnosis in ordered[1:] if _is_complete(diagnosis)]
    if not complete:
        return None
    return complete[int(np.argmin([diagnosis.step_time.mean_ns for diagnosis in complete]))]


def _is_complete(diagnosis: Diagnosis) -> bool:
    whole = diagnosis.closed_by == "full" and diagnosis.gather_ok and not diagnosis.missing_ranks
    return whole and diagnosis.shares is not None and "telemetry_limited" not in diagnosis.label_names
