"""Limitations of a window's verdict, and their reasons."""

from __future__ import annotations

from sfapp.model import Aim, Diagnosis, broad_stage, stage_category
from sfapp.views import format
from sfapp.views.text.advice import coarse
from sfapp.views.text.host_evidence import no_evidence_sentence


def waits_inside(diagnosis: Diagnosis) -> bool:
    """Return whether ranks measurably wait in the suspect stage, which hides the late rank unless their waits
    were recorded."""
    waits = {broad_stage(stage) for stage in diagnosis.wait_stages} - set(diagnosis.wait_advances_ns or ())
    return diagnosis.aim is not None and diagnosis.aim.stage in waits


def unknown(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the limitations of this window's verdict, the most important first."""
    aim = diagnosis.aim
    reasons = diagnosis.all_reasons
    found = []
    if diagnosis.shares is None:
        found.append("No shares, gains or labels: the window is too short.")
    if diagnosis.missing_ranks:
        missing = format.ranges(diagnosis.missing_ranks)
        usable = (
            " data that fits the other ranks" if {"schema_mismatch", "step_misaligned"} & set(reasons) else ""
        )
        found.append(
            f"Rank{'s' if len(diagnosis.missing_ranks) > 1 else ''} {missing} did not report{usable}."
        )
    if aim is not None and _may_hide_a_late_rank(diagnosis, aim):
        found.append(
            f"Ranks may wait {format.in_stage(aim.stage)} for a rank that is late in every step; this "
            "window shows no wait. The window in which the delay began shows which."
        )
    if aim is not None and not diagnosis.is_healthy and coarse(aim.stage):
        found.append(f"Stage timing cannot identify {coarse(aim.stage)}.")
    if silent := no_evidence_sentence(diagnosis):
        found.append(silent)
    is_shared = aim is not None and aim.rank_reason == "all_ranks" and waits_inside(diagnosis)
    if aim is not None and is_shared and not diagnosis.is_healthy:
        inside = format.in_stage(aim.stage, "inside")
        found.append(f"Durations alone cannot identify the late rank {inside}.")
    if "roles_differ" in reasons:
        found.append("Ranks may not be comparable: their roles differ. Diagnose one role's group.")
    if "roles_missing" in reasons:
        found.append("Ranks may not be comparable: model parallelism is declared, but no roles.")
    if "single_rank" in reasons:
        found.append("Ranks cannot be compared: there is only one.")
    if "steps_not_consecutive" in reasons:
        found.append("Delays that carry over into the next step are not followed: step numbers have gaps.")
    if "closure_residual" in reasons:
        share = format.percent(diagnosis.closure_residual_share)
        found.append(f"{share} of the step lies outside the named stages.")
    if "overlap_error" in reasons:
        found.append("Durations are not exact: stages overlap.")
    if "prefetch_unaligned" in reasons:
        found.append("A data wait may belong to another step: prefetch is not aligned.")
    if {"accumulation_collapsed", "accumulation_mixed"} & set(reasons):
        found.append("Data and backward cannot be separated: micro-steps were merged.")
    if diagnosis.shares is not None and diagnosis.reference is None:
        found.append("No baseline: the run has no complete healthy window after its first yet.")
    if _device_unknown(diagnosis):
        found.append("Host and device time cannot be separated: no device events were sampled in forward.")
    return tuple(found)


def _may_hide_a_late_rank(diagnosis: Diagnosis, aim: Aim) -> bool:
    """Return whether the suspect stage's time may be a wait for a rank that is late throughout the window.

    Work of such a rank after the last wait of a step (a callback, the optimizer) never begins inside this
    window, and the wait fit cannot detect a constant lag (accounting.md §10, §11).
    """
    if diagnosis.is_healthy or diagnosis.ranks == 1 or diagnosis.wait_stages:
        return False
    return aim.steps == "all" and stage_category(aim.stage) == "backward"


def _device_unknown(diagnosis: Diagnosis) -> bool:
    """Return whether device events matter, that is, whether forward is a possible cause."""
    if diagnosis.device is not None and diagnosis.device.sampled:
        return False
    suspects = (diagnosis.routing_set or ()) + ((diagnosis.aim.stage,) if diagnosis.aim else ())
    return any(stage_category(stage) == "forward" for stage in suspects)
