"""One note: who wrote it, where it is pinned, its words, and everything that can be done to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.panels.revisions import at_the_same_time, history
from sfapp.app.theme import box, label_text, with_keys
from sfapp.errors import IncidentNotFoundError
from sfapp.incidents import MAX_TEXT, IncidentEditor
from sfapp.model.incidents import Note
from sfapp.service.incidents import IncidentService
from sfapp.views import text


class NoteCard:
    """Built inside the current container. ``show`` brings it up to date; what is being typed in it stays."""

    def __init__(
        self,
        incident_service: IncidentService,
        toolbar: AnnotationToolbar,
        note: Note,
        place: Callable[[Note], None],
        collect: Callable[[Note], Any] | None = None,
    ) -> None:
        """
        Args:
            place: builds, at the head of the card, what says where a note is pinned.
            collect: puts it into an incident. None where it is in one: there it is taken out, not removed.
        """
        self._incident_service = incident_service
        self._toolbar = toolbar
        self._place = place
        self._collect = collect
        self._note = note
        self._number: int | None = None
        self._edited: Note | None = None
        self._with_history = False
        self.element = box("note", "article").mark("note")
        with self.element:
            self._head = box("note-head")
            self._said = box()
            self._editor = box()
            self._past = box()
        self._show()

    @property
    def is_edited(self) -> bool:
        """Whether somebody is typing in it."""
        return self._edited is not None

    def show(self, note: Note, number: int | None) -> None:
        """The note as it stands now, with its number in the plots of its window."""
        if (note, number) != (self._note, self._number):
            self._note, self._number = note, number
            self._show()

    def _show(self) -> None:
        self._show_head()
        self._said.clear()
        with self._said:
            label_text(self._note.text, "p", "note-text")
            at_the_same_time(
                self._note.overwritten,
                take=lambda lost: self._write(lost.value, "the other words taken"),
                keep=lambda _: self._write(self._note.text, "these words kept"),
            )
        self._show_past()

    def _show_head(self) -> None:
        self._head.clear()
        with self._head:
            if self._number is not None:
                number = label_text(str(self._number), "span", "note-number")
                number.props["title"] = "its number in the plots"
            self._place(self._note)
            signed = text.signed(self._note.written)
            if self._note.changed is not None:
                signed += f"; last edit {text.signed(self._note.changed)}"
            label_text(signed, "span", "muted signed")
            box("grow")
            label_text("edit", "button", "plain").mark("edit-note").on("click", self._edit)
            button = label_text("history", "button", "plain").mark("note-history")
            button.props["aria-expanded"] = "true" if self._with_history else "false"
            button.on("click", self._toggle_history)
            collect = self._collect
            if collect is not None:
                into = label_text("+ incident", "button", "plain").mark("collect-note")
                into.on("click", lambda: collect(self._note))
                label_text("remove", "button", "plain").mark("remove-note").on("click", self._remove)

    def _show_past(self) -> None:
        self._past.clear()
        if self._with_history:
            with self._past:
                history(self._incident_service.book, self._note.id)

    def _toggle_history(self) -> None:
        self._with_history = not self._with_history
        self._show_head()
        self._show_past()

    # --- writing --------------------------------------------------------------------------------------

    def _edit(self) -> None:
        """Open the words for editing, as they are shown now: what others write meanwhile is not lost."""
        if self._edited is not None:
            return
        self._edited = self._note
        with self._editor:
            field = (
                ui.textarea(value=self._note.text)
                .props(f"outlined autogrow autofocus maxlength={MAX_TEXT} aria-label='words of the note'")
                .mark("note-words")
            )
            field.on("keydown.ctrl.enter", lambda: self._save(field.value or ""))
            with box("actions"):
                save = with_keys(label_text("save", "button", "button"), label="save the note").mark(
                    "save-note"
                )
                save.on("click", lambda: self._save(field.value or ""))
                label_text("cancel", "button", "plain").on("click", self._close)
                self._toolbar.signature()
        self._said.set_visibility(False)

    async def _save(self, said: str) -> None:
        seen = self._edited
        if seen is None or not said.strip():
            return
        if said == seen.text or await self._toolbar.write(
            lambda author: [self._again(author, seen, said)], "note changed"
        ):
            self._close()

    def _again(self, author: IncidentEditor, seen: Note, said: str) -> str:
        """Other words for the note; words for one that was removed meanwhile are a note of their own."""
        try:
            self._incident_service.log.state().note(seen.id)
        except IncidentNotFoundError:
            return author.write_note(said, seen.pin)
        return author.edit_note(seen, said)

    def _close(self) -> None:
        self._edited = None
        self._editor.clear()
        self._said.set_visibility(True)

    async def _write(self, said: str, done: str) -> None:
        """These words, with everything seen."""
        note = self._note
        await self._toolbar.write(lambda author: [author.edit_note(note, said)], done)

    async def _remove(self) -> None:
        note = self._note
        await self._toolbar.write(lambda author: [author.remove_note(note)], "note removed")
