"""Every gate, label, reason, kind of culprit, check and kind of cause with its meaning, from the code's
tables."""

from __future__ import annotations

from collections.abc import Mapping

from sfapp.model import CULPRITS, GATE_DOCS, LABELS, MODEL_FITS, REASONS, Gates
from sfapp.model.gates import MODEL_FIT_HELP
from sfapp.operators import AGREEMENT_REASONS
from sfapp.views import format
from sfapp.views.text.advice import STAGE_MEANING
from sfapp.views.text.evidence import EVIDENCE_MEANING, EVIDENCE_TITLES
from sfapp.views.text.stragglers import CAUSE_KINDS, COLLECTIVE_VERDICTS, NATURES, TERMS

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
        *(_row("evidence", name, EVIDENCE_TITLES[name], text) for name, text in EVIDENCE_MEANING.items()),
        *term_rows(),
        *_rows("cause", CAUSE_KINDS),
        *_rows("nature", NATURES),
        *_rows("collective", COLLECTIVE_VERDICTS),
        *_rows("agreement", AGREEMENT_REASONS),
    ]


def term_rows() -> list[Row]:
    """Return one row per term of the straggler views (kair.md)."""
    return [
        _row("term", name, name.replace("_", " "), meaning, symbol=symbol)
        for name, (symbol, meaning) in TERMS.items()
    ]


def gate_rows() -> list[Row]:
    """Return one row per gate, with its default and range; the wait model's choices last."""
    defaults = Gates()
    rows = [
        _row(
            "gate",
            doc.name,
            doc.title,
            doc.help if doc.paper else f"{doc.help} (beyond the paper)",
            symbol=doc.symbol,
            default=f"{getattr(defaults, doc.name):g}",
        )
        for doc in GATE_DOCS
    ]
    choices = " ".join(f"{name}: {MODEL_FIT_HELP[name]}" for name in MODEL_FITS)
    meaning = f"Whether the wait model holds. {choices}"
    return [*rows, _row("gate", "model_fit", "wait model", meaning, symbol="W", default=defaults.model_fit)]


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
