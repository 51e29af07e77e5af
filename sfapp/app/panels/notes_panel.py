"""Notes on a window and buttons that add its evidence to incidents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui

from sfapp.app.notices import notices
from sfapp.app.panels.add_to_incident import IncidentPicker
from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.panels.note_card import NoteCard
from sfapp.app.panels.note_cards import NoteCards
from sfapp.app.panels.note_form import NoteForm
from sfapp.app.panels.tables import titled
from sfapp.app.theme import box, empty, label_text, left_out, with_keys
from sfapp.incidents import IncidentEditor, IncidentState
from sfapp.model import Window
from sfapp.model.incidents import Incident, Note, Pin
from sfapp.model.view import ViewState, WindowKey
from sfapp.service.incidents import IncidentService
from sfapp.views import format, text

MOST_NOTES = 200
"""Newest notes that the page of a window shows, in the plots too: each costs some ms of the event loop, and
an import may hold any number."""


def shown_notes(state: IncidentState, key: WindowKey) -> tuple[Note, ...]:
    """Return the newest notes on a window, which its page shows; their positions are their numbers."""
    return state.notes_on(key)[-MOST_NOTES:]


class NotesPanel:
    """The notes of one open window page, the form for a new note and the dialog for incidents."""

    def __init__(
        self,
        incident_service: IncidentService,
        toolbar: AnnotationToolbar,
        key: WindowKey,
        window: Window,
        look: Callable[[], ViewState],
        go: Callable[[Pin], Any],
        headline: Callable[[], str],
    ) -> None:
        """Build the form and the dialog, which float over the page, inside the current container.

        Args:
            window: all ranks of the window.
            look: returns the current view.
            go: shows a note's pin.
            headline: returns the verdict's headline, the title offered for a new incident.
        """
        self._incident_service = incident_service
        self._toolbar = toolbar
        self._key = key
        self._look = look
        self._go = go
        self._headline = headline
        self._notes: Sequence[Note] = ()
        self._cards: NoteCards | None = None
        self._problem: ui.element
        self._form = NoteForm(toolbar, key, window, look)
        self._incident_picker = IncidentPicker(incident_service, toolbar)

    # --- parts placed by the page -----------------------------------------------------------------

    def buttons(self) -> None:
        """Build the buttons for the window."""
        note = with_keys(label_text("✎ Write note", "button", "plain"), "n", "Write a note on this window")
        note.mark("write-note").on("click", lambda: self._form.open())
        add = with_keys(
            label_text("+ Add to incident", "button", "plain"), "a", "Add this window to an incident"
        )
        add.mark("add-window").on("click", self.add_window)

    def plot_buttons(self, plot: str) -> None:
        """Build the buttons for one plot, in the head of its card."""
        title = text.plot_title(plot)
        note = with_keys(label_text("✎", "button", "info"), label=f"Write a note on {title}").mark(
            f"note-{plot}"
        )
        note.props["title"] = "Write a note on this plot"
        note.on("click", lambda: self._form.open(plot))
        add = with_keys(label_text("+", "button", "info"), label=f"Add {title} to an incident").mark(
            f"add-{plot}"
        )
        add.props["title"] = "Add this plot to an incident, with its current view"
        add.on("click", lambda: self.add_plot(plot))

    def notes_list(self) -> None:
        """Build the list of notes, for its own tab."""
        with titled("Notes on this window", "numbered as in the plots"):
            self._problem = box()
            with box("actions"):
                write = label_text("Write note", "button", "button").mark("write-note-here")
                write.on("click", lambda: self._form.open())
                self._toolbar.signature()
            self._cards = NoteCards(self._note_card)
            self._left_out = box()
        self._show_list()

    def show(self, notes: Sequence[Note]) -> None:
        """Show the notes on the window."""
        self._notes = notes
        self._show_list()

    def follow(self) -> None:
        """Follow a change of the view."""
        self._form.follow()

    # --- adding to incidents --------------------------------------------------------------------------

    def add_window(self) -> None:
        """Ask for the incident to add the window to, with its current view."""
        query = self._look().query

        def add(author: IncidentEditor, incident: Incident) -> Sequence[str]:
            return [author.add_window(incident, self._key, query)]

        self._incident_picker.ask(f"window {self._key.window}", add, self._title(), self._notes)

    def add_plot(self, plot: str) -> None:
        """Ask for the incident to add a plot to, with its current view."""
        query = self._look().query

        def add(author: IncidentEditor, incident: Incident) -> Sequence[str]:
            return [author.add_plot(incident, self._key, plot, query)]

        self._incident_picker.ask(f"the plot “{text.plot_title(plot)}”", add, self._title())

    def add_note(self, note: Note) -> None:
        """Ask for the incident to add a note to."""

        def add(author: IncidentEditor, incident: Incident) -> Sequence[str]:
            return [author.add_note(incident, note.id)]

        self._incident_picker.ask("this note", add, self._title())

    def _title(self) -> str:
        return f"{self._headline()}: {format.clip(self._key.run_id)} / {self._key.window}"

    # --- the list -------------------------------------------------------------------------------------

    def _show_list(self) -> None:
        """Show the notes, and how many are left out."""
        if self._cards is None:
            return
        self._problem.clear()
        if self._incident_service.problem:
            with self._problem:
                notices([self._incident_service.problem])
        number = len(self._incident_service.state.notes_on(self._key))
        self._left_out.clear()
        if number > len(self._notes):
            with self._left_out:
                left_out(len(self._notes), number, "notes")
        self._cards.show(self._notes, numbered=True)
        self._show_empty(self._cards)

    def _note_card(self, note: Note) -> NoteCard:
        return NoteCard(
            self._incident_service, self._toolbar, note, self._link_pin, add_to_incident=self.add_note
        )

    def _show_empty(self, cards: NoteCards) -> None:
        hints = [child for child in cards.element.default_slot.children if "no-notes" in child.classes]
        if bool(hints) == (not len(cards)):
            return
        for hint in hints:
            hint.delete()
        if not len(cards):
            with cards.element, box("no-notes"):
                empty(
                    "No notes yet",
                    "Press n, or ✎ on a plot. A note is pinned to the current step, rank and zoom, and "
                    "stored with the packets for everyone who opens them.",
                )

    def _link_pin(self, note: Note) -> None:
        """Build the button that shows a note's pin."""
        pin = note.pin
        if pin is not None:
            where = label_text(
                " · ".join(text.pinned_within(pin)) or "whole window", "button", "plain pinned"
            )
            where.mark("go-to-note").props["title"] = "Show it"
            where.on("click", lambda: self._go(pin))
