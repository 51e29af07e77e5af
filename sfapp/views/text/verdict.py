"""The verdict card: where to aim a profiler, how sure that is, what is not known (accounting.md §13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sfapp.model import CULPRITS, LABELS, REASONS, Diagnosis, RankTable, Window, broad_stage
from sfapp.views import format
from sfapp.views.text.advice import look_at_all_ranks, look_at_one_rank, why_ranks_rotate
from sfapp.views.text.change_breakdown import where_it_lies
from sfapp.views.text.evidence import (
    EvidenceWords,
    agreement_words,
    dissent,
    evidence_lines,
)
from sfapp.views.text.explanations import against_recorder, why
from sfapp.views.text.limitations import unknown, waits_inside
from sfapp.views.text.long_steps import long_steps

Tone = Literal["alarm", "warn", "quiet", "unknown"]

_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True)
class Term:
    """A word of a verdict: ``text``, and the ``kind`` and ``name`` under which the glossary has it.

    ``kind`` is empty where it has not: a packet may carry faults that this version does not know.
    """

    text: str
    kind: Literal["label", "reason", "culprit", ""]
    name: str


@dataclass(frozen=True, slots=True)
class Chip:
    """A label with its reasons, or a culprit kind, as a small tag; its ``meaning`` is for the tooltip."""

    terms: tuple[Term, ...]
    meaning: str
    tone: Literal["fact", "strong", "doubt", "limit", "culprit"]

    @property
    def text(self) -> str:
        """All of it: ``co_critical · low_static_gain``."""
        return " · ".join(term.text for term in self.terms)


@dataclass(frozen=True, slots=True)
class Number:
    """A headline number: ``STEP TIME``, ``149.9 ms``, ``+58 % on healthy``."""

    title: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict card in words; plain text throughout.

    Attributes:
        tone: how loud the card is. kicker: the line above the headline.
        headline, place: ``callbacks on rank 3`` and ``(node-0, local 3), every step``.
        explanation: what happened, for someone who has read no manual.
        action: what to do next, empty in quiet windows.
        chips: labels with their meaning. numbers: step time, exposed imbalance, evidence.
        evidence: one line each. evidence_summary: ``4 of 5 agree``. dissent: what points elsewhere.
        why: the gates that decided. unknown: what is not known. recorder: against the recorder's labels.
    """

    tone: Tone
    kicker: str
    headline: str
    place: str
    explanation: tuple[str, ...]
    action: str
    chips: tuple[Chip, ...]
    numbers: tuple[Number, ...]
    evidence: tuple[EvidenceWords, ...]
    evidence_summary: str
    dissent: str
    why: tuple[str, ...]
    unknown: tuple[str, ...]
    recorder: str

    @property
    def sentence(self) -> str:
        """Headline and place in one, for titles and lists."""
        return _sentence(self.headline, self.place)


def verdict(diagnosis: Diagnosis, ranks: RankTable | None = None) -> Verdict:
    """The card of one window.

    Args:
        ranks: the window's rank table, for the place of the aimed-at rank on its node.
    """
    headline, place = headline_of(diagnosis, ranks)
    return Verdict(
        tone=_tone(diagnosis),
        kicker=_kicker(diagnosis),
        headline=headline,
        place=place,
        explanation=tuple(_explanation(diagnosis)),
        action=_action(diagnosis),
        chips=chips(diagnosis),
        numbers=_numbers(diagnosis),
        evidence=evidence_lines(diagnosis),
        evidence_summary=agreement_words(diagnosis),
        dissent=dissent(diagnosis),
        why=why(diagnosis),
        unknown=unknown(diagnosis),
        recorder=against_recorder(diagnosis),
    )


def summary(diagnosis: Diagnosis, ranks: RankTable | None = None) -> str:
    """The whole verdict as one sentence, for titles, lists and screen readers."""
    return _sentence(*headline_of(diagnosis, ranks))


def _sentence(headline: str, place: str) -> str:
    """``data on rank 3 (node-0), every step``, ``data on all ranks alike, step 7``."""
    link = " " if not place or place.startswith("(") else ", "
    return f"{headline}{link}{place}".strip().removesuffix(",")


