"""The dialog that adds evidence to an existing or a new incident."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from nicegui import app, ui

from sfapp.app.one_at_a_time import one_at_a_time
from sfapp.app.panels.annotation_toolbar import AnnotationToolbar, EditLink
from sfapp.app.theme import box, label_text
from sfapp.incidents import MAX_TITLE, IncidentEditor
from sfapp.model.incidents import Incident, Note
from sfapp.service.incidents import IncidentService
from sfapp.views import format
from sfapp.views.address import incident_page

NEW = "new"
"""Value of the choice to create an incident."""

MOST_OFFERED = 500
"""Newest incidents that the dialog offers: an import may hold any number."""

LAST = "incident"
"""Key in the browser tab's storage of the last used incident."""

Add = Callable[[IncidentEditor, Incident], Sequence[str]]
"""Function that adds an item to the present state of an incident and returns the ids of the edits."""


class IncidentPicker:
    """A dialog that asks for the incident to add an item to. Built once per page."""

    def __init__(self, incident_service: IncidentService, toolbar: AnnotationToolbar) -> None:
        self._incident_service = incident_service
        self._toolbar = toolbar
        self._add: Add = lambda author, incident: ()
        self._what = ""
        self._notes: Sequence[Note] = ()
        with (
            ui.dialog().props("aria-label='Add to an incident'") as self._dialog,
            box("sheet incident-picker"),
        ):
            self._heading = label_text("", "h2")
            self._choice = (
                ui.select([], label="Incident", on_change=self._show_title)
                .props("dense outlined options-dense")
                .mark("incident-choice")
            )
            self._title = (
                ui.input("Title of the new incident").props(f"dense outlined maxlength={MAX_TITLE}")
            ).mark("incident-title")
            self._title.on("keydown.enter", self._save)
            self._with_notes = ui.checkbox("", value=True).props("dense").mark("with-notes")
            with box("actions"):
                label_text("Add", "button", "button").mark("add-to-incident").on("click", self._save)
                label_text("Cancel", "button", "plain").on("click", self._dialog.close)
                toolbar.signature()

    def ask(self, what: str, add: Add, title: str, notes: Sequence[Note] = ()) -> None:
        """Ask for the incident to add an item to.

        Args:
            what: names the item.
            title: title offered for a new incident.
            notes: notes that can be added with it.
        """
        self._what, self._add, self._notes = what, add, notes
        known = {
            incident.id: _named(incident)
            for incident in islice(reversed(self._incident_service.state.incidents), MOST_OFFERED)
        }
        last = app.storage.tab.get(LAST)
        self._heading.text = f"Add {what} to an incident"
        self._title.value = title
        self._choice.set_options({NEW: "New incident", **known}, value=last if last in known else NEW)
        self._with_notes.text = f"With {'its note' if len(notes) == 1 else f'its {len(notes)} notes'}"
        self._with_notes.set_visibility(bool(notes))
        self._show_title()
        self._dialog.open()

    def _show_title(self) -> None:
        self._title.set_visibility(self._choice.value == NEW)

    @one_at_a_time
    async def _save(self) -> None:
        chosen, title, add = self._choice.value, self._title.value or "", self._add
        notes = self._notes if self._with_notes.value else ()
        if chosen == NEW and not title.strip():
            ui.notify("An incident needs a title", type="warning")
            return
        target = ""

        def edit(author: IncidentEditor) -> Sequence[str]:
            nonlocal target
            opened = [author.open_incident(title.strip())] if chosen == NEW else []
            target = opened[0] if opened else str(chosen)
            written = [*opened, *add(author, self._incident_service.log.state().incident(target))]
            for note in notes:
                written.append(author.add_note(self._incident_service.log.state().incident(target), note.id))
            return written

        if await self._toolbar.write(
            edit, f"{self._what[:1].upper()}{self._what[1:]} added", lambda: self._link(target)
        ):
            if ui.context.client.has_socket_connection:  # It may have been closed meanwhile.
                app.storage.tab[LAST] = target
            self._dialog.close()

    def _link(self, incident_id: str) -> EditLink:
        title = self._incident_service.state.incident(incident_id).title
        return EditLink(f"Open “{format.clip(title)}”", incident_page(incident_id))


def _named(incident: Incident) -> str:
    done = "" if incident.status == "open" else f" ({incident.status})"
    return f"{format.clip(incident.title, 80)}{done}"
