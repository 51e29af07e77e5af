"""Evidence of a problem: independent sources, counted once each, and the stretches in which it occurred."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sfapp.model import Diagnosis
from sfapp.model.problems import Problem
from sfapp.operators import Agreement
from sfapp.views import format
from sfapp.views.text.evidence import evidence_lines, one_source_words
from sfapp.views.text.host_evidence import explanation_sentences
from sfapp.views.text.onsets import estimate_words
from sfapp.views.text.problems import NOT_ENDED

_MARKS = {True: "✓", False: "✗", None: "–"}

_TITLES = {
    "this window's durations": "Stage durations",
    "the run's other windows": "Other windows of the run",
    "device events": "Device events",
}
"""Titles of the sources of a verdict's checks."""


@dataclass(frozen=True, slots=True)
class ProblemSource:
    """One independent source.

    Attributes:
        title: what it is. text: what it shows, or why it shows nothing.
        agrees: None where it shows nothing.
    """

    title: str
    text: str
    agrees: bool | None

    @property
    def mark(self) -> str:
        """``✓``, ``✗`` or ``–``."""
        return _MARKS[self.agrees]


def problem_sources(
    problem: Problem, diagnosis: Diagnosis | None, agreement: Agreement | None = None
) -> tuple[ProblemSource, ...]:
    """Return the evidence of a problem. Checks of one matrix are one source, however many they are.

    Args:
        diagnosis: of its latest window; None where that cannot be read or is about another problem.
        agreement: of that verdict with the findings in operators; None where these were not examined.
    """
    if problem.kind == "missing":
        return (_missing_source(problem),)
    if problem.kind == "standstill":
        text = "the aggregator received no finished step for longer than the limit"
        return (ProblemSource("Heartbeats", text, True),)
    windows = format.counted(len(problem.windows), "window")
    found = [] if diagnosis is None else _of_verdict(diagnosis)
    shown = next((one for one in found if one.title == "Stage durations"), None)
    others = [one for one in found if one is not shown]
    durations = ProblemSource(
        "Stage durations",
        f"{windows} {'has' if len(problem.windows) == 1 else 'have'} it"
        + (f"; {shown.text}" if shown else ""),
        shown is None or shown.agrees is not False,
    )
    return (durations, *others, *_host(diagnosis), _operators(agreement))


def _host(diagnosis: Diagnosis | None) -> tuple[ProblemSource, ...]:
    """Return what the late rank's host recorded; it agrees if a cause explains the delay."""
    found = None if diagnosis is None else diagnosis.aim_explanation
    if found is None:
        return (ProblemSource("Host evidence", "none recorded", None),)
    agrees = True if found.causes else None
    return (ProblemSource("Host evidence", " ".join(explanation_sentences(found)), agrees),)


def sources_summary(sources: tuple[ProblemSource, ...]) -> str:
    """Return ``2 of 3 independent sources agree``."""
    telling = [one for one in sources if one.agrees is not None]
    agree = sum(one.agrees is True for one in telling)
    if len(telling) == 1:
        return one_source_words(agree == 1)
    return f"{agree} of {len(telling)} independent sources agree"


def _of_verdict(diagnosis: Diagnosis) -> list[ProblemSource]:
    """Return the sources of a verdict's checks, with what the checks of each show."""
    unused = "frontier_share" if diagnosis.frontier == "carry_over" else "carry_over_share"
    texts: dict[str, list[str]] = {}
    agrees: dict[str, bool] = {}
    for line in evidence_lines(diagnosis):
        if line.agrees is None or line.name == unused:
            continue
        texts.setdefault(line.source, []).append(f"{line.title}: {line.text}")
        agrees[line.source] = agrees.get(line.source, True) and line.agrees
    return [
        ProblemSource(_TITLES.get(source, source), "; ".join(found), agrees[source])
        for source, found in texts.items()
    ]


def _operators(agreement: Agreement | None) -> ProblemSource:
    if agreement is None:
        return ProblemSource("Operator events", "not examined yet; see Operators and capture", None)
    if "from_stages" in agreement.reasons:
        return ProblemSource("Operator events", "no operator trace of its latest window", None)
    if agreement.kind == "agree":
        return ProblemSource("Operator events", "the first cause is in the same place", True)
    if agreement.kind in ("differ", "kair_only"):
        return ProblemSource("Operator events", "the first cause is in another place", False)
    return ProblemSource("Operator events", "no operator explains it", None)


def _missing_source(problem: Problem) -> ProblemSource:
    if not problem.ranks:
        return ProblemSource("Manifest of the window", "its gather did not complete", True)
    missing = format.counted(len(problem.ranks), "rank")
    text = f"{missing} of {format.count(problem.world)} expected wrote no rows"
    return ProblemSource("Manifest of the window", text, True)


def episode_rows(problem: Problem, now: datetime | None = None) -> list[dict[str, Any]]:
    """Return one row per stretch of windows with the problem, the latest first; ``now`` as in
    ``problem_text``."""
    lasting = NOT_ENDED if problem.is_stale(now or datetime.now(UTC)) else "ongoing"
    return [
        {
            "first_window": one.first_window,
            "windows": _windows(one.first_window, one.last_window),
            "ranks": format.ranges(one.ranks, 6) if one.ranks else "all",
            "began": estimate_words(one.began).removeprefix("at "),
            "began_step": one.began.low,
            "ended": lasting if one.ended is None else estimate_words(one.ended).removeprefix("at "),
            "effect": one.effect,
            "effect_text": format.percent(one.effect, 1),
        }
        for one in reversed(problem.episodes)
    ]


def _windows(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"
