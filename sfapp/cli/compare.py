"""``sfapp compare``: two windows or runs, or three as A/B/A, and a regression check for CI."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import click

from sfapp.accounting import LETTERS, Comparison
from sfapp.accounting import compare as compared
from sfapp.cli.console_messages import print_json
from sfapp.cli.packet_paths import PacketPath, given_storage_options, storage_options
from sfapp.cli.shared_options import gate_options, view_from, view_options
from sfapp.errors import SfappError, WindowNotFoundError
from sfapp.model import Diagnosis, Window
from sfapp.model.parse import whole_number
from sfapp.model.sides import SideKey
from sfapp.model.view import WindowKey
from sfapp.packets import Loaded
from sfapp.service.packet_windows import load_windows, thinned_windows
from sfapp.service.verdicts import diagnose_windows
from sfapp.storage import ObjectPath, StoragePath, location, storage_of
from sfapp.terminal import printable
from sfapp.views import comparison_tables, format
from sfapp.views import text as words
from sfapp.views.table_columns import Row, TableColumn

OVER_LIMIT = 1
"""Exit code if B is slower than the limit. Errors exit with 2."""

Diagnose = Callable[[Sequence[Window]], list[Diagnosis]]


@dataclass(frozen=True, slots=True)
class Named:
    """One side of the comparison on the command line.

    Attributes:
        text: the argument.
        windows: every window that may be the healthy one of its run.
        run_id: its run.
        window: None for the whole run.
        thinned: number of windows of the whole run that `sfapp compact` thinned, so that they are not
            compared.
    """

    text: str
    windows: tuple[Window, ...]
    run_id: str
    window: int | None
    thinned: int = 0

    def chosen(self, diagnoses: Sequence[Diagnosis]) -> Diagnosis | list[Diagnosis]:
        """Return its diagnosis, or all of its run's.

        Raises:
            WindowNotFoundError: some of its windows lack the requested group.
        """
        of_run = [found for found in diagnoses if found.run_id == self.run_id]
        wanted = {window.number for window in self.windows if window.run_id == self.run_id}
        if self.window is not None:
            wanted = {self.window}
        missing = sorted(wanted - {found.window for found in of_run})
        if missing:
            raise WindowNotFoundError(
                f"{self.text}: window {missing[0]} has no such group of ranks; compare windows that have it"
            )
        if self.window is None:
            return of_run
        return next(found for found in of_run if found.window == self.window)


class Limit(click.ParamType[Fraction]):
    """Share of a step such as ``5%``."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        if isinstance(value, Fraction):
            return value
        found = re.fullmatch(r"\+?(\d+(?:\.\d+)?)\s*%", str(value).strip(), re.ASCII)
        if found is None:
            self.fail(f"{value!r} is not a percentage such as 5% or 2.5%", param, ctx)
        return Fraction(found[1]) / 100


@click.command()
@click.argument("sides", nargs=-1, metavar="A B [C]")
@click.option(
    "--packets",
    "paths",
    multiple=True,
    type=PacketPath(),
    help="Packet files or folders in which A, B and C are RUN/WINDOW or RUN; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--fail-over",
    "limit",
    type=Limit(),
    metavar="PERCENT",
    help="Exit with code 1 if B's mean step is longer than A's by more than this, for example 5%, "
    "beyond noise (--alpha) and by at least --min-effect.",
)
@storage_options
@gate_options
@view_options
def compare(
    sides: Sequence[str],
    paths: Sequence[StoragePath],
    as_json: bool,
    limit: Fraction | None,
    preset: str,
    frontier: Any,
    baseline: Any,
    reference: str | None,
    group: str,
    **gates: Any,
) -> None:
    """Compare A with B: how much slower B is, in which stages, and whether C is back to A.

    A, B and C are each a packet file (one window), a folder of one run's packets (the whole run), or
    FOLDER/WINDOW (the window of that number in the folder), also in an object store. With --packets they are
    RUN/WINDOW or RUN in those packets. A run is compared by all its steps, each with the same weight.

    \b
    sfapp compare packets/train-7 packets/train-8
    sfapp compare packets/train-7/12 packets/train-7/13 packets/train-7/14
    sfapp compare --packets packets train-7/12 train-8
    sfapp compare main/packets/train branch/packets/train --fail-over 5%
    """
    if len(sides) not in (2, 3):
        raise click.UsageError("give two sides, or three as A/B/A: sfapp compare A B [C]")
    named = _named_among(sides, paths) if paths else [_named_by_path(text) for text in sides]
    view = view_from(preset, frontier, baseline, reference, group, gates)

    def diagnosed(windows: Sequence[Window]) -> list[Diagnosis]:
        return diagnose_windows(_with_reference(windows, view.reference, named), view)

    found = compared(*_chosen(named, diagnosed))
    shown = [side.text for side in named]
    if as_json:
        print_json({"sides": shown, "thinned": [side.thinned for side in named], **found.document()})
    else:
        print_comparison(found, shown)
    thinned = [side for side in named if side.thinned]
    for side in thinned:
        click.echo(f"sfapp: {printable(_thinned_sentence(side))}", err=True)
    if limit is not None:
        if thinned:
            raise SfappError("--fail-over needs every packet of a run: name single windows instead")
        click.echo(f"sfapp: {printable(words.limit_sentence(found, limit))}", err=True)
        if words.over_limit(found.main, limit) and found.needs_attention:
            sys.exit(OVER_LIMIT)


