"""What fixing a stage would bring, in a sentence."""

from __future__ import annotations

from sfapp.accounting import WhatIf
from sfapp.model.reasons import reason_sentence
from sfapp.views import format


def what_if_sentence(found: WhatIf) -> str:
    """Return ``With backward on rank 2 as fast as on a typical rank, …``, or why nothing is predicted."""
    stage = format.short_stage(found.stage)
    if found.predicted_ns is None or found.saved_ns is None:
        why = reason_sentence(found.reason or "")
        return f"No prediction for {stage}: {why[0].lower()}{why[1:]}"
    who = f"{stage} on every rank" if found.rank is None else f"{stage} on rank {found.rank}"
    return (
        f"With {who} as fast as on a typical rank, a step would take {format.duration(found.predicted_ns)} "
        f"instead of {format.duration(found.step_ns)} (replay error {format.percent(found.error, 1)})."
    )
