"""The head of an incident, editable in place: each field is saved by itself, made from what was shown."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.panels.revisions import at_the_same_time, history
from sfapp.app.theme import box, label_text
from sfapp.incidents import MAX_TEXT, MAX_TITLE
from sfapp.model.incidents import SEVERITIES, STATUSES, Incident
from sfapp.service.incidents import IncidentService
from sfapp.views import text


class IncidentHeader:
    """Built inside the current container. ``show`` brings it up to date; what is being typed stays."""

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
                self._title.props(f"borderless dense maxlength={MAX_TITLE} aria-label=title").mark("title")
                self._title.on("keydown.enter", lambda: self._save_words("title"))
                self._title.on("blur", lambda: self._save_words("title"))
            with box("toolbar"):
                self._severity = self._choice("severity", SEVERITIES)
                self._status = self._choice("status", STATUSES)
                self._signed = label_text("", "span", "muted")
                box("grow")
                toolbar.signature()
                button = label_text("history", "button", "plain").mark("incident-history")
                button.on("click", self._toggle_history)
                label_text("remove", "button", "plain").mark("remove-incident").on("click", self._remove)
            self._summary = (
                ui.textarea(placeholder="What happened, what it cost, what was found, what comes next.")
                .props(f"outlined autogrow maxlength={MAX_TEXT} aria-label=summary")
                .mark("summary")
            )
            self._summary.value = incident.summary
            self._summary.on("blur", lambda: self._save_words("summary"))
            self._lost = box()
            self._past = box()
        # From what each field was last brought up to date: an edit of it is made from there.
        self._fields: dict[str, Any] = {
            "title": self._title, "severity": self._severity, "status": self._status, "summary": self._summary
        }  # fmt: skip
        self._seen = dict.fromkeys(self._fields, incident)
        self._show()

    def show(self, incident: Incident) -> None:
        """The incident as it stands now; a field in which somebody is typing keeps its words."""
        self._incident = incident
        for name, field in self._fields.items():
            if field.value in (getattr(self._seen[name], name), getattr(incident, name)):
                self._seen[name] = incident
                field.value = getattr(incident, name)
        self._show()

    def _show(self) -> None:
        incident = self._incident
        signed = f"opened by {text.signed(incident.written)}"
        if incident.changed is not None:
            signed += f"; last change by {text.signed(incident.changed)}"
        self._signed.text = signed
        self._lost.clear()
        with self._lost:
            at_the_same_time(
                incident.overwritten,
                take=lambda lost: self._settle(lost.field, lost.value, f"the other {lost.field} taken"),
                keep=lambda lost: self._settle(
                    lost.field, getattr(self._incident, lost.field), f"this {lost.field} kept"
                ),
            )
        self._past.clear()
        if self._with_history:
            with self._past:
                history(self._incident_service.book, incident.id)

    def _choice(self, name: str, choices: tuple[str, ...]) -> ui.select:
        field = ui.select(list(choices), value=getattr(self._incident, name))
        field.props(f"dense outlined options-dense prefix='{name}:' aria-label={name}").mark(name)
        field.on_value_change(lambda: self._save(name))
        return field

    def _toggle_history(self) -> None:
        self._with_history = not self._with_history
        self._show()

    # --- writing --------------------------------------------------------------------------------------

    async def _save_words(self, name: str) -> None:
        field = self._fields[name]
        if name == "title" and not (field.value or "").strip():
            ui.notify("an incident needs a title", type="warning")
            field.value = getattr(self._seen[name], name)
            return
        await self._save(name)

    async def _save(self, name: str) -> None:
        """Write one field as it was typed, made from the incident as the field showed it."""
        seen, value = self._seen[name], self._fields[name].value or ""
        if value == getattr(seen, name):
            return
        await self._settle(name, value, f"{name} changed", seen)

    async def _settle(self, name: str, value: str, said: str, seen: Incident | None = None) -> None:
        """Write one field; without ``seen``, with everything seen that stands now."""
        made_from = seen or self._incident
        change: dict[str, Any] = {name: value}
        written = await self._toolbar.write(lambda author: [author.edit_incident(made_from, **change)], said)
        if not written and name in ("severity", "status"):
            self._fields[name].value = getattr(made_from, name)

    async def _remove(self) -> None:
        incident = self._incident
        await self._toolbar.write(lambda author: [author.remove_incident(incident)], "incident removed")
