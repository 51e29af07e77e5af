"""The head of an incident: its title, severity, status and summary, each edited in place."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.panels.revisions import conflicting_edits, history
from sfapp.app.theme import box, label_text
from sfapp.incidents import MAX_TEXT, MAX_TITLE
from sfapp.model.incidents import SEVERITIES, STATUSES, Incident
from sfapp.service.incidents import IncidentService
from sfapp.views import text


class IncidentHeader:
    """Fields of an incident, built inside the current container. Unsaved text is kept when other users edit
    it."""

    def __init__(
        self, incident_service: IncidentService, toolbar: AnnotationToolbar, incident: Incident
    ) -> None:
        self._incident_service = incident_service
        self._toolbar = toolbar
        self._incident = incident
        self._with_history = False
        with box("card incident-head", "section"):
            with box("incident-title"):
                self._title = ui.input(value=incident.title)
                self._title.props(f"borderless dense maxlength={MAX_TITLE} aria-label=Title").mark("title")
                self._title.on("keydown.enter", lambda: self._save_text("title"))
                self._title.on("blur", lambda: self._save_text("title"))
            with box("toolbar"):
                self._severity = self._choice("severity", SEVERITIES)
                self._status = self._choice("status", STATUSES)
                self._signed = label_text("", "span", "muted")
                box("grow")
                toolbar.signature()
                button = label_text("History", "button", "plain").mark("incident-history")
                button.on("click", self._toggle_history)
                label_text("Remove", "button", "plain").mark("remove-incident").on("click", self._remove)
            self._summary = (
                ui.textarea(placeholder="Summary: impact, cause and next steps")
                .props(f"outlined autogrow maxlength={MAX_TEXT} aria-label=Summary")
                .mark("summary")
            )
            self._summary.value = incident.summary
            self._summary.on("blur", lambda: self._save_text("summary"))
            self._conflicts = box()
            self._history_box = box()
        # The incident that each field shows; an edit of the field is based on it.
        self._fields: dict[str, Any] = {
            "title": self._title, "severity": self._severity, "status": self._status, "summary": self._summary
        }  # fmt: skip
        self._seen = dict.fromkeys(self._fields, incident)
        self._writing: dict[str, str] = {}  # by field
        self._show()

    def show(self, incident: Incident) -> None:
        """Show the present incident; a field with unsaved text keeps it."""
        self._incident = incident
        for name, field in self._fields.items():
            if field.value in (getattr(self._seen[name], name), getattr(incident, name)):
                self._seen[name] = incident
                field.value = getattr(incident, name)
        self._show()

    def _show(self) -> None:
        incident = self._incident
        signed = f"Created by {text.signed(incident.written)}"
        if incident.changed is not None:
            signed += f"; last changed by {text.signed(incident.changed)}"
        self._signed.text = signed
        self._conflicts.clear()
        with self._conflicts:
            conflicting_edits(
                incident.overwritten,
                take=lambda lost: self._write_field(lost.field, lost.value, f"Other {lost.field} used"),
                keep=lambda lost: self._write_field(
                    lost.field, getattr(self._incident, lost.field), f"Current {lost.field} kept"
                ),
            )
        self._history_box.clear()
        if self._with_history:
            with self._history_box:
                history(self._incident_service.state, incident.id)

    def _choice(self, name: str, choices: tuple[str, ...]) -> ui.select:
        field = ui.select(list(choices), value=getattr(self._incident, name))
        field.props(
            f"dense outlined options-dense prefix='{name.capitalize()}:' aria-label={name.capitalize()}"
        ).mark(name)
        field.on_value_change(lambda: self._save(name))
        return field

    def _toggle_history(self) -> None:
        self._with_history = not self._with_history
        self._show()

    # --- writing --------------------------------------------------------------------------------------

    async def _save_text(self, name: str) -> None:
        field = self._fields[name]
        if name == "title" and not (field.value or "").strip():
            ui.notify("An incident needs a title", type="warning")
            field.value = getattr(self._seen[name], name)
            return
        await self._save(name)

    async def _save(self, name: str) -> None:
        """Write one field, based on the incident that the field showed."""
        seen, value = self._seen[name], self._fields[name].value or ""
        if value in (getattr(seen, name), self._writing.get(name)):  # Enter is followed by blur.
            return
        self._writing[name] = value
        try:
            await self._write_field(name, value, f"{name.capitalize()} changed", seen)
        finally:
            self._writing.pop(name, None)

    async def _write_field(self, name: str, value: str, message: str, seen: Incident | None = None) -> None:
        """Write one field, based on ``seen`` or else on the present incident."""
        base = seen or self._incident
        change: dict[str, Any] = {name: value}
        written = await self._toolbar.write(lambda author: [author.edit_incident(base, **change)], message)
        if not written and name in ("severity", "status"):
            self._fields[name].value = getattr(base, name)

    async def _remove(self) -> None:
        incident = self._incident
        await self._toolbar.write(lambda author: [author.remove_incident(incident)], "Incident removed")
