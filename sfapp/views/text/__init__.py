"""Diagnoses, comparisons and findings in sentences. Plain text, never markup."""

from sfapp.views.selection import suspect_and_peer
from sfapp.views.text.chips import Chip, Term, chips, culprit_words
from sfapp.views.text.compare import (
    ComparisonWords,
    LabelChange,
    comparison,
    leader_words,
    limit_sentence,
    over_limit,
    side_names,
)
from sfapp.views.text.evidence import (
    EVIDENCE_MEANING,
    EVIDENCE_TITLES,
    EvidenceWords,
    agreement,
    agreement_words,
    dissent,
    evidence_lines,
)
from sfapp.views.text.explanations import against_recorder, changes, why
from sfapp.views.text.findings import attention_by_chance, attention_count, effect_cell
from sfapp.views.text.frontiers import frontier_difference
from sfapp.views.text.key_numbers import Number
from sfapp.views.text.limitations import unknown
from sfapp.views.text.live import STALE_S, RollingWords, counters, rolling_words, silences, standing
from sfapp.views.text.narrative import delta_sentence, misread_sentence
from sfapp.views.text.pins import pinned, pinned_within, seen, signed
from sfapp.views.text.plot_help import plot_help, plot_title
from sfapp.views.text.standstill import (
    standstill_action,
    standstill_details,
    standstill_sentence,
    standstill_title,
)
from sfapp.views.text.stragglers import (
    CAUSE_KINDS,
    COLLECTIVE_VERDICTS,
    NATURES,
    agreement_sentences,
    cause_words,
    findings_notes,
    stragglers_headline,
)
from sfapp.views.text.verdict import (
    VerdictText,
    extent,
    headline_of,
    summary,
    thinned_rows,
    verdict,
)
from sfapp.views.text.what_if import WhatIfText, fix_place, what_if_sentence, what_if_text

__all__ = [
    "CAUSE_KINDS",
    "COLLECTIVE_VERDICTS",
    "EVIDENCE_MEANING",
    "EVIDENCE_TITLES",
    "NATURES",
    "STALE_S",
    "Chip",
    "ComparisonWords",
    "EvidenceWords",
    "LabelChange",
    "Number",
    "RollingWords",
    "Term",
    "VerdictText",
    "WhatIfText",
    "against_recorder",
    "agreement",
    "agreement_sentences",
    "agreement_words",
    "attention_by_chance",
    "attention_count",
    "cause_words",
    "changes",
    "chips",
    "comparison",
    "counters",
    "culprit_words",
    "delta_sentence",
    "dissent",
    "effect_cell",
    "evidence_lines",
    "extent",
    "findings_notes",
    "fix_place",
    "frontier_difference",
    "headline_of",
    "leader_words",
    "limit_sentence",
    "misread_sentence",
    "over_limit",
    "pinned",
    "pinned_within",
    "plot_help",
    "plot_title",
    "rolling_words",
    "seen",
    "side_names",
    "signed",
    "silences",
    "standing",
    "standstill_action",
    "standstill_details",
    "standstill_sentence",
    "standstill_title",
    "stragglers_headline",
    "summary",
    "suspect_and_peer",
    "thinned_rows",
    "unknown",
    "verdict",
    "what_if_sentence",
    "what_if_text",
    "why",
]
