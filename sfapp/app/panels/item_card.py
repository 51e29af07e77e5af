"""One piece of evidence in an incident: what it is, what it shows, and where it stands among the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.panels.item_evidence import ComparisonEvidence, Evidence, MissingEvidence, ViewEvidence
from sfapp.app.panels.note_card import NoteCard
from sfapp.app.panels.note_target import looked_at
from sfapp.app.panels.plot_card import FigureCard, draw
from sfapp.app.theme import box, chips, label_text, link, with_keys
from sfapp.model.incidents import Item, Note, notes_on
from sfapp.model.view import NOTES, ViewState, WindowKey, parse_query
from sfapp.service.incidents import IncidentService
from sfapp.views import figures, format, text
from sfapp.views.address import window_page


@dataclass(frozen=True, slots=True)
class ItemActions:
    """What can be done with an item: move it by so many places, take it out."""

    move: Callable[[str, int], Any]
    remove: Callable[[str], Any]


class ItemCard:
    """Built inside the current container; empty of evidence until ``fill``."""

    def __init__(
        self,
        incident_service: IncidentService,
        toolbar: AnnotationToolbar,
        item: Item,
        moves: ItemActions,
        *,
        dark: bool,
    ) -> None:
        self._dark = dark
        self._evidence: Evidence | None = None
        self._figure: FigureCard | None = None
        self._notes: Sequence[Note] = ()
        self._note: NoteCard | None = None
        self.item = item
        with box("card item", "li").mark("item") as self.element:
            # The script moves whatever carries this, with Shift and an arrow, while it has the focus.
            self.element.props["data-movable"] = True
            self.element.props["tabindex"] = 0
            with box("item-head"):
                self._number = label_text("", "span", "muted")
                with box("grow"):
                    self._head()
                self._buttons(moves)
            self._body = box("item-body")
            if item.note is not None:
                with self._body:
                    self._note = NoteCard(incident_service, toolbar, item.note, _note_place)

    @property
    def awaits_evidence(self) -> bool:
        """Whether what it shows has to be looked up."""
        return self._note is None and self._evidence is None

    @property
    def is_edited(self) -> bool:
        """Whether somebody is typing in it."""
        return self._note is not None and self._note.is_edited

    def show(self, item: Item, number: int, notes: Sequence[Note], dark: bool) -> None:
        """The item as it stands now, at a place, in a theme.

        Args:
            notes: all that the incident collects: plots mark those pinned to them.
        """
        self.item = item
        self._number.text = f"{number}."
        self.element.props["aria-label"] = f"evidence {number}"
        here = _on_its_window(item, notes)
        looks_other = (here, dark) != (self._notes, self._dark)
        self._notes, self._dark = here, dark
        if item.note is not None and self._note is not None:
            numbers = [note.id for note in here]
            self._note.show(item.note, numbers.index(item.note.id) + 1 if item.note.id in numbers else None)
        elif looks_other:
            self._draw()

    def fill(self, evidence: Evidence) -> None:
        """Show what was looked up."""
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
                label_text(f"Not here any more: {evidence.why}", "p", "gone").mark("gone")
            elif isinstance(evidence, ComparisonEvidence):
                label_text(evidence.between, "p", "muted")
                label_text(evidence.said, "p", "headline")
            else:
                self._show_window(evidence)

    def _show_window(self, looked: ViewEvidence) -> None:
        if looked.told:
            label_text(" ".join(looked.told), "p", "muted")
        if self.item.kind == "plot":
            self._figure = FigureCard(self._drawn(looked))
            return
        diagnosis, window = looked.judged.diagnosis, looked.judged.window
        said = text.verdict(diagnosis, window.ranks)
        with box(f"small-verdict tone-{said.tone}"):
            label_text(said.kicker, "div", "eyebrow")
            label_text(said.sentence, "p", "headline")
            label_text(" ".join(said.explanation), "p")
            chips([(_chip(chip), chip.tone, chip.meaning) for chip in said.chips])

    def _draw(self) -> None:
        if self._figure is not None and isinstance(self._evidence, ViewEvidence):
            self._figure.redraw(self._drawn(self._evidence))

    def _drawn(self, looked: ViewEvidence) -> figures.Figure:
        """The plot as it was looked at, with the incident's notes that are pinned to it."""
        assert self.item.plot is not None
        view = looked.view
        plot = draw(self.item.plot, looked.judged, looked.findings, view, dark=self._dark)
        return figures.with_notes(plot, self.item.plot, self._notes, step=view.step, dark=self._dark)

    def _head(self) -> None:
        item = self.item
        if item.window is not None:
            view, _ = parse_query(item.view)
            what = _named(item.window)
            if item.kind == "plot":
                what = f"“{text.plot_title(item.plot or '')}” of {what}"
            link(what, view.href(window_page(item.window))).mark("item-link")
            seen = text.seen(view)
            moved = len(view.gates.changed())
            parts = [seen, f"{format.counted(moved, 'gate')} moved" if moved else ""]
            label_text(" · ".join(part for part in parts if part), "span", "muted")
        elif item.kind == "comparison":
            link("comparison", f"/compare?{item.view}").mark("item-link")
        else:
            label_text("note", "span", "muted")

    def _buttons(self, moves: ItemActions) -> None:
        for shown, name, by in (("↑", "up", -1), ("↓", "down", 1)):
            button = with_keys(label_text(shown, "button", "key"), label=f"move {name}").mark(f"move-{name}")
            button.props["data-move"] = name
            button.props["title"] = f"move {name} (Shift and an arrow, with this in focus)"
            button.on("click", lambda by=by: moves.move(self.item.id, by))
        out = with_keys(label_text("remove", "button", "plain"), label="take it out of the incident")
        out.mark("remove-item").on("click", lambda: moves.remove(self.item.id))


def _note_place(note: Note) -> None:
    """The way to what a note is pinned to."""
    if note.pin is not None:
        view = looked_at(note.pin, ViewState(tab=NOTES))
        link(text.pinned(note.pin), view.href(window_page(note.pin.window))).mark("note-link")


def _on_its_window(item: Item, notes: Sequence[Note]) -> Sequence[Note]:
    """The notes pinned to the window that an item is about."""
    pin = item.note.pin if item.note is not None else None
    window = item.window if pin is None else pin.window
    return notes_on(window, notes)


def _chip(chip: text.Chip) -> str:
    return " · ".join(part.text for part in chip.terms)


def _named(key: WindowKey) -> str:
    return f"{format.clip(key.run_id)} / {key.window}"
