"""The verdict card as an HTML fragment for notebooks; every text in it is escaped."""

from __future__ import annotations

from sfapp.views.html_text import html_text
from sfapp.views.text import EvidenceWords, VerdictText

NOT_TYPESET = 'class="mathjax_ignore tex2jax_ignore"'
"""Attribute of elements in which MathJax 3 and 2 look for no mathematics: notebooks typeset shown texts, and
mathematics can hide words and make links."""

_EDGE = {"alarm": "#c62828", "warn": "#b45f06", "quiet": "#2e7d32", "unknown": "#757575"}


def markup(verdict: VerdictText) -> str:
    """Return the card: headline, explanation, labels, numbers, evidence, reasons, limitations."""
    edge = _EDGE[verdict.tone]
    rows = [
        ("evidence", " ".join(map(_mark, verdict.evidence))),
        ("why", html_text(" ".join(verdict.why))),
        ("limitations", html_text(" ".join(verdict.unknown))),
    ]
    numbers = " · ".join(
        f"{html_text(number.title.lower())} <b>{html_text(number.value)}</b> {html_text(number.note)}"
        for number in verdict.numbers
    )
    chips = " ".join(
        f'<span title="{html_text(chip.meaning)}" style="border:1px solid;border-radius:9px;padding:0 7px">'
        f"{html_text(chip.text)}</span>"
        for chip in verdict.chips
    )
    grounds = "".join(
        f'<div style="margin-top:4px"><b>{title}</b> {content}</div>' for title, content in rows if content
    )
    return (
        f"<div {NOT_TYPESET} "
        f'style="border-left:4px solid {edge};padding:4px 12px;line-height:1.5;max-width:72em">'
        f'<div style="opacity:.7">{html_text(verdict.kicker)}</div>'
        f'<div style="font-size:1.4em"><b>{html_text(verdict.headline)}</b> {html_text(verdict.place)}</div>'
        f"<div>{html_text(' '.join((*verdict.explanation, *verdict.reasons)))} "
        f"{html_text(verdict.action)}</div>"
        f"<div>{chips}</div><div>{numbers}</div>{grounds}</div>"
    )


def _mark(line: EvidenceWords) -> str:
    meaning, shown = html_text(f"{line.text}. {line.meaning}"), html_text(f"{line.mark} {line.title}")
    return f'<span title="{meaning}" style="margin-right:10px">{shown}</span>'
