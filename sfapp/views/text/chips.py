"""Labels, reasons and the kind of culprit as small tags: words on screen, machine names in the tooltip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sfapp.model import CULPRITS, LABELS, REASONS, Diagnosis, Label
from sfapp.model.labels import label_words
from sfapp.model.reasons import reason_sentence, reason_words
from sfapp.views import format
from sfapp.views.text.evidence import agreement

Tone = Literal["fact", "strong", "doubt", "limit", "culprit"]


@dataclass(frozen=True, slots=True)
class Term:
    """Words of a verdict: ``text``, and the ``kind`` and ``name`` of its glossary entry.

    ``kind`` is empty if the glossary has no entry: a packet may carry faults of another version of sfapp.
    """

    text: str
    kind: Literal["label", "reason", "culprit", ""]
    name: str


@dataclass(frozen=True, slots=True)
class Chip:
    """A label with its reasons, or a kind of culprit, as a small tag; ``meaning`` is the tooltip."""

    terms: tuple[Term, ...]
    meaning: str
    tone: Tone

    @property
    def text(self) -> str:
        """All terms: ``stages or ranks tied · little gain alone``."""
        return " · ".join(term.text for term in self.terms)


def chips(diagnosis: Diagnosis) -> tuple[Chip, ...]:
    """Return labels with their reasons, then reasons without a label, then the kind of culprit."""
    found = [_label_chip(label, diagnosis) for label in diagnosis.labels]
    found += [
        Chip((_reason(reason),), f"{reason}: {reason_sentence(reason)}", _reason_tone(reason, diagnosis))
        for reason in diagnosis.reasons
    ]
    culprit, aim = diagnosis.culprit, diagnosis.aim
    has_culprit = aim is not None and aim.rank_reason not in ("all_ranks", "single_rank")
    has_culprit &= not diagnosis.is_healthy and diagnosis.steps > 1
    if culprit is not None and culprit.kind != "none" and has_culprit:
        term = Term(culprit_words(diagnosis), "culprit", culprit.kind)
        found.append(Chip((term,), f"{culprit.kind}: {CULPRITS[culprit.kind].explanation}", "culprit"))
    return tuple(found)


def _tone(label: Label, diagnosis: Diagnosis) -> Tone:
    """Return the colour role of a label. Tied stages raise no doubt in a healthy window, if all evidence
    agrees on the suspect, or if the same rank is late step after step."""
    spec = LABELS.get(label.label)
    if spec is None:
        return "doubt"
    agree, of = agreement(diagnosis)
    is_settled = diagnosis.is_healthy or (agree == of and of > 0) or _is_persistent(diagnosis)
    return "fact" if label.label == "co_critical" and is_settled else spec.tone


def _is_persistent(diagnosis: Diagnosis) -> bool:
    """Return whether a rank is named that is slowest in at least 80 % of the eligible steps."""
    aim, culprit = diagnosis.aim, diagnosis.culprit
    return aim is not None and aim.rank is not None and culprit is not None and culprit.kind == "chronic"


def _reason_tone(reason: str, diagnosis: Diagnosis) -> Tone:
    """Return the colour role of a reason without a label. A delay that carries over raises no doubt on the
    carry-over frontier."""
    return "fact" if reason == "carry_over" and diagnosis.frontier == "carry_over" else "doubt"


def _label_chip(label: Label, diagnosis: Diagnosis) -> Chip:
    name = label.label
    reasons = [_reason_of(reason, diagnosis) for reason in label.reasons]
    terms = (
        Term(label_words(name), "label" if name in LABELS else "", name),
        *(term for term in reasons if term is not None),
    )
    names = f"{name} ({', '.join(label.reasons)})" if label.reasons else name
    explanation = (
        LABELS[name].explanation if name in LABELS else "This version of sfapp does not know the label."
    )
    meaning = " ".join((f"{names}: {explanation}", *map(reason_sentence, label.reasons)))
    return Chip(terms, meaning, _tone(label, diagnosis))


def _reason_of(reason: str, diagnosis: Diagnosis) -> Term | None:
    """Return a label's reason; None if it would contradict the saving by a fix of the suspect.

    The static gain is that of the stage with the largest share, on all ranks. It says nothing about a suspect
    in another stage, and little about a single late rank, for which the others wait.
    """
    aim, top = diagnosis.aim, diagnosis.top_stage
    if reason != "low_static_gain" or diagnosis.is_healthy or aim is None or top is None:
        return _reason(reason)
    if top != aim.stage:
        return Term(f"little gain in {format.short_stage(top)} alone", "reason", reason)
    return None if aim.rank is not None else _reason(reason)


def _reason(reason: str) -> Term:
    return Term(reason_words(reason), "reason" if reason in REASONS else "", reason)


def culprit_words(diagnosis: Diagnosis) -> str:
    """Return ``persistent: rank 3 in 40 of 40 steps``, ``periodic: every 10th step`` and the like."""
    culprit = diagnosis.culprit
    if culprit is None:
        return ""
    words = CULPRITS[culprit.kind].words
    if culprit.kind == "periodic" and culprit.period:
        return f"{words}: every {format.ordinal(culprit.period)} step"
    slowest = format.count(round(culprit.share * culprit.eligible_steps))
    of = format.counted(culprit.eligible_steps, "step")
    if culprit.kind in ("chronic", "mixed"):
        return f"{words}: rank {culprit.rank} in {slowest} of {of}"
    if culprit.kind == "rotating":
        return f"{words}: rank {culprit.rank} most often, {slowest} of {of}"
    return f"{words}: {of}"
