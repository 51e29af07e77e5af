"""A list of notes, each on a card; a card that is being edited stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sfapp.app.panels.note_card import NoteCard
from sfapp.app.theme import box
from sfapp.model.incidents import Note


class NoteCards:
    """Cards of notes, built inside the current container; they are added, moved and removed, but not rebuilt.

    Attributes:
        element: what holds the cards.
    """

    def __init__(self, build: Callable[[Note], NoteCard]) -> None:
        """
        Args:
            build: builds the card of a note inside the current container.
        """
        self._build = build
        self._cards: dict[str, NoteCard] = {}
        self.element = box("notes-list")

    def __len__(self) -> int:
        return len(self._cards)

    def show(self, notes: Sequence[Note], *, numbered: bool = False) -> None:
        """Show one card per note, in order; a card being edited stays even if its note was removed."""
        current = {note.id for note in notes}
        for removed in [name for name in self._cards if name not in current]:
            if not self._cards[removed].is_edited:
                self._cards.pop(removed).element.delete()
        for place, note in enumerate(notes):
            if note.id not in self._cards:
                with self.element:
                    self._cards[note.id] = self._build(note)
            card = self._cards[note.id]
            card.show(note, place + 1 if numbered else None)
            if self.element.default_slot.children[place] is not card.element:
                card.element.move(self.element, place)
