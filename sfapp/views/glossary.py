"""The glossary, from the code's tables: gates, labels, reasons, kinds of culprit, findings, checks and
causes."""

from __future__ import annotations

from collections.abc import Mapping

from sfapp.model import CHOICE_DOCS, CULPRITS, GATE_DOCS, LABELS, REASONS, Gates
from sfapp.model.findings import FINDINGS
from sfapp.operators import AGREEMENT_REASONS
from sfapp.views import format
from sfapp.views.text.advice import STAGE_MEANING
from sfapp.views.text.evidence import EVIDENCE_MEANING, EVIDENCE_TITLES
from sfapp.views.text.gate_values import gate_value
from sfapp.views.text.stragglers import CAUSE_KINDS, COLLECTIVE_VERDICTS, NATURES, TERMS
from sfapp.views.text.terms import ACCOUNTING_TERMS

Row = dict[str, str]

FIRST_GATES = ("tau_c", "gamma_a", "gamma_g")
"""Gates that every surface with controls shows first: τC, γA and γG."""


def glossary() -> list[Row]:
    """Return rows with ``kind``, ``name``, ``words``, ``symbol``, ``default`` and ``meaning``.

    ``name`` is the machine name, ``words`` are the words on screen.
    """
    return [
        *(_row("stage", name, format.short_stage(name), text) for name, text in STAGE_MEANING.items()),
        *gate_rows(),
        *(_row("label", name, spec.words, spec.glossary_text) for name, spec in LABELS.items()),
        *(_row("reason", name, spec.words, spec.explanation) for name, spec in REASONS.items()),
        *(_row("culprit", name, spec.words, spec.explanation) for name, spec in CULPRITS.items()),
        *(_row("finding", name, name, meaning) for name, meaning in FINDINGS.items()),
        *(_row("evidence", name, EVIDENCE_TITLES[name], text) for name, text in EVIDENCE_MEANING.items()),
        *term_rows(),
        *_rows("cause", CAUSE_KINDS),
        *_rows("nature", NATURES),
        *_rows("collective", COLLECTIVE_VERDICTS),
        *_rows("agreement", AGREEMENT_REASONS),
    ]


def term_rows() -> list[Row]:
    """Return one row per term of the accounting, and of the straggler views (kair.md)."""
    return [
        *(_row("term", name, words, meaning) for name, (words, meaning) in ACCOUNTING_TERMS.items()),
        *(
            _row("term", name, name.replace("_", " "), meaning, symbol=symbol)
            for name, (symbol, meaning) in TERMS.items()
        ),
    ]


def gate_rows() -> list[Row]:
    """Return one row per gate, with its default; gates that are a choice come last."""
    defaults = Gates()
    rows = [
        _row(
            "gate",
            doc.name,
            doc.title,
            doc.help if doc.paper else f"{doc.help} (beyond the paper)",
            symbol=doc.symbol,
            default=gate_value(doc, getattr(defaults, doc.name)),
        )
        for doc in GATE_DOCS
    ]
    return rows + [
        _row(
            "gate",
            doc.name,
            doc.title,
            " ".join([doc.question, *(f"{name}: {text}" for name, text in doc.help.items())]),
            symbol=doc.symbol,
            default=getattr(defaults, doc.name),
        )
        for doc in CHOICE_DOCS
    ]


def _rows(kind: str, table: Mapping[str, str]) -> list[Row]:
    return [_row(kind, name, name.replace("_", " "), meaning) for name, meaning in table.items()]


def _row(kind: str, name: str, words: str, meaning: str, *, symbol: str = "", default: str = "") -> Row:
    return {
        "kind": kind,
        "name": name,
        "words": words,
        "symbol": symbol,
        "default": default,
        "meaning": meaning,
    }