def extent(window: Window) -> str:
    """``40 steps 400–439 · 24 ranks on 2 nodes``, and of how many the rows are where not of all."""
    steps = window.step_N.tolist()
    text = f"{format.counted(len(steps), 'step')} {format.ranges(steps)} · "
    text += f"{format.counted(window.rank_count, 'rank')} on {format.counted(window.node_count, 'node')}"
    return text if window.reduced is None else f"{text}, rows of {format.count(len(window.ranks))}"


def headline_of(diagnosis: Diagnosis, ranks: RankTable | None = None) -> tuple[str, str]:
    """``callbacks on rank 3`` and ``(node-0, local 3), every step``."""
    aim = diagnosis.aim
    if diagnosis.shares is None or aim is None:
        return "Too little time to say anything", ""
    stage = format.short_stage(aim.stage)
    if diagnosis.severity is None:  # a reduced window: neither imbalance nor growth is known
        return "No telling without a healthy window", f"(largest share: {stage})"
    if diagnosis.is_quiet and diagnosis.ranks == 1 and diagnosis.reference is None:
        share = format.percent(diagnosis.shares.get(aim.stage))
        return "One rank, nothing to compare it with", f"(largest share: {stage}, {share})"
    if diagnosis.is_quiet:
        return "Quiet: no action called for", f"(largest share: {stage})"
    when = format.steps(aim.steps)
    long = long_steps(diagnosis)
    if aim.rank_reason == "all_ranks" and aim.steps == "all" and long is not None:
        when = long.which
    if aim.rank is not None:
        return f"{stage} on rank {aim.rank}", f"({_where(aim.rank, aim.hostname, ranks)}), {when}"
    if aim.rank_reason == "rotating":
        turn = "every step" if aim.steps == "all" else "each time"
        return f"{stage}, on a different rank {turn}", "" if aim.steps == "all" else when
    if aim.rank_reason == "all_ranks":
        return f"{stage} on all ranks alike", when
    if aim.rank_reason == "single_rank":
        return stage, "(one rank: nothing to compare with)"
    return f"{stage}, no single rank", when


def _where(rank: int, hostname: str | None, ranks: RankTable | None) -> str:
    host = format.clip(hostname or "unknown host")
    if ranks is None or rank not in ranks.rank:
        return host
    return f"{host}, local {ranks.local_rank[ranks.rank.index(rank)]}"


def _tone(diagnosis: Diagnosis) -> Tone:
    if diagnosis.severity is None:
        return "unknown"
    if diagnosis.is_quiet:
        return "quiet"
    return "alarm" if diagnosis.severity >= 0.2 else "warn"


def _kicker(diagnosis: Diagnosis) -> str:
    if diagnosis.severity is None:
        return "No verdict"
    return "Nothing to aim at" if diagnosis.is_quiet else "Aim the profiler at"


def _explanation(diagnosis: Diagnosis) -> list[str]:
    aim = diagnosis.aim
    if diagnosis.shares is None or aim is None:
        return [
            f"The window exposes {format.duration(diagnosis.exposed_makespan_ns)} in "
            f"{format.counted(diagnosis.steps, 'step')}, less than the floor of "
            f"{format.duration(diagnosis.gates.floor_ns)}: shares of so little would mean nothing."
        ]
    if diagnosis.is_quiet:
        return [_quiet_words(diagnosis)]
    sentences = [delta_sentence(diagnosis)]
    long = long_steps(diagnosis)
    if long is not None:
        sentences.append(long.sentence)
    if aim.rank_reason == "rotating":
        sentences.append(why_ranks_rotate(aim.stage))
    elif aim.rank_reason == "all_ranks" and waits_inside(diagnosis):
        sentences.append(
            f"All ranks spend it alike, but they wait for each other inside {format.short_stage(aim.stage)}: "
            "one late rank there would look just like this."
        )
    elif aim.rank_reason == "all_ranks":
        sentences.append("Every rank spends this time alike, so no rank stands out.")
    misread = misread_sentence(diagnosis)
    if misread:
        sentences.append(misread)
    course = _course(diagnosis)
    if course:
        sentences.append(course)
    return sentences


