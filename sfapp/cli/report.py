"""``sfapp report``: write an incident or some windows, with verdicts, plots and provenance, as one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from sfapp import __version__
from sfapp.cli.console_messages import message, message_option
from sfapp.cli.packet_paths import given_storage_options, storage_options
from sfapp.cli.shared_options import fix_from, gate_options, view_from, view_options, window_key
from sfapp.errors import IncidentError, SfappError, WindowNotFoundError
from sfapp.files import read_regular
from sfapp.incidents import IncidentState, parse, state_from_events
from sfapp.incidents.exchange import MAX_BYTES
from sfapp.model import Diagnosis
from sfapp.model.parse import parse_time
from sfapp.model.view import ViewState, WindowKey
from sfapp.packets import LoadedWindow
from sfapp.report import REPORT_FORMATS, TITLE, ReportRequest, build_report, format_of, write
from sfapp.service.incidents import incident_log_of
from sfapp.service.packet_evidence import PacketEvidence
from sfapp.service.packet_windows import load_windows
from sfapp.service.pseudonyms import Pseudonyms
from sfapp.storage import StoragePath, local_paths, location
from sfapp.store.reference_choices import ReferenceChoices
from sfapp.terminal import encodable

MOST = 5
"""Number of windows in a report without ``--window``."""


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="[INCIDENT] [PATHS]...")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"File to write; its ending selects the format: {', '.join(REPORT_FORMATS)}.",
)
@click.option(
    "--window",
    "chosen",
    multiple=True,
    metavar="RUN/WINDOW",
    help=f"Window to report; may be repeated [default: the {MOST} most severe ones].",
)
@click.option("--redact", is_flag=True, help="Replace run ids and host names by stable pseudonyms.")
@click.option("--title", default=TITLE, show_default=True, help="Title of a report on windows.")
@click.option(
    "--what-if",
    "fixed",
    default=None,
    metavar="[STAGE][@RANK|@node:K|@all]",
    help="Report the step time if a stage, a rank or all ranks of a node were as fast as a typical rank.",
)
@message_option
@storage_options
@gate_options
@view_options
def report(
    sources: Sequence[str],
    output: Path,
    chosen: Sequence[str],
    title: str,
    redact: bool,
    fixed: str | None,
    preset: str,
    frontier: Any,
    baseline: Any,
    reference: str | None,
    group: str,
    **gates: Any,
) -> None:
    """Write a report as a single self-contained file.

    The report covers an INCIDENT, named by its id (or the beginning of it) or by the file it was exported to;
    without one, it covers windows under PATHS, each with its notes. PATHS may be addresses of an object store
    (docs/fleet.md).

    \b
    sfapp report 3f2a9c1e packets -o incident.html
    sfapp report incident.json packets -o incident.html
    sfapp report packets --window train-7/12 --window train-7/13 --title "Slow loader" -o slow.html
    """
    format_of(output.name)  # before anything is read
    incident, paths = _split(sources)
    asked = [window_key(text, "--window") for text in chosen]
    view = view_from(preset, frontier, baseline, reference, group, gates)
    view = replace(view, fix=fix_from(fixed) if fixed else None)
    if incident is not None and (asked or title != TITLE or view != ViewState()):
        raise SfappError("an incident holds its own windows, thresholds and title: leave those options out")
    loaded = list(load_windows(paths).windows)
    incident_state = _incident_state(incident, paths)
    names: Pseudonyms | None = None
    if redact:
        names = Pseudonyms.of([found.window for found in loaded], incident_state)
    evidence = PacketEvidence(loaded, names, ReferenceChoices.next_to(paths[0]).windows)
    request = ReportRequest(
        output=output.name,
        paths=tuple(map(str, paths)),
        view=view,
        title=encodable(title),
        at=_newest(loaded),
    )
    if incident is None:
        here = names.view(view) if names else view
        picked = _pick(evidence.diagnoses(here), [names.key(key) if names else key for key in asked])
        request = replace(request, windows=tuple(names.real(key) if names else key for key in picked))
    else:
        called = "incident.json" if redact and _is_file(incident) else incident
        request = replace(request, incident=_named(incident, incident_state), called=called)
    made, files = build_report(request, evidence, incident_state, version=__version__, pseudonyms=names)
    written = write(output, files)
    message(f"{len(made.parts)} parts, {written / 1e3:.0f} kB: {output}")


def _split(sources: Sequence[str]) -> tuple[str | None, list[StoragePath]]:
    """Return the incident, if the first argument names one, and the paths of the packets."""
    options = given_storage_options()
    first, *rest = sources
    incident = None
    if _is_file(first) or (isinstance(path := location(first, options), Path) and not path.exists()):
        incident = first
        default = "packets" if Path("packets").is_dir() else "."
        paths = [location(each, options) for each in rest or [default]]
    else:
        paths = [location(each, options) for each in sources]
    for each in local_paths(paths):
        if not each.exists():
            raise SfappError(f"there is no file or folder {each}")
    return incident, paths


def _is_file(name: str) -> Path | None:
    """Return the path of an exported incident; None if the name is no such file."""
    path = Path(name)
    return path if path.suffix == ".json" and path.is_file() else None


def _incident_state(incident: str | None, paths: Sequence[StoragePath]) -> IncidentState:
    """Return the notes and incidents next to the packets, or those of an exported incident."""
    file = None if incident is None else _is_file(incident)
    if file is None:
        return incident_log_of(paths[0], None).state()
    try:
        content = read_regular(file, MAX_BYTES)
    except OSError as error:
        raise IncidentError(f"{file} cannot be read: {error.strerror}") from error
    return state_from_events(parse(content))


def _named(incident: str, incident_state: IncidentState) -> str:
    """Return the id of the incident."""
    if _is_file(incident) is None:
        return incident_state.incident(incident).id
    held = incident_state.incidents
    if len(held) != 1:
        raise SfappError(f"{incident} holds {len(held)} incidents; export the one to report on")
    return held[0].id


def _pick(diagnoses: Sequence[Diagnosis], asked: Sequence[WindowKey]) -> list[WindowKey]:
    """Return the requested windows in the order of the options, else those that lack data, then the most
    severe."""
    if not diagnoses:
        raise SfappError(
            "no packets to report on: sfapp.Recorder and `sfapp import` write them as .parquet files"
        )
    if not asked:
        worst = sorted(diagnoses, key=lambda one: (not one.lacks_data, -(one.severity or 0.0)))[:MOST]
        return [WindowKey(diagnosis.run_id, diagnosis.window) for diagnosis in worst]
    known = {WindowKey(diagnosis.run_id, diagnosis.window) for diagnosis in diagnoses}
    for key in asked:
        if key not in known:
            raise WindowNotFoundError(f"there is no window {key} among the packets given")
    return list(dict.fromkeys(asked))


def _newest(windows: Sequence[LoadedWindow]) -> datetime:
    """Return when the newest window ended: the date of a report on windows, which does not depend on when it
    is made."""
    manifests = [found.window.manifest for found in windows]
    ended = [parse_time(one.ended_at) or parse_time(one.started_at) for one in manifests]
    return max((moment for moment in ended if moment is not None), default=datetime.fromtimestamp(0, UTC))
