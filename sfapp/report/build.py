"""Build the files of a report from a request, for the command and the app. Pure; the caller reads packets and
writes files."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sfapp.incidents import IncidentState, draft_incident
from sfapp.model.view import ViewState, WindowKey
from sfapp.report.command import TITLE, command
from sfapp.report.document import document
from sfapp.report.formats import Files, render
from sfapp.report.parts import Report
from sfapp.service.pseudonyms import Pseudonyms
from sfapp.service.window_evidence import EvidenceSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """The content and format of a report; runs and hosts under their real names.

    Attributes:
        output: name of the report's file; its ending selects the format.
        paths: where the packets are.
        incident: its id; None for a report on windows.
        called: the incident's name in the printed command, if not its id.
        windows, view: the windows and how they are judged; an incident has its own.
        title: of a report on windows.
        at: the date of a report on windows.
    """

    output: str
    paths: tuple[str, ...]
    incident: str | None = None
    called: str | None = None
    windows: tuple[WindowKey, ...] = ()
    view: ViewState = field(default_factory=ViewState)
    title: str = TITLE
    at: datetime


def build_report(
    request: ReportRequest,
    evidence: EvidenceSource,
    incident_state: IncidentState,
    *,
    version: str,
    pseudonyms: Pseudonyms | None = None,
) -> tuple[Report, Files]:
    """Build the report and its files.

    Args:
        evidence: finds and judges windows, under their pseudonyms if there are any.
        incident_state: notes and incidents under the real names.
        pseudonyms: replacements of run and host names; only the name of the report's file may then contain a
            real one.

    Raises:
        ReportError: no format has the file's ending, or the format cannot show the request.
        IncidentNotFoundError: there is no such incident.
    """
    notes = pseudonyms.incident_state(incident_state) if pseudonyms else incident_state
    output = pseudonyms.text(request.output) if pseudonyms else request.output
    # A path may contain a name too.
    paths = ["packets"] if pseudonyms else list(request.paths)
    if request.incident is None:
        windows = tuple(map(pseudonyms.key, request.windows)) if pseudonyms else request.windows
        view = pseudonyms.view(request.view) if pseudonyms else request.view
        title = pseudonyms.text(request.title) if pseudonyms else request.title
        notes, incident_id = draft_incident(title, [(key, view) for key in windows], request.at, notes)
        reproduce = command(
            paths, output, windows=windows, view=view, title=title, redact=pseudonyms is not None
        )
    else:
        incident_id = pseudonyms.id_of(request.incident) if pseudonyms else request.incident
        called = request.called or request.incident
        reproduce = command(paths, output, incident=called, redact=pseudonyms is not None)
    report = document(
        notes.incident(incident_id),
        evidence,
        command=reproduce,
        version=version,
        opened=request.incident is not None,
    )
    return report, render(request.output, report, notes, incident_id)
