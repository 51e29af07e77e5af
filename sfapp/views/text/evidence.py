"""Checks of the verdict in words: what each points to, whether it agrees, or why it is absent
(accounting.md §13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sfapp.model import ALL_RANKS, Diagnosis, EvidenceLine
from sfapp.model.reasons import reason_sentence
from sfapp.views import format

EVIDENCE_TITLES: Mapping[str, str] = {
    "frontier_share": "per-step share",
    "carry_over_share": "carried-over share",
    "delta": "growth vs healthy",
    "excess": "excess over a typical rank",
    "static_gain": "static gain",
    "rank_persistence": "rank persistence",
    "wait_fit": "inferred wait",
    "device_events": "device events",
}
"""Title of each check."""

EVIDENCE_MEANING: Mapping[str, str] = {
    "frontier_share": "The stage with the largest share if each step is taken alone.",
    "carry_over_share": "The stage with the largest share if delays are followed into the next step.",
    "delta": "The stage that grew most since the run's healthy window.",
    "excess": "The stage with most time in excess of a typical rank.",
    "static_gain": "The stage whose clipping alone would shorten the step most.",
    "rank_persistence": "Whether the same rank is slowest in the stage step after step.",
    "wait_fit": "The stage in which ranks wait for each other, inferred from the durations of those that "
    "arrive early; it should not be the suspect stage.",
    "device_events": "Whether sampled device time supports forward.",
}
"""Meaning of each check, for tooltips and the glossary."""


Source = Literal["this window's durations", "the run's other windows", "device events"]

_SOURCES: Mapping[str, Source] = {"delta": "the run's other windows", "device_events": "device events"}
"""Source of a check other than this window's stage durations, on which all other checks are based."""


_SHARES = ("frontier_share", "carry_over_share")


@dataclass(frozen=True, slots=True)
class EvidenceWords:
    """One check: ``mark`` is ✓ (agrees), ✗ (points to another stage) or – (absent, or without a suspect).

    Checks of one ``source`` are computed from the same numbers, so together they count as one.
    """

    name: str
    title: str
    mark: str
    text: str
    agrees: bool | None
    meaning: str
    source: str


def evidence_lines(diagnosis: Diagnosis) -> tuple[EvidenceWords, ...]:
    """Return every check of the suspect stage and rank; of a healthy window, which has no suspect to agree
    with, the stage that each check shows."""
    if diagnosis.aim is None:
        return ()
    return tuple(_line(diagnosis, line) for line in diagnosis.aim.evidence)


def evidence_sources(diagnosis: Diagnosis) -> dict[Source, bool]:
    """Return for each independent source whether it agrees with the suspect, that is, none of its checks
    disagrees; nothing for a healthy window, which has no suspect.

    The share of the frontier that is not in use is ignored: it shows the same durations under an accounting
    that was not chosen. So is a share that shows nothing against the suspect (``usual_share``).
    """
    found: dict[Source, bool] = {}
    for line in _present(diagnosis):
        source = _source(diagnosis, line)
        found[source] = found.get(source, True) and line.agrees is True
    return found


def agreement(diagnosis: Diagnosis) -> tuple[int, int]:
    """Return the number of sources that agree, and the number of sources."""
    found = evidence_sources(diagnosis)
    return sum(found.values()), len(found)


def agreement_words(diagnosis: Diagnosis) -> str:
    """Return ``2 of 2 sources agree``, or that a healthy window has no suspect."""
    agree, of = agreement(diagnosis)
    if not of:
        return "no suspect" if diagnosis.aim is not None and diagnosis.is_healthy else "no evidence"
    if of == 1:
        return one_source_words(agree == 1)
    return f"{agree} of {of} sources agree"


def no_straggler_words(diagnosis: Diagnosis) -> str:
    """Return what a window that lacks data shows, which cannot be called healthy."""
    return f"no straggler found among the {'ranks that reported' if diagnosis.missing_ranks else 'ranks'}"


def one_source_words(agrees: bool) -> str:
    """Return whether the checks of a single source agree with each other."""
    return "one source, agrees" if agrees else "one source, its checks differ"


def sources_words(diagnosis: Diagnosis) -> str:
    """Return the sources: ``independent: this window's durations, the run's other windows``."""
    found = list(evidence_sources(diagnosis))
    return f"{'independent: ' if len(found) > 1 else ''}{', '.join(found)}"


def _present(diagnosis: Diagnosis) -> list[EvidenceLine]:
    """Return the checks that count."""
    if diagnosis.aim is None or diagnosis.is_healthy:
        return []
    unused = "frontier_share" if diagnosis.frontier == "carry_over" else "carry_over_share"
    return [
        line
        for line in diagnosis.aim.evidence
        if line.agrees is not None and line.name != unused and not usual_share(diagnosis, line)
    ]


def usual_share(diagnosis: Diagnosis, line: EvidenceLine) -> str:
    """Return why a share of another stage than the suspect shows nothing against it; empty if it does.

    The stage that computes longest has the largest share in healthy windows too, so only a share that has
    grown since then points to it. Without healthy windows, it shows nothing against ranks that are late
    beyond noise.
    """
    if line.name not in _SHARES or line.agrees is not False or line.stage is None or line.value is None:
        return ""
    usual = _healthy_shares(diagnosis, line.name)
    if usual is not None:
        share = usual.get(line.stage, 0.0)
        if share == max(usual.values()) and line.value <= share:
            return f"the largest share when healthy too, {format.percent(share)}"
        return ""
    finding = diagnosis.main_finding
    late = finding is not None and finding.kind == "rank" and bool(finding.ranks)
    return "no sign against ranks that are late in another stage" if late else ""


