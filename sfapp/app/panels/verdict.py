"""The verdict card: where to aim a profiler, on what evidence, why, and what would change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfapp.app.theme import box, text
from sfapp.model.gates import GATE_BY_NAME
from sfapp.views.words import EvidenceWords, Verdict

_MARKS = {True: "agrees", False: "disagrees", None: "absent"}


class VerdictCard:
    """The card; ``show`` rebuilds it only where it would say something else."""

    def __init__(self) -> None:
        self._shown: Verdict | None = None
        self._changes = ""
        self._card = box("card verdict", "section")
        self._card.props["aria-live"] = "polite"
        self._card.props["aria-label"] = "verdict"
        self._card.mark("verdict")

    def show(self, verdict: Verdict) -> None:
        """Say this verdict."""
        if self._shown == verdict:
            return
        self._shown = verdict
        self._card.clear()
        self._card.classes(replace=f"card verdict tone-{verdict.tone}")
        with self._card:
            with box("said"):
                _said(verdict)
            with box("facts"):
                _facts(verdict)
            with box("grounds", "dl"):
                self._grounds(verdict)

    def show_changes(self, changes: Mapping[str, str]) -> None:
        """Say what would change the verdict: for each gate, how far its nearest change is."""
        self._changes = " · ".join(_told(gate, change) for gate, change in changes.items())
        self._changes_text.text = self._changes

    def _grounds(self, verdict: Verdict) -> None:
        text("evidence", "dt", "eyebrow")
        with box("marks", "dd"):
            _marks(verdict.evidence)
        text("why", "dt", "eyebrow")
        text(" ".join(verdict.why), "dd")
        text("changes at", "dt", "eyebrow")
        self._changes_text = text(self._changes, "dd")
        if verdict.unknown:
            text("not known", "dt", "eyebrow")
            text(" ".join(verdict.unknown), "dd")


def _said(verdict: Verdict) -> None:
    text(verdict.kicker, "div", "eyebrow")
    with box("headline", "h1"):
        text(verdict.headline, "span")
        if verdict.place:
            text(f" {verdict.place}", "span", "rest")
    with box("why"):
        text(" ".join(verdict.explanation), "p")
        if verdict.action:
            text(verdict.action, "p", "action")
    with box("chips", "ul"):
        for chip in verdict.chips:
            text(chip.text, "li", f"chip chip-{chip.tone}").props["title"] = chip.meaning


def _facts(verdict: Verdict) -> None:
    for number in verdict.numbers:
        with box("fact"):
            text(number.title, "div", "eyebrow")
            text(number.value, "div", "value")
            text(number.note, "div", "small")


def _told(gate: str, change: str) -> str:
    symbol = GATE_BY_NAME[gate].symbol
    return change if change.startswith(symbol) else f"{symbol}: {change}"


def _marks(lines: Sequence[EvidenceWords]) -> None:
    for line in lines:
        with box(f"mark {_MARKS[line.agrees]}", "span") as element:
            element.props["title"] = f"{line.text}. {line.meaning}"
            text(line.mark, "b")
            text(line.title, "span")
