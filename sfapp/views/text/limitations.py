"""What a window cannot tell, and why not."""

from __future__ import annotations

from sfapp.model import Aim, Diagnosis, broad_stage, stage_category
from sfapp.views import format
from sfapp.views.text.advice import coarse


def waits_inside(diagnosis: Diagnosis) -> bool:
    """Whether ranks measurably wait in the very stage that the aim names: that hides who is late."""
    waits = {broad_stage(stage) for stage in diagnosis.wait_stages}
    return diagnosis.aim is not None and diagnosis.aim.stage in waits


def unknown(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What this window cannot tell, most telling first."""
    aim = diagnosis.aim
    reasons = diagnosis.all_reasons
    found = []
    if diagnosis.shares is None:
        found.append("Any share, gain or label: the window is too short.")
    if diagnosis.missing_ranks:
        missing = format.ranges(diagnosis.missing_ranks)
        fits = " that fits the others" if {"schema_mismatch", "step_misaligned"} & set(reasons) else ""
        found.append(
            f"Rank{'s' if len(diagnosis.missing_ranks) > 1 else ''} {missing} sent nothing{fits}, "
            "and could be slower still."
        )
    if aim is not None and _may_hide_a_late_rank(diagnosis, aim):
        found.append(
            f"Whether {format.short_stage(aim.stage)} takes that time, or ranks wait in it for one that was "
            "late from the first step on: no waiting was measured here. "
            "The window in which it set in can tell."
        )
    if aim is not None and not diagnosis.is_quiet and coarse(aim.stage):
        found.append(f"{_upper(coarse(aim.stage) or '')}: coarse stages can't tell.")
    if aim is not None and aim.rank_reason == "all_ranks" and waits_inside(diagnosis):
        found.append(
            f"Which rank is late inside {format.short_stage(aim.stage)}: durations alone can't tell."
        )
    if "roles_differ" in reasons:
        found.append("Whether ranks are comparable: their roles differ. Diagnose one role's group.")
    if "roles_missing" in reasons:
        found.append("Whether ranks are comparable: model parallelism is declared, but no roles.")
    if "single_rank" in reasons:
        found.append("How ranks compare: there is only one.")
    if "steps_not_consecutive" in reasons:
        found.append("Whether delays carry over into the next step: step numbers have gaps.")
    if "closure_residual" in reasons:
        share = format.percent(diagnosis.closure_residual_share)
        found.append(f"What {share} of the step is: it lies outside the named stages.")
    if "overlap_error" in reasons:
        found.append("Exact durations: stages overlap.")
    if "prefetch_unaligned" in reasons:
        found.append("Which step a data wait belongs to: prefetch is not aligned.")
    if {"accumulation_collapsed", "accumulation_mixed"} & set(reasons):
        found.append("Which micro-step it was, and so whether data or backward: micro-steps were merged.")
    if diagnosis.shares is not None and diagnosis.reference is None:
        found.append("Whether this is slower than usual: the run has no healthy window yet.")
    if _device_unknown(diagnosis):
        found.append("Host or device: no device events were sampled in forward.")
    return tuple(found)


def _may_hide_a_late_rank(diagnosis: Diagnosis, aim: Aim) -> bool:
    """Whether the aim's time may be a wait for a rank that is late all through the window.

    What such a rank does after the last wait of a step (a callback, the optimizer) is never seen to begin in
    this window, and a constant lag proves nothing to the wait fit (accounting.md §10, §11).
    """
    if diagnosis.is_quiet or diagnosis.ranks == 1 or diagnosis.wait_stages:
        return False
    return aim.steps == "all" and stage_category(aim.stage) == "backward"


def _device_unknown(diagnosis: Diagnosis) -> bool:
    """Device events matter where forward is in question."""
    if diagnosis.device is not None and diagnosis.device.sampled:
        return False
    asked = (diagnosis.routing_set or ()) + ((diagnosis.aim.stage,) if diagnosis.aim else ())
    return any(stage_category(stage) == "forward" for stage in asked)


def _upper(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
