"""The verdict card: the likely cause, the evidence for it and the limitations (accounting.md §13)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sfapp.model import Diagnosis, RankTable, Window
from sfapp.views import format
from sfapp.views.text.chips import Chip, chips
from sfapp.views.text.evidence import EvidenceWords, agreement_words, dissent, evidence_lines
from sfapp.views.text.explanations import against_recorder, why
from sfapp.views.text.findings import jitter_words
from sfapp.views.text.host_evidence import reason_sentences
from sfapp.views.text.key_numbers import Number, key_numbers
from sfapp.views.text.limitations import unknown
from sfapp.views.text.long_steps import long_steps
from sfapp.views.text.moved_gates import headline_stays
from sfapp.views.text.narrative import action, explanation
from sfapp.views.text.parallel_layout import verdict_pattern
from sfapp.views.text.pipeline import is_compared, pipeline_headline
from sfapp.views.text.problems import missing_title

Tone = Literal["alarm", "warn", "quiet", "unknown"]


@dataclass(frozen=True, slots=True)
class VerdictText:
    """The verdict card in words; plain text throughout.

    Attributes:
        tone: colour role of the card.
        kicker: the line above the headline.
        headline, place: ``callbacks on rank 3`` and ``(node-0, local 3), every step``.
        explanation: what happened.
        reasons: why that rank: causes on its host, what late ranks share, their pattern in the parallel
            layout; empty if nothing was recorded.
        action: what to do next; empty in healthy windows.
        stays: that moved thresholds cannot change the headline; empty where none is moved.
        chips: labels with their explanation.
        numbers: step time, exposed imbalance, evidence.
        evidence: one line per check.
        evidence_summary: ``2 of 2 sources agree``.
        dissent: checks that point to another stage.
        why: the gates that decided.
        unknown: limitations.
        recorder: differences from the recorder's labels; empty if the recorder stored none.
    """

    tone: Tone
    kicker: str
    headline: str
    place: str
    explanation: tuple[str, ...]
    reasons: tuple[str, ...]
    action: str
    stays: str
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
        """Headline and place in one text, for titles and lists."""
        return _sentence(self.headline, self.place)


def verdict(diagnosis: Diagnosis, ranks: RankTable | None = None, missing_rows: str = "") -> VerdictText:
    """Return the card of one window.

    Args:
        ranks: the window's rank table, for the node-local position of the suspect rank.
        missing_rows: what is missing of the window, if rows were thinned: the first of its limitations.
    """
    headline, place = headline_of(diagnosis, ranks)
    return VerdictText(
        tone=_tone(diagnosis),
        kicker=_kicker(diagnosis),
        headline=headline,
        place=place,
        explanation=explanation(diagnosis),
        reasons=verdict_reasons(diagnosis, ranks),
        action=action(diagnosis),
        stays=headline_stays(diagnosis),
        chips=chips(diagnosis),
        numbers=key_numbers(diagnosis),
        evidence=evidence_lines(diagnosis),
        evidence_summary=agreement_words(diagnosis),
        dissent=dissent(diagnosis),
        why=why(diagnosis),
        unknown=(*filter(None, (missing_rows,)), *unknown(diagnosis)),
        recorder=against_recorder(diagnosis),
    )


def verdict_reasons(diagnosis: Diagnosis, ranks: RankTable | None = None) -> tuple[str, ...]:
    """Return why that rank: causes on its host, what late ranks share, and their pattern in the parallel
    layout; empty in healthy windows and if nothing was recorded.

    Args:
        ranks: the window's rank table, for its last pipeline stage.
    """
    if diagnosis.is_healthy:
        return ()
    return (*reason_sentences(diagnosis), *verdict_pattern(diagnosis, ranks))


def summary(diagnosis: Diagnosis, ranks: RankTable | None = None) -> str:
    """Return the verdict as one sentence, for titles, lists and screen readers."""
    return _sentence(*headline_of(diagnosis, ranks))


def _sentence(headline: str, place: str) -> str:
    """Return ``data on rank 3 (node-0), every step`` or ``data on all ranks equally, step 7``."""
    link = " " if not place or place.startswith("(") else ", "
    return f"{headline}{link}{place}".strip().removesuffix(",")


def extent(window: Window) -> str:
    """Return ``40 steps 400–439 · 24 ranks on 2 nodes``, with the number of ranks whose rows are kept."""
    steps = window.step_N.tolist()
    text = f"{format.counted(len(steps), 'step')} {format.ranges(steps)} · "
    text += f"{format.counted(window.rank_count, 'rank')} on {format.counted(window.node_count, 'node')}"
    return text if window.reduced is None else f"{text}, rows of {format.count(len(window.ranks))}"


def extent_of_verdict(diagnosis: Diagnosis) -> str:
    """Return ``extent`` of the window that a verdict is on, of which rows are missing now."""
    steps = f"{format.counted(diagnosis.steps, 'step')} {diagnosis.first_step}–{diagnosis.last_step}"
    ranks = f"{format.counted(diagnosis.ranks, 'rank')} on {format.counted(diagnosis.nodes, 'node')}"
    return f"{steps} · {ranks}"


def thinned_rows(at: datetime, steps: int, stored: Diagnosis) -> str:
    """Return what is missing of a window, of which only some steps were kept, and the verdict on all."""
    return (
        f"Rows were thinned on {at:%Y-%m-%d}: {steps} of {format.counted(stored.steps, 'step')} are kept, "
        f"and only these are shown here. The verdict on all steps: {summary(stored)}."
    )


def headline_of(diagnosis: Diagnosis, ranks: RankTable | None = None) -> tuple[str, str]:
    """Return headline and place: ``callbacks on rank 3`` and ``(node-0, local 3), every step``; ranks that
    are missing come first."""
    headline, place = _finding_of(diagnosis, ranks)
    if not diagnosis.lacks_data:
        return headline, place
    missing = missing_title(diagnosis.missing_ranks)
    if not diagnosis.is_healthy:
        return f"{missing}; {headline}", place
    is_judged = diagnosis.shares is not None and diagnosis.severity is not None
    others = format.counted(diagnosis.ranks, "other rank" if diagnosis.missing_ranks else "rank")
    return missing, f"({'no straggler found among' if is_judged else 'no verdict on'} {others})"


def _finding_of(diagnosis: Diagnosis, ranks: RankTable | None) -> tuple[str, str]:
    """Return headline and place of the finding among the ranks that reported."""
    aim = diagnosis.aim
    if diagnosis.shares is None or aim is None:
        return "Too little time for a verdict", ""
    stage = format.short_stage(aim.stage)
    if diagnosis.severity is None:  # a reduced window: neither imbalance nor growth is known
        return "No verdict without a healthy window", f"(largest share: {stage})"
    if diagnosis.is_healthy and diagnosis.ranks == 1 and diagnosis.reference is None:
        share = format.percent(diagnosis.shares.get(aim.stage))
        return "Single rank: no comparison possible", f"(largest share: {stage}, {share})"
    if diagnosis.is_healthy and diagnosis.mixes_roles:
        compared = diagnosis.resolution is not None and diagnosis.resolution.rank
        if not compared and diagnosis.pipeline is not None and is_compared(diagnosis.pipeline):
            return pipeline_headline(diagnosis.pipeline)
        within = (
            "Healthy: no straggler found within a role"
            if compared
            else "Roles differ: ranks are not compared"
        )
        return within, f"(largest share: {stage})"
    if diagnosis.is_healthy:
        return "Healthy: no straggler found", jitter_words(diagnosis) or f"(largest share: {stage})"
    when = format.steps(aim.steps)
    long = long_steps(diagnosis)
    if aim.rank_reason == "all_ranks" and aim.steps == "all" and long is not None:
        when = long.which
    if aim.rank is not None:
        return f"{stage} on rank {aim.rank}", f"({_place(aim.rank, aim.hostname, ranks)}), {when}"
    if aim.rank_reason == "rotating":
        turn = "every step" if aim.steps == "all" else "each time"
        return f"{stage}, on a different rank {turn}", "" if aim.steps == "all" else when
    if aim.rank_reason == "all_ranks":
        return f"{stage} on all ranks equally", when
    if aim.rank_reason == "several_ranks":
        return f"{stage} on several ranks", when
    if aim.rank_reason == "single_rank":
        return stage, "(single rank: no comparison possible)"
    return f"{stage}, no single rank", when


def _place(rank: int, hostname: str | None, ranks: RankTable | None) -> str:
    host = format.clip(hostname or "unknown host")
    if ranks is None or rank not in ranks.rank:
        return host
    return f"{host}, local {ranks.local_rank[ranks.rank.index(rank)]}"


def _tone(diagnosis: Diagnosis) -> Tone:
    if diagnosis.lacks_data:
        return "alarm"
    if diagnosis.severity is None:
        return "unknown"
    if diagnosis.is_healthy:
        return "quiet"
    return "alarm" if diagnosis.severity >= 0.2 else "warn"


def _kicker(diagnosis: Diagnosis) -> str:
    if diagnosis.lacks_data:
        return "Data missing" if diagnosis.is_healthy else "Data missing; likely cause among the other ranks"
    if diagnosis.severity is None:
        return "No verdict"
    return "No action needed" if diagnosis.is_healthy else "Likely cause"
