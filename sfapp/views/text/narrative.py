"""Describe what happened in a window and what to do next, for readers without prior knowledge."""

from __future__ import annotations

import math

from sfapp.model import Diagnosis, broad_stage
from sfapp.views import format
from sfapp.views.text.advice import look_at_all_ranks, look_at_one_rank, why_ranks_rotate
from sfapp.views.text.change_breakdown import where_it_lies
from sfapp.views.text.findings import (
    effect_sentence,
    healthy_windows,
    other_findings,
    resolution_sentence,
)
from sfapp.views.text.frontiers import frontier_difference
from sfapp.views.text.host_evidence import period_sentence
from sfapp.views.text.limitations import waits_inside
from sfapp.views.text.long_steps import long_steps
from sfapp.views.text.pipeline import pipeline_sentences

_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def explanation(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return how much time is lost, where it appears on other ranks, and how it recurs."""
    aim = diagnosis.aim
    if diagnosis.shares is None or aim is None:
        return (
            f"The window exposes {format.duration(diagnosis.exposed_makespan_ns)} in "
            f"{format.counted(diagnosis.steps, 'step')}, less than the floor of "
            f"{format.duration(diagnosis.gates.floor_ns)}: too little for meaningful shares.",
        )
    if diagnosis.is_healthy:
        compared = pipeline_sentences(diagnosis)
        sentences = (
            *compared,
            "" if compared and diagnosis.mixes_roles else _healthy_sentence(diagnosis),
            resolution_sentence(diagnosis),
            *other_findings(diagnosis),
            frontier_difference(diagnosis),
        )
        return tuple(sentence for sentence in sentences if sentence)
    long = long_steps(diagnosis)
    sentences = (
        delta_sentence(diagnosis),
        "" if long is None else long.sentence,
        _ranks_sentence(diagnosis),
        frontier_difference(diagnosis) or misread_sentence(diagnosis),
        _recurrence_sentence(diagnosis),
        effect_sentence(diagnosis),
        *other_findings(diagnosis),
        *pipeline_sentences(diagnosis),
    )
    return tuple(sentence for sentence in sentences if sentence)


def _ranks_sentence(diagnosis: Diagnosis) -> str:
    """Return why no rank is named; empty if one is."""
    aim = diagnosis.aim
    if aim is None or aim.rank_reason not in ("rotating", "all_ranks"):
        return ""
    if aim.rank_reason == "rotating":
        return why_ranks_rotate(aim.stage)
    if waits_inside(diagnosis):
        return (
            f"All ranks spend this time equally, but they wait for each other "
            f"{format.in_stage(aim.stage, 'inside')}: one late rank there would look the same."
        )
    waited = (diagnosis.wait_advances_ns or {}).get(aim.stage)
    if waited is not None and 2 * waited >= _advances(diagnosis)[aim.stage]:
        return (
            f"The collective itself takes long: {format.duration(waited / diagnosis.steps)} of "
            f"{format.duration(_advances(diagnosis)[aim.stage] / diagnosis.steps)} per step pass after the "
            "last rank has arrived."
        )
    return "All ranks spend this time equally, so no rank stands out."


def _advances(diagnosis: Diagnosis) -> dict[str, int]:
    return diagnosis.carry_over_advances_ns or diagnosis.advances_ns


def _healthy_sentence(diagnosis: Diagnosis) -> str:
    if diagnosis.exposed_imbalance is None:
        text = "Only a few ranks' rows were kept, so their balance is unknown"
        if diagnosis.reference is None:
            return f"{text}, and the run has no baseline to compare with."
    else:
        text = f"Ranks are balanced: {format.severity(diagnosis.exposed_imbalance)} of the step is imbalance"
    if diagnosis.missing_ranks:
        text = f"Of the {format.counted(diagnosis.ranks, 'rank')} that reported, {text[0].lower()}{text[1:]}"
    if diagnosis.ranks == 1:
        text = "The window has a single rank, so imbalance cannot be measured"
    if diagnosis.change is not None and diagnosis.reference is not None:
        if diagnosis.is_reference:
            which = "the run's healthy window" if len(diagnosis.reference.windows) < 2 else "a healthy window"
            return f"{text}, and this is {which}."
        grown, windows = format.percent_change(diagnosis.change), healthy_windows(diagnosis.reference)
        if grown.startswith("±"):
            return f"{text}, and the mean step is as long as in {windows}."
        return f"{text}, and the mean step is {grown} vs {windows}."
    return f"{text}."


def delta_sentence(diagnosis: Diagnosis) -> str:
    """Return ``+59 ms per step vs healthy window 3, all of it in callbacks.``"""
    aim, reference, deltas = diagnosis.aim, diagnosis.reference, diagnosis.delta_ns
    if aim is None:
        return ""
    if aim.basis != "delta" or reference is None or deltas is None:
        excess = diagnosis.telling_excess.get(aim.stage, 0.0)
        lost = format.duration(excess * diagnosis.step_time.mean_ns)
        return (
            f"{lost} of each step ({format.percent(excess)}) is {format.short_stage(aim.stage)} time "
            "in excess of a typical rank."
        )
    total = math.fsum(deltas.values())
    grown = f"{format.change(total)} per step vs {healthy_windows(reference)}"
    return f"{grown}{where_it_lies(total, deltas, aim.stage)}."


def misread_sentence(diagnosis: Diagnosis) -> str:
    """Return where the delay appears on other ranks; empty if this cannot mislead."""
    aim = diagnosis.aim
    if aim is None or diagnosis.ranks < 2 or aim.rank_reason == "all_ranks" or not diagnosis.shares:
        return ""
    wait = broad_stage(diagnosis.sync_boundary) if diagnosis.sync_boundary else None
    if wait is not None and wait != aim.stage:
        return f"{_other_ranks(diagnosis)} {format.in_stage(wait)}."
    return ""


def _other_ranks(diagnosis: Diagnosis) -> str:
    """Return ``The other seven ranks wait for it``."""
    if diagnosis.aim is None or diagnosis.aim.rank is None:
        return "Faster ranks wait for the slowest"
    number = diagnosis.ranks - 1
    if number == 1:
        return "The other rank waits for it"
    return f"The other {_WORDS[number] if number < len(_WORDS) else format.count(number)} ranks wait for it"


def _recurrence_sentence(diagnosis: Diagnosis) -> str:
    """Return how often the delay occurs; empty if it occurs in every step."""
    culprit, aim = diagnosis.culprit, diagnosis.aim
    if culprit is None or aim is None or aim.rank_reason in ("all_ranks", "single_rank"):
        return ""
    if culprit.kind == "periodic":
        returns = (
            f"It returns every {format.ordinal(culprit.period or 0)} step: look for work at that interval "
            "(logging, evaluation, checkpoints)."
        )
        return f"{returns} {period_sentence(diagnosis, culprit.period or 0)}".strip()
    if culprit.kind == "one-off":
        seen = format.counted(culprit.eligible_steps, "step")
        return f"{seen} of {format.count(diagnosis.steps)}; may not recur."
    if culprit.kind == "chronic" and culprit.eligible_steps < 0.8 * diagnosis.steps:
        return (
            f"It appears in {format.count(culprit.eligible_steps)} of "
            f"{format.counted(diagnosis.steps, 'step')}."
        )
    if culprit.kind == "mixed":
        return (
            f"Rank {culprit.rank} is slowest most often, in {format.percent(culprit.share)} of the eligible "
            "steps: too rarely to name it alone."
        )
    return ""


def action(diagnosis: Diagnosis) -> str:
    """Return what to do next; empty in healthy windows."""
    aim = diagnosis.aim
    if aim is None or diagnosis.is_healthy:
        return ""
    if "role_aware_needed" in diagnosis.label_names:
        return "Diagnose one role's group first: ranks of different roles may take different times."
    if aim.rank is not None:
        return f"Capture rank {aim.rank} for a few steps, and {look_at_one_rank(aim.stage)}."
    if aim.rank_reason == "all_ranks" and waits_inside(diagnosis):
        return "Capture one rank of every node over the same steps, and see which one the others wait for."
    if aim.rank_reason == "all_ranks":
        return f"Capture any rank for a few steps, and {look_at_all_ranks(aim.stage)}."
    if aim.rank_reason == "rotating":
        return "Capture several ranks over the same steps, and compare the slowest one with the others."
    return "Capture the ranks that are slowest most often, and compare them with a typical one."
