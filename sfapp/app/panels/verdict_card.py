"""The verdict card: the likely cause, its evidence, the reasons and what would change the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nicegui import ui

from sfapp.app.theme import box, label_text, term
from sfapp.model.gates import GATE_BY_NAME
from sfapp.views.text import Chip, EvidenceWords, VerdictText

_MARKS = {True: "agrees", False: "disagrees", None: "absent"}


class VerdictCard:
    """The card; ``show`` rebuilds only the parts that changed.

    A dragged gate changes the reasons many times a second and the rest rarely. Building an element takes
    0.1 ms, and building the whole card ten times as long as a judgement.
    """

    def __init__(self) -> None:
        self._shown: dict[str, object] = {}
        self._card = box("card verdict", "section")
        self._card.props["aria-live"] = "polite"
        self._card.props["aria-label"] = "Verdict"
        self._card.mark("verdict")
        with self._card:
            self._summary = box("summary")
            self._facts = box("facts")
            with box("grounds", "dl"):
                label_text("Evidence", "dt", "eyebrow")
                self._marks = box("marks", "dd")
                label_text("Why", "dt", "eyebrow")
                self._why = label_text("", "dd")
                label_text("Changes at", "dt", "eyebrow")
                self._changes = label_text("", "dd")
                self._unknown = (label_text("Limitations", "dt", "eyebrow"), label_text("", "dd"))

    def show(self, verdict: VerdictText) -> None:
        """Show a verdict."""
        if self._differs("tone", verdict.tone):
            self._card.classes(replace=f"card verdict tone-{verdict.tone}")
        summary = (verdict.kicker, verdict.headline, verdict.place, verdict.explanation, verdict.action)
        if self._differs("summary", (*summary, verdict.chips)):
            _rebuild(self._summary, lambda: _summary(verdict))
        if self._differs("facts", verdict.numbers):
            _rebuild(self._facts, lambda: _facts(verdict))
        if self._differs("marks", verdict.evidence):
            _rebuild(self._marks, lambda: _marks(verdict.evidence))
        self._why.text = " ".join(verdict.why)
        title, unknown = self._unknown
        unknown.text = " ".join(verdict.unknown)
        for element in (title, unknown):
            element.set_visibility(bool(verdict.unknown))

    def show_changes(self, changes: Mapping[str, str]) -> None:
        """Show what would change the verdict: the nearest change of each gate."""
        self._changes.text = " · ".join(_change(gate, change) for gate, change in changes.items())

    def _differs(self, part: str, content: object) -> bool:
        """Return whether a part of the card must be rebuilt for its content."""
        if part in self._shown and self._shown[part] == content:
            return False
        self._shown[part] = content
        return True


def _rebuild(container: ui.element, build: Callable[[], None]) -> None:
    container.clear()
    with container:
        build()


def _summary(verdict: VerdictText) -> None:
    label_text(verdict.kicker, "div", "eyebrow")
    with box("headline", "h1"):
        label_text(verdict.headline, "span")
        if verdict.place:
            label_text(f" {verdict.place}", "span", "rest")
    with box("why"):
        label_text(" ".join(verdict.explanation), "p")
        if verdict.action:
            label_text(verdict.action, "p", "action")
    with box("chips", "ul"):
        for chip in verdict.chips:
            _chip(chip)


def _chip(chip: Chip) -> None:
    with box(f"chip chip-{chip.tone}", "li") as element:
        element.props["title"] = chip.meaning
        for place, part in enumerate(chip.terms):
            if place:
                label_text("·", "span")
            if part.kind:
                term(part.text, part.kind, part.name).mark("chip")
            else:
                label_text(part.text, "span")


def _facts(verdict: VerdictText) -> None:
    for number in verdict.numbers:
        with box("fact"):
            label_text(number.title, "div", "eyebrow")
            label_text(number.value, "div", "value")
            label_text(number.note, "div", "small")


def _change(gate: str, change: str) -> str:
    symbol = GATE_BY_NAME[gate].symbol
    return change if change.startswith(symbol) else f"{symbol}: {change}"


def _marks(lines: Sequence[EvidenceWords]) -> None:
    for line in lines:
        with box(f"mark {_MARKS[line.agrees]}", "span") as element:
            element.props["title"] = f"{line.text}. {line.meaning}"
            label_text(line.mark, "b")
            label_text(line.title, "span")
