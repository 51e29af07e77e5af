"""One piece of evidence in an incident: what it is, what it shows, and where it stands among the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sfapp.app.address import window_page
from sfapp.app.ledger import Ledger
from sfapp.app.panels.evidence import Compared, Evidence, Gone, Looked
from sfapp.app.panels.figure import FigureCard
from sfapp.app.panels.note_card import NoteCard
from sfapp.app.panels.pen import Pen
from sfapp.app.panels.pinned import looked_at
from sfapp.app.theme import box, chips, link, text, with_keys
from sfapp.model.incidents import Item, Note
from sfapp.model.view import NOTES, ViewState, WindowKey, parse_query
from sfapp.views import figures, format, words


@dataclass(frozen=True, slots=True)
class Moves:
    """What can be done with an item: move it by so many places, take it out."""

    move: Callable[[str, int], Any]
    remove: Callable[[str], Any]


class ItemCard:
    """Built inside the current container; empty of evidence until ``fill``."""

    def __init__(self, ledger: Ledger, pen: Pen, item: Item, moves: Moves, *, dark: bool) -> None:
        self._ledger = ledger
        self._dark = dark
        self._evidence: Evidence | None = None
        self._figure: FigureCard | None = None
        self._marked: tuple[figures.Numbered, ...] = ()
        self._note: NoteCard | None = None
        self.item = item
        with box("card item", "li").mark("item") as self.element:
            # The script moves whatever carries this, with Shift and an arrow, while it has the focus.
            self.element.props["data-movable"] = True
            self.element.props["tabindex"] = 0
            with box("item-head"):
                self._number = text("", "span", "note-number")
                with box("grow"):
                    self._head()
                self._buttons(moves)
            self._body = box("item-body")
            if item.note is not None:
                with self._body:
                    self._note = NoteCard(ledger, pen, item.note, _note_place)

    @property
    def awaits_evidence(self) -> bool:
        """Whether what it shows has to be looked up."""
        return self._note is None and self._evidence is None

    @property
    def is_edited(self) -> bool:
        """Whether somebody is typing in it."""
        return self._note is not None and self._note.is_edited

    def show(self, item: Item, number: int, dark: bool) -> None:
        """The item as it stands now, at a place, in a theme."""
        self.item = item
        self._number.text = str(number)
        self.element.props["aria-label"] = f"evidence {number}"
        if item.note is not None and self._note is not None:
            self._note.show(item.note)
        if dark != self._dark:
            self._dark = dark
            self._draw()

    def fill(self, evidence: Evidence) -> None:
        """Show what was looked up."""
        before, self._evidence = self._evidence, evidence
        if isinstance(before, Looked) and isinstance(evidence, Looked):
            if before.judged.diagnosis == evidence.judged.diagnosis and before.view == evidence.view:
                return
        elif before == evidence:
            return
        self._body.clear()
        self._figure = None
        with self._body:
            if isinstance(evidence, Gone):
                text(f"Not here any more: {evidence.why}", "p", "gone").mark("gone")
            elif isinstance(evidence, Compared):
                text(evidence.between, "p", "muted")
                text(evidence.said, "p", "headline")
            else:
                self._show_window(evidence)

    def follow_notes(self) -> None:
        """Notes came or went: the plot marks those that are pinned to it."""
        if isinstance(self._evidence, Looked) and self._marks(self._evidence) != self._marked:
            self._draw()

    def _show_window(self, looked: Looked) -> None:
        if looked.told:
            text(" ".join(looked.told), "p", "muted")
        if self.item.kind == "plot":
            self._figure = FigureCard(self._drawn(looked))
            return
        diagnosis, window = looked.judged.diagnosis, looked.judged.window
        said = words.verdict(diagnosis, window.ranks)
        with box(f"small-verdict tone-{said.tone}"):
            text(said.kicker, "div", "eyebrow")
            text(" ".join(part for part in (said.headline, said.place) if part), "p", "headline")
            text(" ".join(said.explanation), "p")
            chips([(_chip(chip), chip.tone, chip.meaning) for chip in said.chips])

    def _draw(self) -> None:
        if self._figure is not None and isinstance(self._evidence, Looked):
            self._figure.redraw(self._drawn(self._evidence))

    def _drawn(self, looked: Looked) -> figures.Figure:
        """The plot as it was looked at, with the notes that are pinned to it by now."""
        assert self.item.plot is not None
        view, judged = looked.view, looked.judged
        plot = figures.window_plot(self.item.plot, judged.measures, judged.diagnosis, view, dark=self._dark)
        self._marked = self._marks(looked)
        notes = self._ledger.book.notes_on(looked.judged.source.key)
        return figures.with_notes(plot, self.item.plot, notes, step=view.step, dark=self._dark)

    def _marks(self, looked: Looked) -> tuple[figures.Numbered, ...]:
        """The notes that have a place in the plot; none in a window's card."""
        if self.item.plot is None:
            return ()
        notes = self._ledger.book.notes_on(looked.judged.source.key)
        return figures.notes_in(self.item.plot, notes, looked.view.step)

    def _head(self) -> None:
        item = self.item
        if item.window is not None:
            view, _ = parse_query(item.view)
            what = _named(item.window)
            if item.kind == "plot":
                what = f"the plot {format.clip(item.plot or '').replace('_', ' ')} of {what}"
            link(what, view.href(window_page(item.window))).mark("item-link")
            seen = words.seen(view)
            moved = len(view.gates.changed())
            parts = [seen, f"{format.counted(moved, 'gate')} moved" if moved else ""]
            text(" · ".join(part for part in parts if part), "span", "muted")
        elif item.kind == "comparison":
            link("comparison", f"/compare?{item.view}").mark("item-link")
        else:
            text("note", "span", "muted")

    def _buttons(self, moves: Moves) -> None:
        for shown, name, by in (("↑", "up", -1), ("↓", "down", 1)):
            button = with_keys(text(shown, "button", "key"), label=f"move {name}").mark(f"move-{name}")
            button.props["data-move"] = name
            button.props["title"] = f"move {name} (Shift and an arrow, with this in focus)"
            button.on("click", lambda by=by: moves.move(self.item.id, by))
        out = with_keys(text("remove", "button", "plain"), label="take it out of the incident")
        out.mark("remove-item").on("click", lambda: moves.remove(self.item.id))


def _note_place(note: Note) -> None:
    """Where a note is pinned, as a link to it."""
    pin = note.pin
    if pin is None:
        return
    view = looked_at(pin, ViewState(tab=NOTES))
    link(words.pinned(pin), view.href(window_page(pin.window))).mark("note-link")


def _chip(chip: words.Chip) -> str:
    return " · ".join(part.text for part in chip.terms)


def _named(key: WindowKey) -> str:
    return f"{format.clip(key.run_id)} / {key.window}"