def _healthy_shares(diagnosis: Diagnosis, name: str) -> dict[str, float] | None:
    """Return the shares of the healthy windows on the frontier of a check; None if they are not known."""
    reference = diagnosis.reference
    if reference is None:
        return None
    advances = reference.carry_advance_ns if name == "carry_over_share" else reference.advance_ns
    total = sum((advances or {}).values())
    return {stage: part / total for stage, part in (advances or {}).items()} if total > 0 else None


def _source(diagnosis: Diagnosis, line: EvidenceLine) -> Source:
    if line.name == "wait_fit" and diagnosis.waits_from == "run":
        return "the run's other windows"
    return _SOURCES.get(line.name, "this window's durations")


def dissent(diagnosis: Diagnosis) -> str:
    """Return which checks disagree: ``per-step share points to backward``; empty if none does."""
    parts = []
    for line in _present(diagnosis):
        if line.agrees is False:
            verdict = f"points to {format.short_stage(line.stage)}" if line.stage else "disagrees"
            if line.name == "wait_fit":
                verdict = "lies in the suspect stage"
            parts.append(f"{EVIDENCE_TITLES.get(line.name, line.name)} {verdict}")
    return "; ".join(parts)


def _line(diagnosis: Diagnosis, line: EvidenceLine) -> EvidenceWords:
    agrees = None if diagnosis.is_healthy or usual_share(diagnosis, line) else line.agrees
    mark = {True: "✓", False: "✗", None: "–"}[agrees]
    title = EVIDENCE_TITLES.get(line.name, line.name)
    meaning = EVIDENCE_MEANING.get(line.name, "")
    source = _source(diagnosis, line)
    return EvidenceWords(line.name, title, mark, _text(diagnosis, line), agrees, meaning, source)


def _text(diagnosis: Diagnosis, line: EvidenceLine) -> str:
    stage = format.short_stage(line.stage) if line.stage else ""
    if line.agrees is None:
        return _absent(diagnosis, line)
    if line.name == "rank_persistence":
        steps = diagnosis.culprit.eligible_steps if diagnosis.culprit else 0
        slowest = format.count(round((line.value or 0.0) * steps))
        of = format.counted(steps, "step")
        return f"rank {line.rank} is slowest {format.in_short(stage)} in {slowest} of {of}"
    if line.name == "wait_fit":
        source = wait_source(diagnosis)
        if diagnosis.is_healthy:
            return f"ranks wait {format.in_short(stage)} ({source})"
        if line.agrees:
            return f"ranks wait {format.in_short(stage)} ({source}), not in the suspect stage"
        return f"ranks wait {format.in_short(stage)} ({source}): its time may be a delay from another stage"
    if line.name == "delta":
        return f"{stage}, {format.change(line.value)} per step"
    usual = "" if diagnosis.is_healthy else usual_share(diagnosis, line)
    return f"{stage}, {format.percent(line.value)}{f' ({usual})' if usual else ''}"


def over_the_run(diagnosis: Diagnosis) -> str:
    """Return the source of a wait that the fit over this whole window does not show."""
    return "from the run's windows" if diagnosis.group == ALL_RANKS else "from all ranks of the run"


def wait_source(diagnosis: Diagnosis) -> str:
    """Return the source of the wait at the sync boundary: this window's own slope, or other windows."""
    if diagnosis.waits_from == "run":
        return f"inferred {over_the_run(diagnosis)}"
    fit = (diagnosis.wait_fit or {}).get(diagnosis.sync_boundary or "")
    return f"slope {format.slope(fit.slope, fit.se)}" if fit else "slope unknown"


def _absent(diagnosis: Diagnosis, line: EvidenceLine) -> str:
    """Return why a check is absent, with the gate that it misses."""
    gates, device = diagnosis.gates, diagnosis.device
    reason = reason_sentence(line.reason) if line.reason else "Not available."
    if line.reason == "below_gamma_g":
        reason = f"The largest gain, {format.percent(line.value)}, is below γG {format.share(gates.gamma_g)}."
    elif line.reason == "step_time_not_grown":
        counted = format.percent(diagnosis.smallest_effect)
        reason = f"The mean step changed by {format.percent_change(line.value)}; counted from +{counted}."
    elif line.reason == "quiet":
        counted = format.percent(diagnosis.smallest_effect)
        reason = f"Exposed imbalance is {format.severity(line.value)}; counted from {counted}."
    elif line.reason == "too_few_events" and device is not None:
        reason = (
            f"{format.count(device.ready)} of {format.count(device.sampled)} sampled events finished; "
            f"at least {gates.min_event_samples} and {format.percent(gates.min_event_ready)} are needed."
        )
    elif line.reason == "no_wait_measured":
        reason = f"No stage's time follows slack with a slope of at least {format.share(gates.wait_slope)}."
    return f"n/a: {reason[0].lower()}{reason[1:]}"
