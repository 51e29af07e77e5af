"""Severity and the suspect: the stage and rank to look at, with the evidence (accounting.md §12, §13).

Needs only a diagnosis, so a stored one can be compared with another reference without its matrix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

import numpy as np

from sfapp.accounting.findings import with_findings, with_noise_floor
from sfapp.accounting.leaders import LISTED_STEPS, ONE_OFF_STEPS, period_of
from sfapp.accounting.pipeline_past import with_stage_growth
from sfapp.model import Aim, Culprit, Diagnosis, EvidenceLine, Reference
from sfapp.model.diagnosis import HEALTHY_SEVERITY, AimBasis, CulpritKind
from sfapp.model.stages import FORWARD, broad_stage

Number = TypeVar("Number", Fraction, float)

ACCOUNTS_FOR = 0.5
"""Part of a change that more than half of the ranks must share for the verdict to name all ranks (choice)."""

PERSISTENT = 0.8


def with_reference(diagnosis: Diagnosis, reference: Reference | None) -> Diagnosis:
    """Compare a diagnosis with a reference: delta, change, severity, culprit and suspect.

    Below the denominator floor, the diagnosis is returned unchanged. The exposed imbalance of a reduced
    window is unknown: its severity is its growth, which needs a reference.
    """
    if diagnosis.shares is None:
        return diagnosis
    comparable = reference is not None and set(reference.advance_ns) == set(diagnosis.stages)
    delta = change = None
    if reference is not None and comparable:
        delta = delta_ns(diagnosis, reference)
        step_ns, reference = _on_one_frontier(diagnosis, reference)
        change = (step_ns - reference.step_time_ns) / max(1.0, reference.step_time_ns)
    compared = diagnosis.changed(
        reference=reference,
        delta_ns=delta,
        change=change,
        severity=_severity(diagnosis.exposed_imbalance, change),
    )
    compared = with_stage_growth(with_noise_floor(with_findings(compared)))
    stage, basis = _aim_stage(compared)
    culprit = _culprit(compared, stage)
    aim = _aim(compared, stage, basis, culprit)
    return compared.changed(culprit=culprit, aim=replace(aim, evidence=_evidence(compared, aim, culprit)))


def _on_one_frontier(diagnosis: Diagnosis, reference: Reference) -> tuple[float, Reference]:
    """Return a window's mean step and its reference, with the mean steps that ``delta_ns`` splits.

    Where only one of them has a carry-over frontier, both are step-aligned: a delay in some steps counts
    twice there, which would be growth against a carry-over step (§12).
    """
    carried = diagnosis.carry_over_advances_ns
    if (carried is None) == (reference.carry_advance_ns is None):
        return diagnosis.step_time.mean_ns, reference
    aligned_ns = sum(diagnosis.advances_ns.values()) / diagnosis.steps
    return aligned_ns, replace(reference, step_time_ns=math.fsum(reference.advance_ns.values()))


def _severity(imbalance: float | None, change: float | None) -> float | None:
    if imbalance is None:
        return None if change is None else max(0.0, change)
    return max(imbalance, change or 0.0)


def delta_ns(diagnosis: Diagnosis, reference: Reference) -> dict[str, float]:
    """Return the change of each stage's mean advance, ns per step; the sum is the change in step time (§4).

    Carry-over advances where both windows have them, step-aligned ones otherwise.
    """
    ours, theirs = diagnosis.carry_over_advances_ns, reference.carry_advance_ns
    if ours is None or theirs is None:
        ours, theirs = diagnosis.advances_ns, reference.advance_ns
    return per_step_delta(ours, diagnosis.steps, theirs)


def per_step_delta(
    ours_ns: Mapping[str, int], steps: int, theirs_ns: Mapping[str, Number]
) -> dict[str, Number]:
    """Return Σ_t a / N of each stage minus another window's, ns per step; exact if the other is (§4, §14).

    Args:
        ours_ns: advances added up over ``steps``. theirs_ns: the other window's advances per step.
    """
    return {stage: Fraction(total, steps) - theirs_ns[stage] for stage, total in ours_ns.items()}


def _largest(values: dict[str, float]) -> str:
    return max(values, key=lambda stage: values[stage])


def _culprit(diagnosis: Diagnosis, stage: str) -> Culprit:
    """Return how leaders behave at the suspect stage, or how the late rank does if one is late beyond
    noise."""
    leaders = next(found for found in diagnosis.culprits if found.stage == stage)
    finding = diagnosis.main_finding
    if finding is None or not finding.ranks:
        return leaders
    if len(finding.ranks) > 1:
        # Several ranks are late and lead in turn, so how often one of them leads does not describe the delay.
        return leaders if leaders.kind == "rotating" else Culprit(stage, "none")
    rank = finding.ranks[0]
    if leaders.rank == rank and leaders.kind in ("chronic", "periodic", "one-off"):
        return leaders
    steps = finding.steps
    period = _period(diagnosis, steps)
    kind: CulpritKind = "chronic"
    if steps:
        kind = "one-off" if len(steps) <= ONE_OFF_STEPS else "periodic" if period else "mixed"
    return Culprit(
        stage,
        kind,
        rank=rank,
        hostname=finding.hostname,
        share=1.0,
        eligible_steps=len(steps) or diagnosis.steps,
        period=period if kind == "periodic" else None,
        steps=steps if len(steps) <= LISTED_STEPS else (),
    )


def _period(diagnosis: Diagnosis, steps: Sequence[int]) -> int | None:
    """Return the spacing of late steps; None if there is none, or if the window's step numbers have gaps: a
    diagnosis does not list them, and the gaps may be of any size."""
    if diagnosis.last_step - diagnosis.first_step + 1 != diagnosis.steps:
        return None
    late_N = np.zeros(diagnosis.steps, dtype=bool)
    late_N[[step - diagnosis.first_step for step in steps]] = True
    return period_of(late_N)


def _aim_stage(diagnosis: Diagnosis) -> tuple[str, AimBasis]:
    finding = diagnosis.main_finding
    if finding is not None:
        grown = finding.kind == "growth"
        if diagnosis.delta_ns is not None and (diagnosis.change or 0.0) >= diagnosis.smallest_effect:
            grown = grown or _largest(diagnosis.delta_ns) == finding.stage
        return finding.stage, "delta" if grown else "excess"
    if diagnosis.knows_noise:
        return (diagnosis.routing_set or diagnosis.stages)[0], "share"
    if (
        diagnosis.delta_ns is not None
        and diagnosis.change is not None
        and diagnosis.change >= diagnosis.smallest_effect
    ):
        return _largest(diagnosis.delta_ns), "delta"
    if (diagnosis.exposed_imbalance or 0.0) >= HEALTHY_SEVERITY:
        return _largest(diagnosis.telling_excess), "excess"
    return (diagnosis.routing_set or diagnosis.stages)[0], "share"


def _aim(diagnosis: Diagnosis, stage: str, basis: AimBasis, culprit: Culprit) -> Aim:
    finding = diagnosis.main_finding
    if finding is not None and finding.kind == "rank":
        several = "rotating" if finding.steps or culprit.kind == "rotating" else "several_ranks"
        reason = None if len(finding.ranks) == 1 else several
    else:
        reason = _no_rank_reason(diagnosis, stage, basis, culprit)
    steps: str | tuple[int, ...] = "all"
    if reason == "several_ranks":
        return Aim(stage, basis, rank_reason=reason)
    if reason != "all_ranks":
        if culprit.kind == "periodic":
            steps = f"every {culprit.period}"
        elif culprit.eligible_steps < PERSISTENT * diagnosis.steps and culprit.steps:
            steps = culprit.steps
    if reason is not None:
        return Aim(stage, basis, rank_reason=reason, steps=steps)
    return Aim(stage, basis, rank=culprit.rank, hostname=culprit.hostname, steps=steps)


def _no_rank_reason(diagnosis: Diagnosis, stage: str, basis: AimBasis, culprit: Culprit) -> str | None:
    """Return why the verdict names no rank; None if it names one."""
    if diagnosis.ranks == 1:
        return "single_rank"
    if _typical_rank_accounts_for(diagnosis, stage, basis):
        return "all_ranks"
    if culprit.kind == "none":
        return "no_eligible_steps"
    if culprit.kind == "rotating":
        return "rotating"
    if culprit.kind == "mixed":
        return "no_clear_leader"
    if culprit.share < PERSISTENT:  # a period or two single steps, led by different ranks
        return "rotating" if culprit.kind == "periodic" else "no_clear_leader"
    return None


def _typical_rank_accounts_for(diagnosis: Diagnosis, stage: str, basis: AimBasis) -> bool:
    """Return whether more than half of the ranks explain the change (or, in a healthy window, the share)."""
    typical = diagnosis.typical_ns.get(stage)
    if typical is None:
        return False
    if basis == "delta" and diagnosis.reference is not None and diagnosis.delta_ns is not None:
        if stage not in diagnosis.reference.typical_ns:
            return False
        grown = typical - diagnosis.reference.typical_ns[stage]
        return grown >= ACCOUNTS_FOR * diagnosis.delta_ns[stage]
    if basis == "share":
        advances = diagnosis.carry_over_advances_ns or diagnosis.advances_ns
        return typical * diagnosis.steps >= ACCOUNTS_FOR * advances[stage]
    return False


def _evidence(diagnosis: Diagnosis, aim: Aim, culprit: Culprit) -> tuple[EvidenceLine, ...]:
    return (
        _pointing("frontier_share", diagnosis.shares, aim),
        _pointing("carry_over_share", diagnosis.carry_over_shares, aim, absent="steps_not_consecutive"),
        _delta_line(diagnosis, aim),
        _excess_line(diagnosis, aim),
        _gain_line(diagnosis, aim),
        _persistence_line(aim, culprit),
        _wait_line(diagnosis, aim),
        _device_line(diagnosis, aim),
    )


def _pointing(
    name: str, values: dict[str, float] | None, aim: Aim, absent: str | None = None
) -> EvidenceLine:
    if not values:
        return EvidenceLine(name, reason=absent)
    stage = _largest(values)
    return EvidenceLine(name, stage=stage, agrees=stage == aim.stage, value=values[stage])


def _delta_line(diagnosis: Diagnosis, aim: Aim) -> EvidenceLine:
    if diagnosis.delta_ns is None or diagnosis.change is None:
        missing = "no_reference" if diagnosis.reference is None else "reference_differs"
        return EvidenceLine("delta", reason=missing)
    if diagnosis.change < diagnosis.smallest_effect:
        return EvidenceLine("delta", reason="step_time_not_grown", value=diagnosis.change)
    return _pointing("delta", diagnosis.delta_ns, aim)


def _excess_line(diagnosis: Diagnosis, aim: Aim) -> EvidenceLine:
    imbalance = diagnosis.exposed_imbalance
    if imbalance is None:
        return EvidenceLine("excess", reason="reduced_rows")
    if imbalance < diagnosis.smallest_effect:
        return EvidenceLine("excess", reason="quiet", value=imbalance)
    return _pointing("excess", diagnosis.telling_excess, aim)


def _gain_line(diagnosis: Diagnosis, aim: Aim) -> EvidenceLine:
    if diagnosis.static_gain is None:
        return EvidenceLine("static_gain", reason="reduced_rows")
    gains = diagnosis.static_gain
    if max(gains.values(), default=0.0) < diagnosis.gates.gamma_g:
        return EvidenceLine("static_gain", reason="below_gamma_g", value=max(gains.values(), default=0.0))
    return _pointing("static_gain", gains, aim)


def _persistence_line(aim: Aim, culprit: Culprit) -> EvidenceLine:
    if culprit.kind == "none":
        return EvidenceLine("rank_persistence", stage=aim.stage, reason="no_eligible_steps")
    if aim.rank_reason == "rotating":
        return EvidenceLine("rank_persistence", stage=aim.stage, value=culprit.share, reason="rotating")
    if culprit.eligible_steps < 2:
        return EvidenceLine(
            "rank_persistence", stage=aim.stage, rank=culprit.rank, reason="one_eligible_step"
        )
    agrees = None if aim.rank is None else aim.rank == culprit.rank
    return EvidenceLine(
        "rank_persistence",
        stage=aim.stage,
        rank=culprit.rank,
        agrees=agrees,
        value=culprit.share,
        reason=None if agrees is not None else aim.rank_reason,
    )


def _wait_line(diagnosis: Diagnosis, aim: Aim) -> EvidenceLine:
    """Return the wait fit's line. Ranks that wait in a stage wait for another rank, so the fit contradicts a
    suspect in that stage. It adds nothing if own time and waiting in that stage are known."""
    if diagnosis.wait_fit is None:
        return EvidenceLine("wait_fit", reason="reduced_rows")
    if aim.stage in (diagnosis.wait_advances_ns or {}):
        return EvidenceLine("wait_fit", reason="waits_measured")
    if diagnosis.sync_boundary is None:
        return EvidenceLine("wait_fit", reason="no_wait_measured")
    fit = None
    if diagnosis.waits_from == "window":
        fit = (diagnosis.wait_fit or {}).get(diagnosis.sync_boundary)
    waits = {broad_stage(stage) for stage in diagnosis.wait_stages}
    return EvidenceLine(
        "wait_fit",
        stage=broad_stage(diagnosis.sync_boundary),
        agrees=aim.stage not in waits,
        value=fit.slope if fit else None,
    )


def _device_line(diagnosis: Diagnosis, aim: Aim) -> EvidenceLine:
    device, gates = diagnosis.device, diagnosis.gates
    if device is None or not device.sampled:
        return EvidenceLine("device_events", reason="not_sampled")
    if device.ready < gates.min_event_samples or device.ready / device.sampled < gates.min_event_ready:
        return EvidenceLine("device_events", reason="too_few_events")
    if device.device_share is None or device.device_share < gates.gamma_dev:
        return EvidenceLine("device_events", reason="no_device_share", value=device.device_share)
    return EvidenceLine(
        "device_events", stage=FORWARD, agrees=aim.stage == FORWARD, value=device.device_share
    )