def _chosen(named: Sequence[Named], diagnosed: Diagnose) -> list[Diagnosis | list[Diagnosis]]:
    """Return the diagnoses of each side; sides of the same packets are diagnosed once."""
    known: dict[int, list[Diagnosis]] = {}
    for side in named:
        if id(side.windows) not in known:
            known[id(side.windows)] = diagnosed(side.windows)
    return [side.chosen(known[id(side.windows)]) for side in named]


def _with_reference(
    windows: Sequence[Window], reference: WindowKey | None, named: Sequence[Named]
) -> list[Window]:
    """Return these windows, and the run of the reference if only another side has it."""
    known = {WindowKey(window.run_id, window.number) for window in windows}
    if reference is None or reference in known:
        return list(windows)
    others = {WindowKey(one.run_id, one.number): one for side in named for one in side.windows}
    of_its_run = [one for key, one in others.items() if key.run_id == reference.run_id and key not in known]
    return [*windows, *(of_its_run if reference in others else ())]


def _named_by_path(text: str) -> Named:
    """Return the side of a file, a folder, or a folder with a window's number."""
    path = location(text, given_storage_options())
    text = str(path) if isinstance(path, ObjectPath) else text
    storage = storage_of(path)
    if storage.kind(path) is not None:
        windows = _windows([path], text)
        run_id = _only_run(windows, text)
        thinned = _thinned([path], windows)[run_id]
        return Named(text, windows, run_id, None if thinned else _only_number(windows), thinned)
    number = whole_number(path.name)
    if number is not None and storage.kind(path.parent) == "folder":
        windows = _windows([path.parent], str(path.parent))
        return _window_of(Named(text, windows, _only_run(windows, text), number))
    raise SfappError(
        f"{text}: no such file or folder; A, B and C are packet files, folders of packets or FOLDER/WINDOW "
        "(to name them by run, add --packets PATH)"
    )


def _named_among(texts: Sequence[str], paths: Sequence[StoragePath]) -> list[Named]:
    """Return the sides that are runs and windows of some packets."""
    windows = _windows(paths, ", ".join(map(str, paths)))
    by_run: dict[str, tuple[Window, ...]] = {}
    for run_id in sorted({window.run_id for window in windows}):
        by_run[run_id] = tuple(window for window in windows if window.run_id == run_id)
    thinned = _thinned(paths, windows)
    return [_named_key(text, by_run, thinned) for text in texts]


def _named_key(text: str, by_run: Mapping[str, tuple[Window, ...]], thinned: Counter[str]) -> Named:
    try:
        key = SideKey.parse(text)
    except ValueError as error:
        raise SfappError(f"{text!r} {error}, for example train-7/12") from None
    if key.run_id not in by_run:
        runs = ", ".join(repr(run_id) for run_id in list(by_run)[:8])
        hint = f"; for the whole run of that name write {text}/" if text in by_run else ""
        raise WindowNotFoundError(f"there is no run {key.run_id!r} among the packets: {runs}{hint}")
    missing = thinned[key.run_id] if key.window is None else 0
    return _window_of(Named(text, by_run[key.run_id], key.run_id, key.window, missing))


