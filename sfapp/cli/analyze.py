"""``sfapp analyze``: the verdict on every window of some packets, without a browser or a store."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from sfapp.accounting import WhatIf
from sfapp.cli.options import fix_from, gate_options, view_from, view_options
from sfapp.errors import SfappError
from sfapp.model import Diagnosis
from sfapp.model.labels import label_words
from sfapp.model.onsets import Episode
from sfapp.model.view import WindowKey
from sfapp.packets import Loaded
from sfapp.service.causes import Causes, causes
from sfapp.service.csv_table import csv_text
from sfapp.service.packet_windows import (
    diagnose_windows,
    episodes_of_windows,
    load_windows,
    what_if_windows,
)
from sfapp.terminal import printable
from sfapp.views import format
from sfapp.views import text as words
from sfapp.views.text.onsets import episode_line


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@gate_options
@view_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every window.")
@click.option("--csv", "as_csv", is_flag=True, help="Print one CSV row per window.")
@click.option(
    "--parquet",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the rows of --csv to this Parquet file.",
)
@click.option(
    "--what-if",
    "fixed",
    is_flag=False,
    flag_value="",
    metavar="[STAGE][@RANK|@node:K|@all]",
    help="Predict the step time with a stage, a rank or all ranks of a node as fast as on a typical rank, by "
    "replaying each window; without a value, of the suspect. @all: every rank in every stage. Needs "
    "waits within stages; else prints the range between static gain and excess.",
)
@click.option("--strict", is_flag=True, help="Exit with code 1 if any file is quarantined.")
def analyze(
    paths: Sequence[Path],
    preset: str,
    frontier: Any,
    baseline: Any,
    reference: str | None,
    group: str,
    as_json: bool,
    as_csv: bool,
    parquet: Path | None,
    fixed: str | None,
    strict: bool,
    **gates: Any,
) -> None:
    """Print the verdict on every window under PATHS, which are packet files or folders.

    If a window has operator events beside its packet, as `sfapp import` writes them, the command also names
    the first operator that delayed other ranks, and whether it confirms the verdict.

    \b
    sfapp analyze packets
    sfapp analyze packets --json | jq '.windows[] | select(.severity > 0.05) | .aim'
    sfapp analyze packets --preset paper --tau-c 0.9 --group node:1
    """
    loaded = load_windows(paths)
    view = view_from(preset, frontier, baseline, reference, group, gates)
    diagnoses = diagnose_windows((found.window for found in loaded.windows), view)
    if not diagnoses and not loaded.quarantined:
        raise SfappError(
            f"no packets under {', '.join(map(str, paths))}: sfapp.Recorder and `sfapp import` write them as "
            ".parquet files"
        )
    predicted: dict[WindowKey, WhatIf] = {}
    if fixed is not None:
        windows = (found.window for found in loaded.windows)
        predicted = what_if_windows(windows, diagnoses, fix_from(fixed) if fixed else None)
    episodes = episodes_of_windows((found.window for found in loaded.windows), diagnoses)
    seen, refused = causes(loaded, diagnoses)
    loaded = replace(loaded, quarantined=(*loaded.quarantined, *refused))
    rows = [flat_row(diagnosis, seen.get(_key(diagnosis))) for diagnosis in diagnoses]
    if parquet is not None:
        write_parquet(rows, parquet)
    if as_json:
        click.echo(
            json.dumps(
                document(diagnoses, loaded, seen, predicted, episodes),
                ensure_ascii=False,
                separators=(",", ":"),
            )
        )
    elif as_csv:
        click.echo(csv_text(rows), nl=False)
    elif parquet is None:
        print_table(diagnoses, loaded, seen, predicted, episodes)
    if strict and loaded.quarantined:
        sys.exit(1)


def _key(diagnosis: Diagnosis) -> tuple[str, int]:
    return diagnosis.run_id, diagnosis.window


def document(
    diagnoses: Sequence[Diagnosis],
    loaded: Loaded,
    seen: Mapping[tuple[str, int], Causes],
    predicted: Mapping[WindowKey, WhatIf],
    episodes: Sequence[Episode],
) -> dict[str, Any]:
    """Return the object of ``--json``; a window with operator events has ``kair`` beside the verdict, a
    replayed one ``what_if``. ``episodes`` are where in their runs effects began and ended (``Episode``)."""
    windows = []
    for diagnosis in diagnoses:
        found = seen.get(_key(diagnosis))
        replayed = predicted.get(WindowKey(*_key(diagnosis)))
        windows.append(
            diagnosis.document()
            | ({} if found is None else {"kair": found.document()})
            | ({} if replayed is None else {"what_if": asdict(replayed)})
        )
    return {
        "windows": windows,
        "episodes": [asdict(episode) for episode in episodes],
        "quarantined": [
            {"path": str(refused.path), "reason": refused.reason} for refused in loaded.quarantined
        ],
    }


def flat_row(diagnosis: Diagnosis, found: Causes | None = None) -> dict[str, Any]:
    """Return one window as a row of scalars: lists joined by ';', one column per stage and kind of share."""
    aim, leader = diagnosis.aim, diagnosis.leader
    main, resolution = diagnosis.main_finding, diagnosis.resolution
    row: dict[str, Any] = {
        "run_id": diagnosis.run_id,
        "window": diagnosis.window,
        "group": diagnosis.group,
        "frontier": diagnosis.frontier,
        "steps": diagnosis.steps,
        "ranks": diagnosis.ranks,
        "exposed_makespan_ns": diagnosis.exposed_makespan_ns,
        "step_time_mean_ns": diagnosis.step_time.mean_ns,
        "step_time_p50_ns": diagnosis.step_time.p50_ns,
        "step_time_p95_ns": diagnosis.step_time.p95_ns,
        "change": diagnosis.change,
        "severity": diagnosis.severity,
        "exposed_imbalance": diagnosis.exposed_imbalance,
        "needs_attention": diagnosis.needs_attention,
        "effect": main.effect if main else None,
        "effect_low": main.low if main else None,
        "effect_high": main.high if main else None,
        "effect_chance": main.chance if main else None,
        "resolution_growth": resolution.growth if resolution else None,
        "culprit": diagnosis.document().get("culprit"),
        "aim_stage": aim.stage if aim else None,
        "aim_rank": aim.rank if aim else None,
        "aim_hostname": aim.hostname if aim else None,
        "aim_basis": aim.basis if aim else None,
        "labels": ";".join(diagnosis.label_names),
        "reasons": ";".join(diagnosis.all_reasons),
        "routing_set": ";".join(diagnosis.routing_set or ()),
        "leader_rank": leader.rank if leader else None,
        "leader_share": leader.share if leader else None,
        "missing_ranks": len(diagnosis.missing_ranks),
        "gather_ok": diagnosis.gather_ok,
    } | ({} if found is None else found.row())
    for name, values in (
        ("share", diagnosis.shares),
        ("carry_over_share", diagnosis.carry_over_shares),
        ("static_gain", diagnosis.static_gain),
        ("excess", diagnosis.excess),
    ):
        row |= {f"{name}.{stage}": value for stage, value in (values or {}).items()}
    return row


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return every column of any row, in order of first appearance: stages may differ between runs."""
    return list(dict.fromkeys(name for row in rows for name in row))


