"""The verdict card (likely cause, cost, confidence, next action) and the card with its evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from sfapp.app.definitions import defined
from sfapp.app.theme import box, label_text, term
from sfapp.model.gates import GATE_BY_NAME
from sfapp.views.text import Chip, EvidenceWords, VerdictText

SENTENCES = 2
"""Maximum number of sentences of the explanation on the verdict card; the others are with the evidence."""

REASONS = 2
"""Maximum number of sentences on why that rank; the others are with the evidence, too."""

_MARKS = {True: "agrees", False: "disagrees", None: "absent"}


class RebuiltParts:
    """Parts of a card, each built again only if its content changed.

    A dragged gate changes the reasons many times a second and the rest rarely. Building an element takes
    0.1 ms, and building the whole card takes ten times as long as a judgement.
    """

    def __init__(self) -> None:
        self._shown: dict[str, object] = {}

    def differs(self, part: str, content: object) -> bool:
        """Return whether a part must be built again for its content."""
        if part in self._shown and self._shown[part] == content:
            return False
        self._shown[part] = content
        return True


class VerdictCard:
    """The card above the tabs: likely cause, cost, certainty and next action."""

    def __init__(self) -> None:
        self._parts = RebuiltParts()
        self._card = box("card verdict", "section")
        self._card.props["aria-live"] = "polite"
        self._card.props["aria-label"] = "Verdict"
        self._card.mark("verdict")
        with self._card:
            self._summary = box("summary")
            self._facts = box("facts")
            self._chips = box("chips", "ul")

    def show(self, verdict: VerdictText, *, as_line: bool) -> None:
        """Show a verdict.

        Args:
            as_line: whether to show one line: the headline and the labels, which follow every gate.
        """
        if self._parts.differs("look", (verdict.tone, as_line)):
            look = "as-line" if as_line else ""
            self._card.classes(replace=f"card verdict tone-{verdict.tone} {look}".strip())
        headline = (verdict.kicker, verdict.headline, verdict.place)
        summary = (*headline, verdict.explanation, verdict.reasons, verdict.action, verdict.stays)
        if self._parts.differs("summary", summary):
            _rebuild(self._summary, lambda: _summary(verdict))
        if self._parts.differs("facts", verdict.numbers):
            _rebuild(self._facts, lambda: _facts(verdict))
        if self._parts.differs("chips", verdict.chips):
            _rebuild(self._chips, lambda: _chips(verdict.chips))


class EvidenceCard:
    """The card below the plots: the evidence for and against the verdict, and what would change it."""

    def __init__(self) -> None:
        self._parts = RebuiltParts()
        with box("card grounds-card", "section") as self._card:
            label_text("Evidence", "h2")
            with box("grounds", "dl"):
                label_text("Checks", "dt", "eyebrow")
                self._marks = box("marks", "dd")
                self._effect = (label_text("Effect", "dt", "eyebrow"), label_text("", "dd"))
                self._reasons = (label_text("Why that rank", "dt", "eyebrow"), label_text("", "dd"))
                label_text("Why", "dt", "eyebrow")
                self._why = label_text("", "dd")
                label_text("Changes at", "dt", "eyebrow")
                self._changes = label_text("", "dd")
                self._unknown = (label_text("Limitations", "dt", "eyebrow"), label_text("", "dd"))

    def show(self, verdict: VerdictText) -> None:
        """Show the evidence of a verdict."""
        if self._parts.differs("marks", verdict.evidence):
            _rebuild(self._marks, lambda: _marks(verdict.evidence))
        self._why.text = " ".join(verdict.why)
        _show_line(self._effect, verdict.explanation[SENTENCES:])
        _show_line(self._reasons, verdict.reasons[REASONS:])
        _show_line(self._unknown, verdict.unknown)

    def show_changes(self, changes: Mapping[str, str]) -> None:
        """Show what would change the verdict: the nearest change of each gate."""
        self._changes.text = " · ".join(_change(gate, change) for gate, change in changes.items())

    def set_visible(self, visible: bool) -> None:
        """Show or hide the card."""
        self._card.set_visibility(visible)


def _show_line(line: tuple[TextElement, TextElement], sentences: Sequence[str]) -> None:
    """Show a title and its sentences, or nothing if there are none."""
    line[1].text = " ".join(sentences)
    for element in line:
        element.set_visibility(bool(sentences))


def _rebuild(container: ui.element, build: Callable[[], None]) -> None:
    container.clear()
    with container:
        build()


def _summary(verdict: VerdictText) -> None:
    label_text(verdict.kicker, "div", "eyebrow")
    with box("headline", "h1") as headline:
        headline.props["title"] = verdict.stays
        label_text(verdict.headline, "span")
        if verdict.place:
            label_text(f" {verdict.place}", "span", "rest")
    with box("why"):
        label_text(" ".join(verdict.explanation[:SENTENCES]), "p")
        if verdict.reasons:
            label_text(" ".join(verdict.reasons[:REASONS]), "p").mark("reasons")
        if verdict.action:
            label_text(verdict.action, "p", "action")
        if verdict.stays:
            label_text(verdict.stays, "p", "muted").mark("headline-stays")


def _chips(chips: Sequence[Chip]) -> None:
    for chip in chips:
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
            defined(number.title, "div", "eyebrow")
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