def _window_of(named: Named) -> Named:
    numbers = [window.number for window in named.windows]
    if named.window is not None and named.window not in numbers:
        raise WindowNotFoundError(
            f"{named.text}: run {named.run_id!r} has no window {named.window}; it has "
            f"{len(numbers)}, from {min(numbers)} to {max(numbers)}"
        )
    return named


def _windows(paths: Sequence[StoragePath], text: str) -> tuple[Window, ...]:
    """Return every window under some paths, and print the files that are left out.

    Raises:
        SfappError: no window is left.
    """
    loaded: Loaded = load_windows(paths)
    for refused in loaded.quarantined:
        click.echo(f"sfapp: left out {printable(f'{refused.path}: {refused.reason}')}", err=True)
    if not loaded.windows:
        raise SfappError(
            f"{text}: no packets to compare; sfapp.Recorder and `sfapp import` write them as .parquet files"
        )
    return tuple(found.window for found in loaded.windows)


def _thinned(paths: Sequence[StoragePath], windows: Sequence[Window]) -> Counter[str]:
    """Return how many windows of each run below some folders have no packet, but what is left of one."""
    there = {(window.run_id, window.number) for window in windows}
    left = {(window.run_id, window.number) for window in thinned_windows(paths)}
    return Counter(run_id for run_id, _ in left - there)


def _thinned_sentence(side: Named) -> str:
    return (
        f"{side.text}: {format.counted(side.thinned, 'window')} thinned by sfapp compact, not compared: the "
        "mean step is that of the others, which are mostly those of problems (sfapp serve compares them all)"
    )


def _only_number(windows: Sequence[Window]) -> int | None:
    return windows[0].number if len(windows) == 1 else None


def _only_run(windows: Sequence[Window], text: str) -> str:
    runs = sorted({window.run_id for window in windows})
    if len(runs) > 1:
        shown = ", ".join(map(repr, runs[:8]))
        raise SfappError(
            f"{text} holds {len(runs)} runs ({shown}): name the folder of one, or "
            f"sfapp compare --packets {text} RUN RUN"
        )
    return runs[0]


def print_comparison(found: Comparison, sides: Sequence[str]) -> None:
    """Print the comparison: its summary, its stages, its sides."""
    summary = words.comparison(found)
    click.secho(printable(summary.kicker), dim=True)
    colour = {"alarm": "red", "warn": "yellow", "good": "green", "quiet": None}[summary.tone]
    click.secho(
        printable(", ".join(part for part in (summary.headline, summary.rest) if part)), bold=True, fg=colour
    )
    for sentence in summary.explanation:
        click.echo(printable(sentence))
    click.echo()
    _print_table(comparison_tables.stage_columns(found), comparison_tables.stage_rows(found))
    click.echo()
    _print_table(
        comparison_tables.side_columns(found), _with_names(comparison_tables.side_rows(found), sides)
    )
    for caveat in summary.caveats:
        click.secho(f"\n{caveat}", fg="yellow")


def _with_names(rows: Sequence[Row], sides: Sequence[str]) -> list[Row]:
    """Add the argument of each side: two folders may hold runs of the same name."""
    return [{"what": "given as", **dict(zip(LETTERS, sides, strict=False)), "change": ""}, *rows]


def _print_table(columns: Sequence[TableColumn], rows: Sequence[Row]) -> None:
    cells = [[printable(str(row.get(column.shown, ""))) for column in columns] for row in rows]
    titles = [printable(column.title) for column in columns]
    widths = [max(len(line[at]) for line in (titles, *cells)) for at in range(len(columns))]
    numeric = [bool(column.text) and column.field != "share" for column in columns]
    click.secho(_aligned(titles, widths, numeric), dim=True)
    for line in cells:
        click.echo(_aligned(line, widths, numeric))


def _aligned(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    shown = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    ]
    return "  ".join(shown).rstrip()
