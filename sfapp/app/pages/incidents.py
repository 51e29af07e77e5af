"""``/incidents``: the list of incidents, with creation, import and export."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request
from nicegui import events, ui

from sfapp.app.connection import connected
from sfapp.app.notices import ignored_options, notices
from sfapp.app.notifications import follow
from sfapp.app.one_at_a_time import one_at_a_time
from sfapp.app.panels.annotation_toolbar import AnnotationToolbar
from sfapp.app.routes import Handler
from sfapp.app.security import MAX_UPLOAD
from sfapp.app.theme import (
    Crumb,
    author_of,
    box,
    empty,
    frame,
    label_text,
    left_out,
    link,
    with_keys,
)
from sfapp.errors import IncidentError
from sfapp.incidents import MAX_TITLE, IncidentEditor, IncidentState
from sfapp.model.incidents import SEVERITIES, Incident, Stamp
from sfapp.service.incidents import IncidentService
from sfapp.service.workspace import Workspace
from sfapp.views import format, text
from sfapp.views.address import incident_page

MOST_LISTED = 500
"""Incidents that a page lists: an import may hold any number, each row costs some ms of the event loop."""

ORDERS = {"changed": "Last change", "severity": "Severity"}
"""Sort orders of the list, descending: the value of the URL parameter and its text."""

_EMIT_ANSWER = "({xhr}) => emit(xhr.status ? `${xhr.status} ${xhr.statusText}` : '')"
"""What the server, or a proxy before it, answered to an upload that failed; empty without an answer."""


def build(workspace: Workspace) -> tuple[Handler, ...]:
    """Return the page's handler."""

    async def incidents_page(request: Request) -> None:
        await workspace.incident_service.shown()
        asked, messages = request.query_params.get("sort", ""), ignored_options(request, "sort")
        if asked and asked not in ORDERS:
            messages.append(f"In the link, there is no sort {format.clip(asked)!r}; showing the default.")
        page = IncidentsPage(workspace.incident_service, asked if asked in ORDERS else "changed")
        with frame(
            workspace, request, "incidents", (Crumb("Problems", "/"), Crumb("Incidents")), heading="Incidents"
        ):
            notices(messages)
            page.build(author_of(request))
        if await connected():
            follow(workspace.incident_service.changed, page.show)
            page.show(workspace.incident_service.state)

    return (incidents_page,)


