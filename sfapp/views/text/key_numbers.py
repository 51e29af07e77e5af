"""The three numbers of the verdict card: step time, exposed imbalance, evidence."""

from __future__ import annotations

from dataclasses import dataclass

from sfapp.model import Diagnosis
from sfapp.views import format
from sfapp.views.text.evidence import agreement_words, dissent, no_straggler_words, sources_words


@dataclass(frozen=True, slots=True)
class Number:
    """A headline number: ``Step time``, ``149.9 ms``, ``+58 % vs healthy``."""

    title: str
    value: str
    note: str


def key_numbers(diagnosis: Diagnosis) -> tuple[Number, ...]:
    """Return step time, exposed imbalance and the evidence's agreement."""
    evidence = Number("Evidence", agreement_words(diagnosis), _evidence_note(diagnosis))
    return (_step_time(diagnosis), _imbalance(diagnosis), evidence)


def _evidence_note(diagnosis: Diagnosis) -> str:
    """Return what disagrees, else the sources; of a window without a suspect, why it has none."""
    if diagnosis.aim is not None and diagnosis.is_healthy:
        if diagnosis.severity is None:
            return "no verdict without a healthy window"
        if diagnosis.lacks_data:
            return no_straggler_words(diagnosis)
        return "the window is healthy" if diagnosis.ranks > 1 or diagnosis.reference else "a single rank"
    return dissent(diagnosis) or sources_words(diagnosis) or "no conflicting evidence"


def _step_time(diagnosis: Diagnosis) -> Number:
    note = "no baseline to compare with"
    if diagnosis.change is not None:
        note = f"{format.percent_change(diagnosis.change)} vs healthy"
        if diagnosis.is_reference:
            note = "the run's healthy window"
    return Number("Step time", format.duration(diagnosis.step_time.mean_ns), note)


def _imbalance(diagnosis: Diagnosis) -> Number:
    title, imbalance = "Exposed imbalance", diagnosis.exposed_imbalance
    if imbalance is None:
        return Number(
            title, format.ABSENT, "needs shares" if diagnosis.shares is None else "needs all ranks' rows"
        )
    if diagnosis.ranks == 1:
        return Number(title, format.ABSENT, "needs a second rank")
    lost = format.duration(imbalance * diagnosis.step_time.mean_ns)
    return Number(title, format.severity(imbalance), f"{lost} of each step, of all ranks and stages together")
