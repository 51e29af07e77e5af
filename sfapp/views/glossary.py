"""Every gate, label, reason, kind of culprit, of evidence and of cause with its meaning, from the code's own
tables."""

from __future__ import annotations

from collections.abc import Mapping

from sfapp.model import CULPRITS, GATE_DOCS, LABELS, MODEL_FITS, REASONS, Gates
from sfapp.model.gates import MODEL_FIT_HELP
from sfapp.operators import AGREEMENT_REASONS
from sfapp.views.text.evidence import EVIDENCE_MEANING
from sfapp.views.text.stragglers import CAUSE_KINDS, COLLECTIVE_VERDICTS, NATURES, TERMS

Row = dict[str, str]


def glossary() -> list[Row]:
    """Rows with ``kind``, ``name``, ``symbol``, ``default`` and ``meaning``."""
    return [
        *gate_rows(),
        *_rows("label", LABELS),
        *_rows("reason", REASONS),
        *_rows("culprit", CULPRITS),
        *_rows("evidence", EVIDENCE_MEANING),
        *term_rows(),
        *_rows("cause", CAUSE_KINDS),
        *_rows("nature", NATURES),
        *_rows("collective", COLLECTIVE_VERDICTS),
        *_rows("agreement", AGREEMENT_REASONS),
    ]


def term_rows() -> list[Row]:
    """One row a word of the straggler views (kair.md)."""
    return [
        {"kind": "term", "name": name, "symbol": symbol, "default": "", "meaning": meaning}
        for name, (symbol, meaning) in TERMS.items()
    ]


def gate_rows() -> list[Row]:
    """One row a gate, with its default and range; the wait model's choices last."""
    defaults = Gates()
    rows = [
        {
            "kind": "gate",
            "name": doc.name,
            "symbol": doc.symbol,
            "default": f"{getattr(defaults, doc.name):g}",
            "meaning": doc.help if doc.paper else f"{doc.help} (beyond the paper)",
        }
        for doc in GATE_DOCS
    ]
    choices = " ".join(f"{name}: {MODEL_FIT_HELP[name]}" for name in MODEL_FITS)
    rows.append(
        {
            "kind": "gate",
            "name": "model_fit",
            "symbol": "W",
            "default": defaults.model_fit,
            "meaning": f"Whether the wait model holds. {choices}",
        }
    )
    return rows


def _rows(kind: str, table: Mapping[str, str]) -> list[Row]:
    return [
        {"kind": kind, "name": name, "symbol": "", "default": "", "meaning": meaning}
        for name, meaning in table.items()
    ]
