"""One item of an incident: its evidence, its position and its buttons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.panels.item_evidence import ComparisonEvidence, ItemEvidence, MissingEvidence, ViewEvidence
from sfapp.app.panels.note_card import NoteCard
from sfapp.app.panels.note_target import view_of_pin
from sfapp.app.panels.plot_card import FigureCard, draw
from sfapp.app.theme import box, chips, label_text, link, with_keys
from sfapp.model.incidents import Item, Note, notes_on
from sfapp.model.view import NOTES, ViewState, WindowKey, parse_query
from sfapp.service.incidents import IncidentService
from sfapp.views import figures, format, text
from sfapp.views.address import window_page


@dataclass(frozen=True, slots=True)
class ItemActions:
    """Actions on an item: move it by a number of places, or remove it from the incident."""

    move: Callable[[str, int], Any]
    remove: Callable[[str], Any]


class ItemCard:
    """An item, built inside the current container; its evidence is empty until ``fill``."""

    def __init__(
        self,
        incident_service: IncidentService,
        toolbar: AnnotationToolbar,
        item: Item,
        actions: ItemActions,
        *,
        dark: bool,
    ) -> None:
        self._dark = dark
        self._evidence: ItemEvidence | None = None
        self._figure: FigureCard | None = None
        self._notes: Sequence[Note] = ()
        self._note: NoteCard | None = None
        self.item = item
        with box("card item", "li").mark("item") as self.element:
            # ``client.js`` moves the focused element with this attribute on Shift and an arrow.
            self.element.props["data-movable"] = True
            self.element.props["tabindex"] = 0
            with box("item-head"):
                self._number = label_text("", "span", "muted")
                with box("grow"):
                    self._head()
                self._buttons(actions)
            self._body = box("item-body")
            if item.note is not None:
                with self._body:
                    self._note = NoteCard(incident_service, toolbar, item.note, _note_link)

    @property
    def awaits_evidence(self) -> bool:
        """Whether its evidence has yet to be loaded."""
        return self._note is None and self._evidence is None

    @property
    def is_edited(self) -> bool:
        """Whether its note is being edited."""
        return self._note is not None and self._note.is_edited

    def show(self, item: Item, number: int, notes: Sequence[Note], dark: bool) -> None:
        """Show the item at its position and in a theme.

        Args:
            notes: all notes of the incident; plots show those pinned to them.
        """
        self.item = item
        self._number.text = f"{number}."
        self.element.props["aria-label"] = f"Item {number}"
        pinned = _notes_on_window(item, notes)
        must_draw = (pinned, dark) != (self._notes, self._dark)
        self._notes, self._dark = pinned, dark
        if item.note is not None and self._note is not None:
            numbers = [note.id for note in pinned]
            self._note.show(item.note, numbers.index(item.note.id) + 1 if item.note.id in numbers else None)
        elif must_draw:
            self._draw()

    def fill(self, evidence: ItemEvidence) -> None:
        """Show the evidence, unless it is already shown."""
        before, self._evidence = self._evidence, evidence
        if isinstance(before, ViewEvidence) and isinstance(evidence, ViewEvidence):
            same = before.judged.diagnosis == evidence.judged.diagnosis and before.view == evidence.view
            if same and before.findings is evidence.findings:
                return
        elif before == evidence:
            return
        self._body.clear()
        self._figure = None
        with self._body:
            if isinstance(evidence, MissingEvidence):
                label_text(f"No longer available: {evidence.reason}", "p", "gone").mark("gone")
            elif isinstance(evidence, ComparisonEvidence):
                label_text(evidence.sides, "p", "muted")
                label_text(evidence.summary, "p", "headline")
            else:
                self._show_window(evidence)

    def _show_window(self, evidence: ViewEvidence) -> None:
        if evidence.messages:
            label_text(" ".join(evidence.messages), "p", "muted")
        if self.item.kind == "plot":
            self._figure = FigureCard(self._figure_of(evidence))
            return
        diagnosis, window = evidence.judged.diagnosis, evidence.judged.window
        verdict = text.verdict(diagnosis, window.ranks)
        with box(f"small-verdict tone-{verdict.tone}"):
            label_text(verdict.kicker, "div", "eyebrow")
            label_text(verdict.sentence, "p", "headline")
            label_text(" ".join((*verdict.explanation, *verdict.reasons)), "p")
            chips([(_chip(chip), chip.tone, chip.meaning) for chip in verdict.chips])

    def _draw(self) -> None:
        if self._figure is not None and isinstance(self._evidence, ViewEvidence):
            self._figure.redraw(self._figure_of(self._evidence))

    def _figure_of(self, evidence: ViewEvidence) -> figures.Figure:
        """Return the plot under the item's view, with the incident's notes that are pinned to it."""
        assert self.item.plot is not None
        view = evidence.view
        plot = draw(self.item.plot, evidence.judged, evidence.findings, view, dark=self._dark)
        return figures.with_notes(plot, self.item.plot, self._notes, step=view.step, dark=self._dark)

    def _head(self) -> None:
        item = self.item
        if item.window is not None:
            view, _ = parse_query(item.view)
            title = _window_name(item.window)
            if item.kind == "plot":
                title = f"“{text.plot_title(item.plot or '')}” of {title}"
            link(title, view.href(window_page(item.window))).mark("item-link")
            seen = text.seen(view)
            moved = len(view.gates.changed())
            parts = [seen, f"{format.counted(moved, 'threshold')} changed" if moved else ""]
            label_text(" · ".join(part for part in parts if part), "span", "muted")
        elif item.kind == "comparison":
            link("Comparison", f"/compare?{item.view}").mark("item-link")
        else:
            label_text("Note", "span", "muted")

    def _buttons(self, actions: ItemActions) -> None:
        for shown, name, by in (("↑", "up", -1), ("↓", "down", 1)):
            button = with_keys(label_text(shown, "button", "key"), label=f"Move {name}").mark(f"move-{name}")
            button.props["data-move"] = name
            button.props["title"] = f"Move {name} (Shift and an arrow while the item is selected)"
            button.on("click", lambda by=by: actions.move(self.item.id, by))
        button = with_keys(label_text("Remove", "button", "plain"), label="Remove from the incident")
        button.mark("remove-item").on("click", lambda: actions.remove(self.item.id))


def _note_link(note: Note) -> None:
    """Build the link to the pinned subject of a note."""
    if note.pin is not None:
        view = view_of_pin(note.pin, ViewState(tab=NOTES))
        link(text.pinned(note.pin), view.href(window_page(note.pin.window))).mark("note-link")


def _notes_on_window(item: Item, notes: Sequence[Note]) -> Sequence[Note]:
    """Return the notes pinned to the window of an item."""
    pin = item.note.pin if item.note is not None else None
    window = item.window if pin is None else pin.window
    return notes_on(window, notes)


def _chip(chip: text.Chip) -> str:
    return " · ".join(part.text for part in chip.terms)


def _window_name(key: WindowKey) -> str:
    return f"{format.clip(key.run_id)} / {key.window}"