def _quiet_words(diagnosis: Diagnosis) -> str:
    if diagnosis.exposed_imbalance is None:
        text = "The rows of a few ranks were kept, so how balanced they are cannot be known"
        if diagnosis.reference is None:
            return f"{text}, and the run has no healthy window to compare with."
    else:
        share = format.severity(diagnosis.exposed_imbalance)
        text = f"Ranks are balanced: {share} of the step is imbalance"
    if diagnosis.missing_ranks:
        text = f"Of the {format.counted(diagnosis.ranks, 'rank')} that reported, {text[0].lower()}{text[1:]}"
    if diagnosis.ranks == 1:
        text = "There is one rank only, so imbalance cannot show"
    if diagnosis.change is not None and diagnosis.reference is not None:
        if diagnosis.reference.window == diagnosis.window:
            return f"{text}, and this is the run's healthy window."
        grown = format.percent_change(diagnosis.change)
        if grown.startswith("±"):
            return f"{text}, and the mean step is as long as in healthy window {diagnosis.reference.window}."
        return f"{text}, and the mean step is {grown} against healthy window {diagnosis.reference.window}."
    return f"{text}."


def delta_sentence(diagnosis: Diagnosis) -> str:
    """``+59 ms per step against healthy window 3, all of it in callbacks.``"""
    aim, reference, deltas = diagnosis.aim, diagnosis.reference, diagnosis.delta_ns
    if aim is None:
        return ""
    name = format.short_stage(aim.stage)
    if aim.basis != "delta" or reference is None or deltas is None:
        excess = (diagnosis.carry_over_excess or diagnosis.excess or {}).get(aim.stage, 0.0)
        lost = excess * diagnosis.step_time.mean_ns
        return (
            f"{format.duration(lost)} of each step ({format.percent(excess)}) is {name} time "
            "that a typical rank did not need."
        )
    total = diagnosis.step_time.mean_ns - reference.step_time_ns
    against = f"{format.change(total)} per step against healthy window {reference.window}"
    return f"{against}{where_it_lies(total, deltas, aim.stage)}."


def misread_sentence(diagnosis: Diagnosis) -> str:
    """How other ranks' timers, or step-aligned shares, misread the delay; empty where they do not."""
    aim = diagnosis.aim
    if aim is None or diagnosis.ranks < 2 or aim.rank_reason == "all_ranks" or not diagnosis.shares:
        return ""
    aligned = max(diagnosis.shares, key=lambda stage: (diagnosis.shares or {})[stage])
    others = _others(diagnosis)
    if "carry_over" in diagnosis.reasons and aligned != aim.stage:
        name = format.short_stage(aligned)
        if diagnosis.sync_boundary is None:
            return (
                f"Looked at step by step, it would seem to be {name}: the delay comes from the step before."
            )
        return f"{others} as {name} time in the next step."
    wait = broad_stage(diagnosis.sync_boundary) if diagnosis.sync_boundary else None
    if wait is not None and wait != aim.stage:
        return f"{others} as {format.short_stage(wait)} time: they wait there."
    return ""


def _others(diagnosis: Diagnosis) -> str:
    if diagnosis.aim is None or diagnosis.aim.rank is None:
        return "The ranks that are early show it"
    number = diagnosis.ranks - 1
    if number == 1:
        return "The other rank shows it"
    return f"The other {_WORDS[number] if number < len(_WORDS) else format.count(number)} ranks show it"


def _course(diagnosis: Diagnosis) -> str:
    """Chronic, periodic or one-off, in numbers."""
    culprit, aim = diagnosis.culprit, diagnosis.aim
    if culprit is None or aim is None or aim.rank_reason in ("all_ranks", "single_rank"):
        return ""
    if culprit.kind == "periodic":
        return (
            f"It returns every {format.ordinal(culprit.period or 0)} step: look for what runs at that "
            "interval (logging, evaluation, checkpoints)."
        )
    if culprit.kind == "one-off":
        shown = format.counted(culprit.eligible_steps, "step")
        of = format.count(diagnosis.steps)
        return f"One rank leads it clearly in {shown} of {of} only, so it may not return."
    if culprit.kind == "chronic" and culprit.eligible_steps < 0.8 * diagnosis.steps:
        of = format.counted(diagnosis.steps, "step")
        return f"It shows in {format.count(culprit.eligible_steps)} of {of}."
    if culprit.kind == "mixed":
        return (
            f"Rank {culprit.rank} leads most often, in {format.percent(culprit.share)} of the steps that "
            "count: too seldom to blame it alone."
        )
    return ""


