"""The verdict card: where to aim a profiler, on what evidence, why, and what would change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfapp.app.theme import box, text
from sfapp.views.words import EvidenceWords, Verdict

_MARKS = {True: "agrees", False: "disagrees", None: "absent"}


class VerdictCard:
    """The card; ``show`` rebuilds it only where it would say something else."""

    def __init__(self) -> None:
        self._shown: tuple[Verdict, Mapping[str, str]] | None = None
        self._card = box("card verdict", "section")
        self._card.props["aria-live"] = "polite"
        self._card.props["aria-label"] = "verdict"
        self._card.mark("verdict")

    def show(self, verdict: Verdict, changes: Mapping[str, str]) -> None:
        """Say this verdict.

        Args:
            changes: for each gate, how far its nearest change is.
        """
        if self._shown == (verdict, changes):
            return
        self._shown = (verdict, changes)
        self._card.clear()
        self._card.classes(replace=f"card verdict tone-{verdict.tone}")
        with self._card:
            with box("said"):
                _said(verdict)
            with box("facts"):
                _facts(verdict)
            with box("grounds", "dl"):
                _grounds(verdict, changes)


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


def _grounds(verdict: Verdict, changes: Mapping[str, str]) -> None:
    text("evidence", "dt", "eyebrow")
    with box("marks", "dd"):
        _marks(verdict.evidence)
    text("why", "dt", "eyebrow")
    text(" ".join(verdict.why), "dd")
    text("changes at", "dt", "eyebrow")
    text(" · ".join(changes.values()), "dd")
    if verdict.unknown:
        text("not known", "dt", "eyebrow")
        text(" ".join(verdict.unknown), "dd")


def _marks(lines: Sequence[EvidenceWords]) -> None:
    for line in lines:
        with box(f"mark {_MARKS[line.agrees]}", "span") as element:
            element.props["title"] = f"{line.text}. {line.meaning}"
            text(line.mark, "b")
            text(line.title, "span")
