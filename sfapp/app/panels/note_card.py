"""One note: its author, pin, text and buttons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from sfapp.app.one_at_a_time import one_at_a_time
from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.panels.revisions import conflicting_edits, history
from sfapp.app.theme import box, label_text, with_keys
from sfapp.errors import IncidentNotFoundError
from sfapp.incidents import MAX_TEXT, IncidentEditor
from sfapp.model.incidents import Note
from sfapp.service.incidents import IncidentService
from sfapp.views import text


class NoteCard:
    """A note, built inside the current container. Unsaved text is kept when other users edit the note."""

    def __init__(
        self,
        incident_service: IncidentService,
        toolbar: AnnotationToolbar,
        note: Note,
        link_pin: Callable[[Note], None],
        add_to_incident: Callable[[Note], Any] | None = None,
    ) -> None:
        """
        Args:
            link_pin: builds the link to the note's pin, in the head of the card.
            add_to_incident: adds the note to an incident; None on the page of an incident, where a note is
                taken out of the incident instead of being deleted.
        """
        self._incident_service = incident_service
        self._toolbar = toolbar
        self._link_pin = link_pin
        self._add_to_incident = add_to_incident
        self._note = note
        self._number: int | None = None
        self._edited: Note | None = None
        self._shows_history = False
        self.element = box("note", "article").mark("note")
        with self.element:
            self._head = box("note-head")
            self._content = box()
            self._editor = box()
            self._history_box = box()
        self._show()

    @property
    def is_edited(self) -> bool:
        """Whether the note is being edited."""
        return self._edited is not None

    def show(self, note: Note, number: int | None) -> None:
        """Show the note, with its number in the plots of its window."""
        if (note, number) != (self._note, self._number):
            self._note, self._number = note, number
            self._show()

    def _show(self) -> None:
        self._show_head()
        self._content.clear()
        with self._content:
            label_text(self._note.text, "p", "note-text")
            conflicting_edits(
                self._note.overwritten,
                take=lambda lost: self._write(lost.value, "Other version used"),
                keep=lambda _: self._write(self._note.text, "Current version kept"),
            )
        self._show_history()

    def _show_head(self) -> None:
        self._head.clear()
        with self._head:
            if self._number is not None:
                number = label_text(str(self._number), "span", "note-number")
                number.props["title"] = "Its number in the plots"
            self._link_pin(self._note)
            signed = text.signed(self._note.written)
            if self._note.changed is not None:
                signed += f"; last edited {text.signed(self._note.changed)}"
            label_text(signed, "span", "muted signed")
            box("grow")
            label_text("Edit", "button", "plain").mark("edit-note").on("click", self._edit)
            button = label_text("History", "button", "plain").mark("note-history")
            button.props["aria-expanded"] = "true" if self._shows_history else "false"
            button.on("click", self._toggle_history)
            add_to_incident = self._add_to_incident
            if add_to_incident is not None:
                add = label_text("Add to incident", "button", "plain").mark("add-note-to-incident")
                add.on("click", lambda: add_to_incident(self._note))
                label_text("Remove", "button", "plain").mark("remove-note").on("click", self._remove)

    def _show_history(self) -> None:
        self._history_box.clear()
        if self._shows_history:
            with self._history_box:
                history(self._incident_service.state, self._note.id)

    def _toggle_history(self) -> None:
        self._shows_history = not self._shows_history
        self._show_head()
        self._show_history()

    # --- writing --------------------------------------------------------------------------------------

    def _edit(self) -> None:
        """Open the text for editing, based on the text shown now so that others' edits are kept."""
        if self._edited is not None:
            return
        self._edited = self._note
        with self._editor:
            field = (
                ui.textarea(value=self._note.text)
                .props(f"outlined autogrow autofocus maxlength={MAX_TEXT} aria-label='Text of the note'")
                .mark("note-words")
            )
            field.on("keydown.ctrl.enter", lambda: self._save(field.value or ""))
            with box("actions"):
                save = with_keys(label_text("Save", "button", "button"), label="Save the note").mark(
                    "save-note"
                )
                save.on("click", lambda: self._save(field.value or ""))
                label_text("Cancel", "button", "plain").on("click", self._close)
                self._toolbar.signature()
        self._content.set_visibility(False)

    @one_at_a_time
    async def _save(self, content: str) -> None:
        seen = self._edited
        if seen is None or not content.strip():
            return
        if content == seen.text or await self._toolbar.write(
            lambda author: [self._edit_or_write(author, seen, content)], "Note changed"
        ):
            self._close()

    def _edit_or_write(self, author: IncidentEditor, seen: Note, content: str) -> str:
        """Edit the note, or write a new one if it was removed meanwhile."""
        try:
            self._incident_service.log.state().note(seen.id)
        except IncidentNotFoundError:
            return author.write_note(content, seen.pin)
        return author.edit_note(seen, content)

    def _close(self) -> None:
        self._edited = None
        self._editor.clear()
        self._content.set_visibility(True)

    async def _write(self, content: str, message: str) -> None:
        """Write a text, based on the present note."""
        note = self._note
        await self._toolbar.write(lambda author: [author.edit_note(note, content)], message)

    async def _remove(self) -> None:
        note = self._note
        await self._toolbar.write(lambda author: [author.remove_note(note)], "Note removed")