class IncidentsPage:
    """One open list of incidents."""

    def __init__(self, incident_service: IncidentService, order: str) -> None:
        self._incident_service = incident_service
        self._order = order
        self._shown: Sequence[Incident] | None = None

    def build(self, author: str) -> None:
        """Build the list and its toolbar inside the current container."""
        self._toolbar = AnnotationToolbar(self._incident_service, author)
        with box("stack"):
            self._notices = box()
            with box("toolbar"):
                self._title = (
                    ui.input(placeholder="Title of a new incident")
                    .props(f"dense outlined maxlength={MAX_TITLE} aria-label='Title of a new incident'")
                    .classes("wide")
                    .mark("new-title")
                )
                self._title.on("keydown.enter", self._create)
                label_text("Create incident", "button", "button").mark("new-incident").on(
                    "click", self._create
                )
                self._toolbar.signature()
                box("grow")
                self._import()
                link("Export all", "/incidents.json", "badge").props["download"] = "incidents.json"
            self._list = box("card", "section")
        self._show_notices(self._incident_service.state)

    def show(self, state: IncidentState) -> None:
        """Show the incidents as they are now."""
        self._show_notices(state)
        if state.incidents == self._shown:
            return
        self._shown = state.incidents
        self._list.clear()
        with self._list:
            if state.incidents:
                self._table(_sorted(state.incidents, self._order))
            else:
                empty(
                    "No incidents yet",
                    "An incident collects the evidence of a finding: windows, plots, comparisons and notes. "
                    "Create one here, or press the key a on a window page.",
                )

    def _show_notices(self, state: IncidentState) -> None:
        self._notices.clear()
        problems = [self._incident_service.problem] if self._incident_service.problem else []
        self._notices.set_visibility(bool(problems or state.notices))
        with self._notices:
            notices([*problems, *(f"In the log of notes, {notice}." for notice in state.notices)])

    def _table(self, incidents: Sequence[Incident]) -> None:
        with box("scroll"), box("table incidents", "table"):
            with box("", "thead"), box("", "tr"):
                label_text("Incident", "th")
                self._sorting("severity")
                label_text("Status", "th")
                label_text("Items", "th", "number")
                self._sorting("changed")
            with box("", "tbody"):
                for incident in incidents[:MOST_LISTED]:
                    _row(incident)
        if len(incidents) > MOST_LISTED:
            left_out(MOST_LISTED, len(incidents), "incidents")

    def _sorting(self, order: str) -> None:
        with box("", "th") as head:
            if order == self._order:
                head.props["aria-sort"] = "descending"
                label_text(f"{ORDERS[order]} ↓", "span")
            else:
                link(ORDERS[order], f"/incidents?sort={order}", label=f"Sort by {ORDERS[order].lower()}")

    def _import(self) -> None:
        """Build a button that opens the browser's file chooser; the upload element is hidden."""
        upload = ui.upload(
            on_upload=self._imported, on_rejected=self._too_large, auto_upload=True, max_file_size=MAX_UPLOAD
        )
        upload.on("failed", self._refused, js_handler=_EMIT_ANSWER)
        upload.props("accept=.json").classes("visually-hidden").mark("import")
        upload.props["inert"] = True  # the button below opens it; nothing in it is to be focused
        button = with_keys(label_text("Import…", "button", "badge"), label="Import an exported incident")
        button.on("click", js_handler=f"() => runMethod({upload.id}, 'pickFiles', [])")

    async def _imported(self, event: events.UploadEventArguments) -> None:
        event.sender.run_method("reset")
        try:
            added = await self._incident_service.import_incidents(await event.file.read())
        except IncidentError as error:
            self._toolbar.show_error(f"{format.clip(event.file.name)} was not imported: {error}")
            return
        unchanged = "Nothing new to import"
        ui.notify(f"{format.counted(added, 'edit')} imported" if added else unchanged, type="positive")

    def _refused(self, event: events.GenericEventArguments) -> None:
        event.sender.run_method("reset")  # Otherwise the next upload would send this file again.
        answer = format.clip(str(event.args)) or "nothing"
        self._toolbar.show_error(f"The file was not imported: its upload was answered with {answer}")

    def _too_large(self) -> None:
        self._toolbar.show_error(
            f"The file was not imported: it is not a .json file, or larger than {format.size(MAX_UPLOAD)}. "
            "Copy .sfapp/incidents.jsonl next to the packets instead."
        )

    @one_at_a_time
    async def _create(self) -> None:
        title = (self._title.value or "").strip()
        if not title:
            ui.notify("An incident needs a title", type="warning")
            return
        opened = ""

        def edit(author: IncidentEditor) -> Sequence[str]:
            nonlocal opened
            opened = author.open_incident(title)
            return [opened]

        if await self._toolbar.write(edit, "Incident created"):
            ui.navigate.to(incident_page(opened))


def _sorted(incidents: Sequence[Incident], order: str) -> list[Incident]:
    latest = sorted(incidents, key=lambda incident: _last(incident).at, reverse=True)
    if order == "severity":
        latest.sort(key=lambda incident: SEVERITIES.index(incident.severity), reverse=True)
    return latest


def _last(incident: Incident) -> Stamp:
    return incident.changed or incident.written


def _row(incident: Incident) -> None:
    with box("", "tr").mark("incident-row"):
        with box("", "td"):
            link(format.clip(incident.title, 120), incident_page(incident.id)).mark("incident-link")
        with box("", "td"):
            label_text(incident.severity, "span", f"severity severity-{incident.severity}")
        label_text(incident.status, "td")
        label_text(format.count(len(incident.items)), "td", "number")
        label_text(text.signed(_last(incident)), "td", "muted")
