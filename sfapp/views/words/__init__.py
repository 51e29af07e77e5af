"""A diagnosis in sentences. Plain text, never markup."""

from sfapp.views.words.compare import (
    ComparisonWords,
    LabelChange,
    comparison,
    leader_words,
    limit_sentence,
    over_limit,
    side_names,
)
from sfapp.views.words.evidence import (
    EVIDENCE_MEANING,
    EVIDENCE_TITLES,
    EvidenceWords,
    agreement,
    agreement_words,
    dissent,
    evidence_lines,
)
from sfapp.views.words.hints import HINTS, PLOT_TITLES, STAGE_MEANING
from sfapp.views.words.pins import pinned, pinned_within, plot_title, seen, signed
from sfapp.views.words.unknown import unknown
from sfapp.views.words.verdict import (
    Chip,
    Number,
    Term,
    Verdict,
    chips,
    culprit_words,
    delta_sentence,
    extent,
    headline_of,
    misread_sentence,
    summary,
    verdict,
)
from sfapp.views.words.why import against_recorder, changes, why

__all__ = [
    "EVIDENCE_MEANING",
    "EVIDENCE_TITLES",
    "HINTS",
    "PLOT_TITLES",
    "STAGE_MEANING",
    "Chip",
    "ComparisonWords",
    "EvidenceWords",
    "LabelChange",
    "Number",
    "Term",
    "Verdict",
    "against_recorder",
    "agreement",
    "agreement_words",
    "changes",
    "chips",
    "comparison",
    "culprit_words",
    "delta_sentence",
    "dissent",
    "evidence_lines",
    "extent",
    "headline_of",
    "leader_words",
    "limit_sentence",
    "misread_sentence",
    "over_limit",
    "pinned",
    "pinned_within",
    "plot_title",
    "seen",
    "side_names",
    "signed",
    "summary",
    "unknown",
    "verdict",
    "why",
]
