"""Reports from a workspace, made on a thread: progress can be read and the work cancelled meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import sfapp
from sfapp.incidents import IncidentState
from sfapp.model.parse import parse_time
from sfapp.model.view import ViewState, WindowKey
from sfapp.report.build import ReportRequest, build_report
from sfapp.report.formats import packed
from sfapp.service.pseudonyms import Pseudonyms
from sfapp.service.store_evidence import StoreEvidence
from sfapp.service.workspace import Workspace
from sfapp.store import Store
from sfapp.views import format
from sfapp.views.address import path_segment

_MOST_OF_NAME = 60
"""Characters of a run's name in the name of a report's file."""


class CancelledReportError(Exception):
    """The report was cancelled; no error of sfapp."""


@dataclass(slots=True)
class ReportProgress:
    """Progress of one report: written by its thread, read and cancelled by the page.

    Attributes:
        activity: the present step, in words.
    """

    activity: str = ""
    _cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """Stop at the next step."""
        self._cancelled.set()

    def report(self, activity: str) -> None:
        """Set the present step.

        Raises:
            CancelledReportError: the report was cancelled.
        """
        if self._cancelled.is_set():
            raise CancelledReportError
        self.activity = activity


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The ending of a format, and whether run and host names are replaced by pseudonyms."""

    ending: str
    redact: bool


ReportMaker = Callable[[ReportOptions, ReportProgress], tuple[str, bytes]]
"""Makes a report, blocking: the name and content of one file."""


def window_report(workspace: Workspace, key: WindowKey, view: ViewState) -> ReportMaker:
    """Return the maker of the report on one window under a view, with the notes pinned to it."""

    def make(options: ReportOptions, progress: ReportProgress) -> tuple[str, bytes]:
        store = workspace.store_of(key.run_id)
        manifest = store.window(key.run_id, key.window).manifest
        ended = parse_time(manifest.ended_at) or parse_time(manifest.started_at)
        name = "" if options.redact else _name_of_run(key.run_id)
        # A pseudonym replaces whole names only.
        shown = key.run_id if options.redact else format.clip(key.run_id, 80)
        request = ReportRequest(
            output=f"sfapp-{name}window-{key.window}{options.ending}",
            paths=_paths(workspace, store, key),
            windows=(key,),
            view=view,
            title=f"Window {key.window} of {shown}",
            at=ended or datetime.fromtimestamp(0, UTC),
        )
        return create_report(workspace, request, options, progress)

    return make


def incident_report(workspace: Workspace, incident_id: str) -> ReportMaker:
    """Return the maker of the report on an incident in its present state."""

    def make(options: ReportOptions, progress: ReportProgress) -> tuple[str, bytes]:
        incident = workspace.incident_log.state().incident(incident_id)
        runs = {item.window.run_id for item in incident.items if item.window is not None}
        name = _name_of_run(runs.pop()) if len(runs) == 1 and not options.redact else ""
        request = ReportRequest(
            output=f"sfapp-{name}incident-{incident.short_id}{options.ending}",
            paths=tuple(map(str, workspace.paths)),
            incident=incident.id,
            called=incident.short_id,
            at=(incident.changed or incident.written).at,
        )
        return create_report(workspace, request, options, progress)

    return make


def _name_of_run(run_id: str) -> str:
    """Return a run's name as the beginning of a file's name."""
    return f"{path_segment(run_id)[:_MOST_OF_NAME]}-"


def create_report(
    workspace: Workspace, request: ReportRequest, options: ReportOptions, progress: ReportProgress
) -> tuple[str, bytes]:
    """Create the file of a report: its name and content. Blocking.

    Raises:
        SfappError: it cannot be made; the message says why.
        CancelledReportError: it was cancelled.
    """
    incident_state = workspace.incident_log.state()
    pseudonyms = None
    if options.redact:
        progress.report("collecting the names to hide")
        pseudonyms = _pseudonyms(_stores(workspace, request, incident_state), incident_state)
    progress.report("collecting")
    evidence = StoreEvidence(workspace, pseudonyms, progress.report)
    version = sfapp.__version__
    _, files = build_report(request, evidence, incident_state, version=version, pseudonyms=pseudonyms)
    progress.report("packing")
    return packed(files)


def _stores(workspace: Workspace, request: ReportRequest, incident_state: IncidentState) -> list[Store]:
    """Return the user's store, and that of the examples where the report shows one of them."""
    keys = list(request.windows)
    if request.incident is not None:
        items = incident_state.incident(request.incident).items
        keys += [item.window for item in items if item.window is not None]
    return list(dict.fromkeys([workspace.store, *(workspace.store_of(key.run_id) for key in keys)]))


def _pseudonyms(stores: Sequence[Store], incident_state: IncidentState) -> Pseudonyms:
    """Return pseudonyms of every run and host in the stores, so that the command's report has the same."""
    runs = {run.run_id for store in stores for run in store.runs()}
    hosts = {host for store in stores for host in store.hostnames()}
    return Pseudonyms.of_names(runs, hosts, incident_state)


def _paths(workspace: Workspace, store: Store, key: WindowKey) -> tuple[str, ...]:
    """Return where the packets are: the served paths, or the folder of an example."""
    if store is workspace.store:
        return tuple(map(str, workspace.paths))
    return (str(store.sources(key.run_id, key.window)[0].path.parent),)
