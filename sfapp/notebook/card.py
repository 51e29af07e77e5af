"""The verdict card as an HTML fragment for notebooks; every text in it is escaped."""

from __future__ import annotations

import html

from sfapp.views.text import EvidenceWords, VerdictText

_EDGE = {"alarm": "#c62828", "warn": "#b45f06", "quiet": "#2e7d32", "unknown": "#757575"}


def markup(verdict: VerdictText) -> str:
    """The card: headline, explanation, labels, numbers, evidence, why, what is not known."""
    edge = _EDGE[verdict.tone]
    rows = [
        ("evidence", " ".join(map(_mark, verdict.evidence))),
        ("why", escaped(" ".join(verdict.why))),
        ("not known", escaped(" ".join(verdict.unknown))),
    ]
    numbers = " · ".join(
        f"{escaped(number.title.lower())} <b>{escaped(number.value)}</b> {escaped(number.note)}"
        for number in verdict.numbers
    )
    chips = " ".join(
        f'<span title="{escaped(chip.meaning)}" style="border:1px solid;border-radius:9px;padding:0 7px">'
        f"{escaped(chip.text)}</span>"
        for chip in verdict.chips
    )
    grounds = "".join(
        f'<div style="margin-top:4px"><b>{title}</b> {content}</div>' for title, content in rows if content
    )
    return (
        f'<div style="border-left:4px solid {edge};padding:4px 12px;line-height:1.5;max-width:72em">'
        f'<div style="opacity:.7">{escaped(verdict.kicker)}</div>'
        f'<div style="font-size:1.4em"><b>{escaped(verdict.headline)}</b> {escaped(verdict.place)}</div>'
        f"<div>{escaped(' '.join(verdict.explanation))} {escaped(verdict.action)}</div>"
        f"<div>{chips}</div><div>{numbers}</div>{grounds}</div>"
    )


def _mark(line: EvidenceWords) -> str:
    meaning = escaped(f"{line.text}. {line.meaning}")
    return (
        f'<span title="{meaning}" style="margin-right:10px">{escaped(line.mark)} {escaped(line.title)}</span>'
    )


def escaped(text: str) -> str:
    """Escape a text for HTML."""
    # Notebooks may typeset text between dollar signs as mathematics.
    return html.escape(text).replace("$", "&#36;")
