"""What people add to a window from its page: notes pinned to it, and what of it goes into an incident."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui

from sfapp.app.panels.add_to_incident import IncidentPicker
from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.panels.note_card import NoteCard
from sfapp.app.panels.note_form import NoteForm
from sfapp.app.panels.tables import titled
from sfapp.app.theme import box, empty, label_text, notices, with_keys
from sfapp.incidents import IncidentEditor
from sfapp.model import Window
from sfapp.model.incidents import Incident, Note, Pin
from sfapp.model.view import ViewState, WindowKey
from sfapp.service.incidents import IncidentService
from sfapp.views import format, text


class NotesPanel:
    """The notes of one open window page, the form for another, the dialog that collects into incidents."""

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
        """Build what floats over the page, inside the current container.

        Args:
            window: all ranks of the window.
            look: what is looked at now.
            go: looks at what a note is pinned to.
            headline: what the verdict says now, in few words: the title offered for a new incident.
        """
        self._incident_service = incident_service
        self._toolbar = toolbar
        self._key = key
        self._look = look
        self._go = go
        self._headline = headline
        self._notes: Sequence[Note] = ()
        self._cards: dict[str, NoteCard] = {}
        self._list: ui.element | None = None
        self._form = NoteForm(toolbar, key, window, look)
        self._incident_picker = IncidentPicker(incident_service, toolbar)

    # --- what the page puts on itself -----------------------------------------------------------------

    def buttons(self) -> None:
        """For the window as a whole."""
        note = with_keys(label_text("✎ note", "button", "plain"), "n", "write a note on this window")
        note.mark("write-note").on("click", lambda: self._form.open())
        add = with_keys(label_text("+ incident", "button", "plain"), "a", "add this window to an incident")
        add.mark("add-window").on("click", self.collect_window)

    def plot_buttons(self, plot: str) -> None:
        """For one plot, in the head of its card."""
        named = text.plot_title(plot)
        note = with_keys(label_text("✎", "button", "info"), label=f"write a note on {named}").mark(
            f"note-{plot}"
        )
        note.props["title"] = "write a note on this plot"
        note.on("click", lambda: self._form.open(plot))
        add = with_keys(label_text("+", "button", "info"), label=f"add {named} to an incident").mark(
            f"add-{plot}"
        )
        add.props["title"] = "add this plot to an incident, as it is shown"
        add.on("click", lambda: self.collect_plot(plot))

    def notes_list(self) -> None:
        """The notes, for the tab of their own; kept up to date by ``show``."""
        with titled("Notes on this window", "pinned to what they are about; numbered as in the plots"):
            if self._incident_service.problem:
                notices([self._incident_service.problem])
            with box("actions"):
                begin = label_text("write a note", "button", "button").mark("write-note-here")
                begin.on("click", lambda: self._form.open())
                self._toolbar.signature()
            self._list = box("notes-list")
        self._cards = {}
        self._show_list()

    def show(self, notes: Sequence[Note]) -> None:
        """The notes on the window as they stand now."""
        self._notes = notes
        self._show_list()

    def follow(self) -> None:
        """Something else is looked at."""
        self._form.follow()

    # --- collecting -----------------------------------------------------------------------------------

    def collect_window(self) -> None:
        """Ask into which incident the window goes, as it is looked at."""
        query = self._look().query

        def add(author: IncidentEditor, incident: Incident) -> Sequence[str]:
            return [author.add_window(incident, self._key, query)]

        self._incident_picker.ask(f"window {self._key.window}", add, self._title(), self._notes)

    def collect_plot(self, plot: str) -> None:
        """Ask into which incident a plot goes, as it is shown."""
        query = self._look().query

        def add(author: IncidentEditor, incident: Incident) -> Sequence[str]:
            return [author.add_plot(incident, self._key, plot, query)]

        self._incident_picker.ask(f"the plot “{text.plot_title(plot)}”", add, self._title())

    def collect_note(self, note: Note) -> None:
        """Ask into which incident a note goes."""

        def add(author: IncidentEditor, incident: Incident) -> Sequence[str]:
            return [author.add_note(incident, note.id)]

        self._incident_picker.ask("this note", add, self._title())

    def _title(self) -> str:
        return f"{self._headline()}: {format.clip(self._key.run_id)} / {self._key.window}"

    # --- the list -------------------------------------------------------------------------------------

    def _show_list(self) -> None:
        """A card a note, in order; what is being typed in one stays, even where its note is gone."""
        if self._list is None:
            return
        standing = {note.id for note in self._notes}
        for gone in [name for name in self._cards if name not in standing]:
            if not self._cards[gone].is_edited:
                self._cards.pop(gone).element.delete()
        for place, note in enumerate(self._notes):
            if note.id not in self._cards:
                with self._list:
                    self._cards[note.id] = NoteCard(
                        self._incident_service, self._toolbar, note, self._pinned, collect=self.collect_note
                    )
            card = self._cards[note.id]
            card.show(note, place + 1)
            if self._list.default_slot.children[place] is not card.element:
                card.element.move(self._list, place)
        self._show_empty()

    def _show_empty(self) -> None:
        assert self._list is not None
        hints = [child for child in self._list.default_slot.children if "no-notes" in child.classes]
        if bool(hints) == (not self._cards):
            return
        for hint in hints:
            hint.delete()
        if not self._cards:
            with self._list, box("no-notes"):
                empty(
                    "No notes yet",
                    "Press n, or ✎ on a plot: a note is pinned to the step, the rank or the part of the plot "
                    "looked at, and stays with the packets. Everybody who opens them sees it.",
                )

    def _pinned(self, note: Note) -> None:
        """The way to what a note is pinned to."""
        pin = note.pin
        if pin is not None:
            where = label_text(
                " · ".join(text.pinned_within(pin)) or "the whole window", "button", "plain pinned"
            )
            where.mark("go-to-note").props["title"] = "look at it"
            where.on("click", lambda: self._go(pin))
