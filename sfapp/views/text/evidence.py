"""Evidence in words: what each line points at, whether it agrees, or why it is absent (accounting.md §13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sfapp.model import ALL_RANKS, REASONS, Diagnosis, EvidenceLine
from sfapp.views import format

EVIDENCE_TITLES: Mapping[str, str] = {
    "frontier_share": "share, step by step",
    "carry_over_share": "share, carried over",
    "delta": "growth since healthy",
    "excess": "excess over a typical rank",
    "static_gain": "static gain",
    "rank_persistence": "same rank again",
    "wait_fit": "waiting measured",
    "device_events": "device events",
}
"""What each piece of evidence is called."""

EVIDENCE_MEANING: Mapping[str, str] = {
    "frontier_share": "The stage with the largest share when every step is looked at by itself.",
    "carry_over_share": "The stage with the largest share when delays are followed into the next step.",
    "delta": "The stage that grew most against the run's healthy window.",
    "excess": "The stage with most time that a typical rank did not need.",
    "static_gain": "The stage whose clipping alone would shorten the step most.",
    "rank_persistence": "Whether one and the same rank leads the stage.",
    "wait_fit": "The stage that ranks measurably wait in; it should not be the one aimed at.",
    "device_events": "Whether sampled device time supports forward.",
}
"""What each piece of evidence is."""


@dataclass(frozen=True, slots=True)
class EvidenceWords:
    """One line: ``mark`` is ✓ (agrees), ✗ (points elsewhere) or – (absent)."""

    name: str
    title: str
    mark: str
    text: str
    agrees: bool | None
    meaning: str


def evidence_lines(diagnosis: Diagnosis) -> tuple[EvidenceWords, ...]:
    """Every piece of evidence beside the aim."""
    if diagnosis.aim is None:
        return ()
    return tuple(_line(diagnosis, line) for line in diagnosis.aim.evidence)


def agreement(diagnosis: Diagnosis) -> tuple[int, int]:
    """How many pieces of evidence agree with the aim, of how many that are there."""
    found = [line.agrees for line in diagnosis.aim.evidence] if diagnosis.aim else []
    return sum(agrees is True for agrees in found), sum(agrees is not None for agrees in found)


def agreement_words(diagnosis: Diagnosis) -> str:
    """``4 of 5 agree``."""
    agree, of = agreement(diagnosis)
    if not of:
        return "no evidence"
    return f"{agree} of {of} {'agrees' if of == 1 else 'agree'}"


def dissent(diagnosis: Diagnosis) -> str:
    """Which evidence points elsewhere: ``share, step by step: backward``; empty where none does."""
    if diagnosis.aim is None:
        return ""
    parts = []
    for line in diagnosis.aim.evidence:
        if line.agrees is False:
            where = format.short_stage(line.stage) if line.stage else "elsewhere"
            parts.append(f"{EVIDENCE_TITLES.get(line.name, line.name)}: {where}")
    return "; ".join(parts)


def _line(diagnosis: Diagnosis, line: EvidenceLine) -> EvidenceWords:
    mark = {True: "✓", False: "✗", None: "–"}[line.agrees]
    title = EVIDENCE_TITLES.get(line.name, line.name)
    meaning = EVIDENCE_MEANING.get(line.name, "")
    return EvidenceWords(line.name, title, mark, _text(diagnosis, line), line.agrees, meaning)


def _text(diagnosis: Diagnosis, line: EvidenceLine) -> str:
    stage = format.short_stage(line.stage) if line.stage else ""
    if line.agrees is None:
        return _absent(diagnosis, line)
    if line.name == "rank_persistence":
        steps = diagnosis.culprit.eligible_steps if diagnosis.culprit else 0
        led = round((line.value or 0.0) * steps)
        return f"rank {line.rank} leads {stage} in {format.count(led)} of {format.counted(steps, 'step')}"
    if line.name == "wait_fit":
        known = how_the_wait_is_known(diagnosis)
        if line.agrees:
            return f"ranks wait in {stage} ({known}), not in the stage aimed at"
        return f"ranks wait in {stage} ({known}): time there may only show a delay from elsewhere"
    if line.name == "delta":
        return f"{stage}, {format.change(line.value)} a step"
    return f"{stage}, {format.percent(line.value)}"


def over_the_run(diagnosis: Diagnosis) -> str:
    """Where a wait was measured that the fit over this whole window does not show."""
    return "over the run's windows" if diagnosis.group == ALL_RANKS else "over all ranks of the run"


def how_the_wait_is_known(diagnosis: Diagnosis) -> str:
    """What says that ranks wait at the sync boundary: this window's own slope, or other windows."""
    if diagnosis.waits_from == "run":
        return f"measured {over_the_run(diagnosis)}"
    fit = (diagnosis.wait_fit or {}).get(diagnosis.sync_boundary or "")
    return f"slope {format.slope(fit.slope, fit.se)}" if fit else "slope not known"


def _absent(diagnosis: Diagnosis, line: EvidenceLine) -> str:
    """Why a piece of evidence says nothing, with the gate it waits for."""
    gates, device = diagnosis.gates, diagnosis.device
    reason = REASONS.get(line.reason or "", "Not available.")
    if line.reason == "below_gamma_g":
        reason = f"The largest gain, {format.percent(line.value)}, is below γG {format.share(gates.gamma_g)}."
    elif line.reason == "step_time_not_grown":
        reason = f"The mean step changed by {format.percent_change(line.value)}; from +5 % on it counts."
    elif line.reason == "quiet":
        reason = f"Exposed imbalance is {format.severity(line.value)}; from 5 % on it counts."
    elif line.reason == "too_few_events" and device is not None:
        reason = (
            f"{format.count(device.ready)} of {format.count(device.sampled)} sampled events finished; "
            f"waiting for at least {gates.min_event_samples} and {format.percent(gates.min_event_ready)}."
        )
    elif line.reason == "no_wait_measured":
        reason = f"No stage's time follows slack with a slope of at least {format.share(gates.wait_slope)}."
    return f"n/a: {reason[0].lower()}{reason[1:]}"