def _action(diagnosis: Diagnosis) -> str:
    aim = diagnosis.aim
    if aim is None or diagnosis.is_quiet:
        return ""
    if "role_aware_needed" in diagnosis.label_names:
        return "Diagnose one role's group first: ranks of different roles need not take equally long."
    if aim.rank is not None:
        return f"Capture rank {aim.rank} for a few steps, and {look_at_one_rank(aim.stage)}."
    if aim.rank_reason == "all_ranks" and waits_inside(diagnosis):
        return "Capture one rank of every node over the same steps, and see which one the others wait for."
    if aim.rank_reason == "all_ranks":
        return f"Capture any rank for a few steps, and {look_at_all_ranks(aim.stage)}."
    if aim.rank_reason == "rotating":
        return "Capture several ranks over the same steps, and compare the last one with the others."
    return "Capture the ranks that lead most often, and compare them with a typical one."


def chips(diagnosis: Diagnosis) -> tuple[Chip, ...]:
    """Labels with their reasons, then the culprit's kind."""
    found = []
    for label in diagnosis.labels:
        terms = (Term(label.label, "label", label.label), *map(_reason, label.reasons))
        meaning = " ".join((LABELS.get(label.label, ""), *(REASONS.get(r, r) for r in label.reasons)))
        found.append(Chip(terms, meaning.strip(), _chip_tone(label.label)))
    for reason in diagnosis.reasons:
        found.append(Chip((_reason(reason),), REASONS.get(reason, reason), "doubt"))
    culprit, aim = diagnosis.culprit, diagnosis.aim
    loud = aim is not None and aim.rank_reason not in ("all_ranks", "single_rank")
    if culprit is not None and culprit.kind != "none" and loud and not diagnosis.is_quiet:
        said = Term(culprit_words(diagnosis), "culprit", culprit.kind)
        found.append(Chip((said,), CULPRITS[culprit.kind], "culprit"))
    return tuple(found)


def _reason(reason: str) -> Term:
    return Term(reason, "reason" if reason in REASONS else "", reason)


def culprit_words(diagnosis: Diagnosis) -> str:
    """``chronic: rank 3 in 40 of 40 steps``, ``periodic: every 10th step``, ``rotating: 40 steps``."""
    culprit = diagnosis.culprit
    if culprit is None:
        return ""
    if culprit.kind == "periodic" and culprit.period:
        return f"periodic: every {format.ordinal(culprit.period)} step"
    led = round(culprit.share * culprit.eligible_steps)
    of = format.counted(culprit.eligible_steps, "step")
    if culprit.kind in ("chronic", "mixed"):
        return f"{culprit.kind}: rank {culprit.rank} in {format.count(led)} of {of}"
    if culprit.kind == "rotating":
        return f"rotating: rank {culprit.rank} most often, {format.count(led)} of {of}"
    return f"{culprit.kind}: {of}"


def _chip_tone(label: str) -> Literal["fact", "strong", "doubt", "limit", "culprit"]:
    if label in ("direct_exposure", "sync_wait_dependent", "likely_sync_wait", "forward_device_supported"):
        return "strong"
    if label in ("telemetry_limited", "role_aware_needed", "gradient_accumulation_ambiguous"):
        return "limit"
    return "fact" if label == "frontier_accounting" else "doubt"


def _numbers(diagnosis: Diagnosis) -> tuple[Number, ...]:
    step = diagnosis.step_time
    grown = "no healthy window to compare with"
    if diagnosis.change is not None:
        grown = f"{format.percent_change(diagnosis.change)} on healthy"
        if diagnosis.reference is not None and diagnosis.reference.window == diagnosis.window:
            grown = "the run's healthy window"
    if diagnosis.exposed_imbalance is None:
        waits = "waits for shares" if diagnosis.shares is None else "needs every rank's rows"
        imbalance = Number("Exposed imbalance", format.ABSENT, waits)
    elif diagnosis.ranks == 1:
        imbalance = Number("Exposed imbalance", format.ABSENT, "waits for a second rank")
    else:
        lost = format.duration(diagnosis.exposed_imbalance * step.mean_ns)
        imbalance = Number(
            "Exposed imbalance", format.severity(diagnosis.exposed_imbalance), f"{lost} a step would go"
        )
    against = dissent(diagnosis)
    return (
        Number("Step time", format.duration(step.mean_ns), grown),
        imbalance,
        Number("Evidence", agreement_words(diagnosis), against or "nothing points elsewhere"),
    )