def write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: [row.get(name) for row in rows] for name in _columns(rows)})
    pq.write_table(table, path, compression="zstd")
    click.echo(f"{table.num_rows} windows written to {path}", err=True)


def print_table(
    diagnoses: Sequence[Diagnosis],
    loaded: Loaded,
    seen: Mapping[tuple[str, int], Causes],
    predicted: Mapping[WindowKey, WhatIf],
    episodes: Sequence[Episode],
) -> None:
    """Print a table in which slow windows stand out. What operator events and a replay say of a window
    stands below it, and below the windows of a run where in it effects began and ended."""
    header = ("window", "step", "change", "effect (95 %)", "likely cause", "labels")
    rows = [_table_row(diagnosis) for diagnosis in diagnoses]
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    run = None
    for diagnosis, row in zip(diagnoses, rows, strict=True):
        if diagnosis.run_id != run:
            _print_run_end(run, diagnoses, episodes)
            run = diagnosis.run_id
            size = f"{format.counted(diagnosis.ranks, 'rank')} on {format.counted(diagnosis.nodes, 'node')}"
            click.secho(f"\nrun {printable(run)}: {size}", bold=True)
            click.secho(_aligned(header, widths), dim=True)
        click.secho(_aligned(row, widths), fg=None if diagnosis.is_quiet else "yellow")
        if (found := seen.get(_key(diagnosis))) is not None:
            for line in (found.headline, *found.sentences):
                click.echo(f"{'':{widths[0]}}  {printable(line)}")
        if (replayed := predicted.get(WindowKey(*_key(diagnosis)))) is not None:
            click.echo(f"{'':{widths[0]}}  {printable(words.what_if_sentence(replayed))}")
    _print_run_end(run, diagnoses, episodes)
    if loaded.quarantined:
        click.secho(f"\n{format.counted(len(loaded.quarantined), 'file')} quarantined:", fg="red")
        for refused in loaded.quarantined:
            click.echo(f"  {printable(str(refused.path))}: {printable(refused.reason)}")


def _print_run_end(run: str | None, diagnoses: Sequence[Diagnosis], episodes: Sequence[Episode]) -> None:
    """Print how many windows of a run need attention, and where in it effects began and ended."""
    own = [diagnosis for diagnosis in diagnoses if diagnosis.run_id == run]
    if not own:
        return
    slow = sum(diagnosis.needs_attention for diagnosis in own)
    by_chance = f" ({words.attention_by_chance(len(own), own[0].gates.alpha)})" if slow else ""
    incomplete = sum(bool(diagnosis.missing_ranks) for diagnosis in own)
    click.echo(f"{words.attention_count(slow, len(own), incomplete)}{by_chance}")
    for episode in episodes:
        if episode.run_id == run:
            click.echo(episode_line(episode))


def _table_row(diagnosis: Diagnosis) -> tuple[str, ...]:
    return (
        str(diagnosis.window),
        format.duration(diagnosis.step_time.mean_ns),
        "–" if diagnosis.change is None else format.percent_change(diagnosis.change),
        words.effect_cell(diagnosis),
        printable(words.summary(diagnosis)),
        ", ".join(map(label_words, diagnosis.label_names[1:] or diagnosis.label_names)),
    )


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
