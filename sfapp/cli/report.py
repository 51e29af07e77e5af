"""``sfapp report``: windows with their verdicts, plots and provenance, in one file to hand over."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from sfapp import __version__
from sfapp.accounting import diagnose_runs
from sfapp.cli.analyze import without_overflow
from sfapp.cli.options import gate_options, gates_from, view_options, window_key
from sfapp.errors import SfappError, WindowNotFoundError
from sfapp.model import Diagnosis, Gates
from sfapp.packets import read_windows
from sfapp.report import Packet, Pseudonyms, document, to_html

MOST = 5
"""Windows in a report that names none."""


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write; its name ends in .html.",
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
@click.option("--title", default="sfapp report", show_default=True, help="What the report is called.")
@gate_options
@view_options
def report(
    paths: Sequence[Path],
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
    """Write a report on windows under PATHS that opens anywhere and asks for nothing.

    \b
    sfapp report packets -o incident.html
    sfapp report packets --window train-7/12 --window train-7/13 --title "Slow loader" -o incident.html
    """
    if output.suffix != ".html":
        raise SfappError(f"{output.name} should end in .html")
    loaded = list(without_overflow(read_windows(paths)).windows)
    keys, against = [window_key(key) for key in chosen], window_key(reference)
    if redact:
        names = Pseudonyms.of([found.window for found in loaded])
        loaded = [replace(found, window=names.window(found.window)) for found in loaded]
        keys = [_renamed(key, names) for key in keys]
        against, title = _renamed(against, names), names.text(title)
        # A path may hold a name too; whoever runs the command knows where the packets are.
        paths = [Path("packets")]
    by_key = {(found.window.run_id, found.window.number): found for found in loaded}
    judged = gates_from(preset, gates)
    diagnoses = diagnose_runs(
        (found.window for found in loaded),
        judged,
        baseline,
        frontier=frontier,
        group=group,
        reference=against,
    )
    told = pick(diagnoses, keys)
    windows = []
    for diagnosis in told:
        found = by_key[diagnosis.run_id, diagnosis.window]
        packets = [Packet(packet.path.name, packet.sha256) for packet in found.packets]
        windows.append((found.window, diagnosis, packets))
    again = command(paths, output, told, title, judged, frontier, baseline, against, group, redact)
    output.write_text(to_html(document(title, again, __version__, windows)), encoding="utf-8")
    click.echo(f"{len(windows)} windows, {output.stat().st_size / 1e3:.0f} kB: {output}", err=True)


def pick(diagnoses: Sequence[Diagnosis], keys: Sequence[tuple[str, int] | None]) -> list[Diagnosis]:
    """The named windows in the order in which they were named, else the most severe ones."""
    if not diagnoses:
        raise SfappError("no packets to report on: a packet is a .parquet file that sfapp.Recorder writes")
    if not keys:
        return sorted(diagnoses, key=lambda diagnosis: -(diagnosis.severity or 0.0))[:MOST]
    known = {(diagnosis.run_id, diagnosis.window): diagnosis for diagnosis in diagnoses}
    missing = [key for key in keys if key not in known]
    if missing and missing[0] is not None:
        run, number = missing[0]
        raise WindowNotFoundError(f"there is no window {run}/{number} among the packets given")
    return [known[key] for key in dict.fromkeys(keys) if key is not None]


def command(
    paths: Sequence[Path],
    output: Path,
    told: Sequence[Diagnosis],
    title: str,
    gates: Gates,
    frontier: str,
    baseline: str,
    reference: tuple[str, int] | None,
    group: str,
    redact: bool,
) -> str:
    """What to type to get the same report from the same packets; defaults are left out."""
    words = ["sfapp", "report", *map(str, paths)]
    for diagnosis in told:
        words += ["--window", f"{diagnosis.run_id}/{diagnosis.window}"]
    for name, value in gates.changed().items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    asked = {
        "frontier": (frontier, "step"),
        "baseline": (baseline, "cohort_median"),
        "group": (group, "all"),
        "reference": (None if reference is None else f"{reference[0]}/{reference[1]}", None),
        "title": (title, "sfapp report"),
    }
    for name, (value, default) in asked.items():
        if value != default:
            words += [f"--{name}", str(value)]
    return shlex.join([*words, *(["--redact"] if redact else []), "-o", output.name])


def _renamed(key: tuple[str, int] | None, names: Pseudonyms) -> tuple[str, int] | None:
    """A window named by its real run or by its pseudonym, under the pseudonym."""
    return None if key is None else (names.runs.get(key[0], key[0]), key[1])
