"""``sfapp report``: an incident, or windows, with verdicts, plots and provenance, as a file to hand over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from sfapp import __version__
from sfapp.cli.options import gate_options, view_from, view_options, window_key
from sfapp.errors import SfappError, WindowNotFoundError
from sfapp.incidents import IncidentLog, IncidentState, parse, state_from_events
from sfapp.model import Diagnosis
from sfapp.model.view import ViewState, WindowKey
from sfapp.packets import LoadedWindow
from sfapp.report import FORMATS, TITLE, ReportRequest, build_report, format_of, write
from sfapp.service.packet_evidence import PacketEvidence
from sfapp.service.packet_windows import load_windows
from sfapp.service.pseudonyms import Pseudonyms

MOST = 5
"""Windows in a report that names none."""


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="[INCIDENT] [PATHS]...")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"The file to write; the ending of its name says what: {', '.join(FORMATS)}.",
)
@click.option(
    "--window",
    "chosen",
    multiple=True,
    metavar="RUN/WINDOW",
    help=f"A window to report; may be repeated. The {MOST} most severe ones where none is named.",
)
@click.option(
    "--redact", is_flag=True, help="Replace run ids and host names by stable pseudonyms everywhere."
)
@click.option("--title", default=TITLE, show_default=True, help="What a report on windows is called.")
@gate_options
@view_options
def report(
    sources: Sequence[str],
    output: Path,
    chosen: Sequence[str],
    title: str,
    redact: bool,
    preset: str,
    frontier: Any,
    baseline: Any,
    reference: str | None,
    group: str,
    **gates: Any,
) -> None:
    """Write a report that opens anywhere and asks for nothing.

    On an INCIDENT: its id, or the beginning of it, as the app shows it, or a file it was exported to. On
    windows under PATHS: those named, or the most severe ones, with the notes pinned to them.

    \b
    sfapp report 3f2a9c1e packets -o incident.html
    sfapp report incident.json packets -o incident.html
    sfapp report packets --window train-7/12 --window train-7/13 --title "Slow loader" -o slow.html
    """
    format_of(output.name)  # before anything is read
    incident, paths = _split(sources)
    asked = [window_key(text, "--window") for text in chosen]
    view = view_from(preset, frontier, baseline, reference, group, gates)
    if incident is not None and (asked or title != TITLE or view != ViewState()):
        raise SfappError("an incident knows its windows, gates and title itself: leave those options out")
    loaded = list(load_windows(paths).windows)
    book = _book(incident, paths)
    names: Pseudonyms | None = None
    if redact:
        names = Pseudonyms.of([found.window for found in loaded], book)
    evidence = PacketEvidence(loaded, names)
    request = ReportRequest(
        output=output.name, paths=tuple(map(str, paths)), view=view, title=title, at=_newest(loaded)
    )
    if incident is None:
        here = names.view(view) if names else view
        told = _pick(evidence.diagnoses(here), [names.key(key) if names else key for key in asked])
        request = replace(request, windows=tuple(names.real(key) if names else key for key in told))
    else:
        called = "incident.json" if redact and _is_file(incident) else incident
        request = replace(request, incident=_named(incident, book), called=called)
    made, files = build_report(request, evidence, book, version=__version__, pseudonyms=names)
    written = write(output, files)
    click.echo(f"{len(made.parts)} parts, {written / 1e3:.0f} kB: {output}", err=True)


def _split(sources: Sequence[str]) -> tuple[str | None, list[Path]]:
    """The incident, where the first word names one, and the packets' paths."""
    first, *rest = sources
    if not Path(first).exists() or _is_file(first):
        paths = [Path(path) for path in rest or (["packets"] if Path("packets").is_dir() else ["."])]
        incident = first
    else:
        paths, incident = [Path(path) for path in sources], None
    for path in paths:
        if not path.exists():
            raise SfappError(f"there is no file or folder {path}")
    return incident, paths


def _is_file(name: str) -> Path | None:
    """The file of an exported incident."""
    path = Path(name)
    return path if path.suffix == ".json" and path.is_file() else None


def _book(incident: str | None, paths: Sequence[Path]) -> IncidentState:
    """The notes beside the packets, or those that an exported incident brings along."""
    file = None if incident is None else _is_file(incident)
    if file is None:
        return IncidentLog.for_packets(paths[0]).state()
    return state_from_events(parse(file.read_bytes()))


def _named(incident: str, book: IncidentState) -> str:
    """The id of the incident that was named."""
    if _is_file(incident) is None:
        return book.incident(incident).id
    if len(book.incidents) != 1:
        raise SfappError(f"{incident} holds {len(book.incidents)} incidents; export the one to report on")
    return book.incidents[0].id


def _pick(diagnoses: Sequence[Diagnosis], asked: Sequence[WindowKey]) -> list[WindowKey]:
    """The named windows in the order in which they were named, else the most severe ones."""
    if not diagnoses:
        raise SfappError("no packets to report on: a packet is a .parquet file that sfapp.Recorder writes")
    if not asked:
        worst = sorted(diagnoses, key=lambda diagnosis: -(diagnosis.severity or 0.0))[:MOST]
        return [WindowKey(diagnosis.run_id, diagnosis.window) for diagnosis in worst]
    known = {WindowKey(diagnosis.run_id, diagnosis.window) for diagnosis in diagnoses}
    for key in asked:
        if key not in known:
            raise WindowNotFoundError(f"there is no window {key} among the packets given")
    return list(dict.fromkeys(asked))


def _newest(windows: Sequence[LoadedWindow]) -> datetime:
    """When the newest window ended: the time of a report that nobody dated, the same at every making."""
    ended = [found.window.manifest.ended_at or found.window.manifest.started_at for found in windows]
    return datetime.fromisoformat(max(filter(None, ended), default="1970-01-01T00:00:00Z"))
