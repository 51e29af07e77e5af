"""``sfapp analyze``: print the verdict on every window of some packets, without a browser or a store."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from sfapp.accounting import WhatIf
from sfapp.cli.console_messages import message, message_option, print_json
from sfapp.cli.engine_options import engine_options
from sfapp.cli.packet_paths import PacketPath, storage_options
from sfapp.cli.shared_options import fix_from, gate_options, view_from, view_options
from sfapp.errors import SfappError
from sfapp.files import output_writer
from sfapp.model import Diagnosis
from sfapp.model.labels import label_words
from sfapp.model.problems import Problem, problem_status, shown_status
from sfapp.model.view import WindowKey
from sfapp.packets import Loaded
from sfapp.service.causes import Causes
from sfapp.service.csv_table import csv_text
from sfapp.service.packet_analysis import AnalysisRequest, TaskRunner, analyse_packets
from sfapp.service.problems import listed
from sfapp.storage import StoragePath
from sfapp.terminal import printable
from sfapp.views import format
from sfapp.views import text as words
from sfapp.views.text.host_evidence import causes_of
from sfapp.views.text.pipeline import pipeline_sentences
from sfapp.views.text.problems import count_problems, problem_text, problems_headline
from sfapp.views.text.verdict import verdict_reasons

_MOST_PROBLEMS = 20
_MOST_RANGES = 6
"""Maximum number of problems, and of window ranges in a row, in a terminal."""


@click.command()
@click.argument("paths", nargs=-1, required=True, type=PacketPath())
@storage_options
@engine_options
@gate_options
@view_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every window.")
@click.option("--csv", "as_csv", is_flag=True, help="Print one CSV row per window.")
@click.option(
    "--parquet",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the rows of --csv to this Parquet file.",
)
@message_option
@click.option(
    "--what-if",
    "fixed",
    is_flag=False,
    flag_value="",
    metavar="[STAGE][@RANK|@node:K|@all]",
    help="Predict the step time if a stage, a rank or all ranks of a node were as fast as a typical rank, by "
    "replaying each window; without a value, the suspect; @all: every rank in every stage. A replay needs "
    "waits within stages; without them, print the range between static gain and excess.",
)
@click.option("--strict", is_flag=True, help="Exit with code 1 if any file is quarantined.")
def analyze(
    paths: Sequence[StoragePath],
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
    engine: str,
    address: str | None,
    **gates: Any,
) -> None:
    """Print the verdict on every window under PATHS, which are packet files or folders, or their addresses
    in an object store (docs/fleet.md).

    If a window has operator events next to its packet, as `sfapp import` writes them, the command also names
    the first operator that delayed other ranks, and whether it confirms the verdict.

    \b
    sfapp analyze packets
    sfapp analyze s3://bucket/packets
    sfapp analyze s3://bucket/packets --engine ray --json
    sfapp analyze packets --json | jq '.windows[] | select(.severity > 0.05) | .aim'
    sfapp analyze packets --preset paper --tau-c 0.9 --group node:1
    """
    request = AnalysisRequest(
        view_from(preset, frontier, baseline, reference, group, gates),
        predicts=fixed is not None,
        fix=fix_from(fixed) if fixed else None,
    )
    with _tasks(engine, address) as run_tasks:
        found = analyse_packets(paths, request, run_tasks)
    diagnoses, seen, predicted, problems = found.diagnoses, found.causes, found.predicted, found.problems
    if not diagnoses and not found.quarantined:
        raise SfappError(
            f"no packets under {', '.join(map(str, paths))}: sfapp.Recorder and `sfapp import` write them as "
            ".parquet files; verdicts of `sfapp ingest` are read by `sfapp serve` and `sfapp fleet`"
        )
    loaded = Loaded((), found.quarantined, ())
    rows = [flat_row(diagnosis, seen.get(_key(diagnosis))) for diagnosis in diagnoses]
    if parquet is not None:
        write_parquet(rows, parquet)
    if as_json:
        print_json(document(diagnoses, loaded, seen, predicted, problems))
    elif as_csv:
        click.echo(csv_text(rows), nl=False)
    elif parquet is None:
        print_table(diagnoses, loaded, seen, predicted, problems)
    if strict and loaded.quarantined:
        sys.exit(1)


@contextmanager
def _tasks(engine: str, address: str | None) -> Iterator[TaskRunner | None]:
    """Yield what runs tasks on a cluster; None for this process."""
    if engine == "local" and address is None:
        yield None
        return
    from sfapp.engines import task_runner  # The base install has no engine.

    with task_runner(engine, address) as run_tasks:
        yield run_tasks


def _key(diagnosis: Diagnosis) -> tuple[str, int]:
    return diagnosis.run_id, diagnosis.window


def document(
    diagnoses: Sequence[Diagnosis],
    loaded: Loaded,
    seen: Mapping[tuple[str, int], Causes],
    predicted: Mapping[WindowKey, WhatIf],
    problems: Sequence[Problem],
) -> dict[str, Any]:
    """Return the object of ``--json``. A window with operator events also has ``kair``, a replayed one
    ``what_if``; ``problems`` are those of ``Problem``."""
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
        "problems": [one.document() for one in listed(problems)],
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
        ("resolution", resolution.rank if resolution else None),
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
    content = pa.BufferOutputStream()
    pq.write_table(table, content, compression="zstd")
    try:
        with output_writer(path) as file:
            file.write(content.getvalue())
    except OSError as error:
        raise SfappError(f"{path} cannot be written: {error.strerror}") from error
    message(f"{table.num_rows} windows written to {path}")


def print_table(
    diagnoses: Sequence[Diagnosis],
    loaded: Loaded,
    seen: Mapping[tuple[str, int], Causes],
    predicted: Mapping[WindowKey, WhatIf],
    problems: Sequence[Problem],
) -> None:
    """Print the problems, then a table of windows for every run. Windows with the same verdict share a row.
    Results of operator events and of a replay are below the row of their window."""
    if diagnoses:
        _print_problems(problems)
    for _, group in groupby(diagnoses, key=lambda diagnosis: diagnosis.run_id):
        _print_run(list(group), seen, predicted)
    if loaded.quarantined:
        click.secho(f"\n{format.counted(len(loaded.quarantined), 'file')} quarantined:", fg="red")
        for refused in loaded.quarantined:
            click.echo(f"  {printable(str(refused.path))}: {printable(refused.reason)}")


def _print_problems(problems: Sequence[Problem]) -> None:
    """Print the costliest problems, each with effect, onset and cost."""
    now = datetime.now(UTC)
    listed = [(problem, problem_status(problem, None, now)) for problem in problems]
    click.secho(problems_headline(*count_problems(listed, now)), bold=True)
    for problem, status in listed[:_MOST_PROBLEMS]:
        text = problem_text(problem, now=now)
        is_alarm = shown_status(problem, status, now) == "ongoing"
        click.secho(f"\n{printable(text.headline)}", fg="red" if is_alarm else "yellow")
        for line in ((text.cost, text.total), (text.where, text.since, text.until), (text.shared,)):
            if shown := " · ".join(filter(None, line)):
                click.echo(f"  {printable(shown)}")
    if len(problems) > _MOST_PROBLEMS:
        left = format.count(len(problems) - _MOST_PROBLEMS)
        click.echo(f"\nand {left} at lower cost: --json lists all")


def _print_run(
    diagnoses: Sequence[Diagnosis],
    seen: Mapping[tuple[str, int], Causes],
    predicted: Mapping[WindowKey, WhatIf],
) -> None:
    """Print the windows of one run and how many need attention."""
    first = diagnoses[0]
    size = f"{format.counted(first.ranks, 'rank')} on {format.counted(first.nodes, 'node')}"
    click.secho(f"\nrun {printable(first.run_id)}: {size}", bold=True)
    click.echo(_attention(diagnoses))
    groups = _with_same_verdict(diagnoses, seen, predicted)
    rows = [_table_row(group) for group in groups]
    header = ("window", "step", "change", "effect (95 %)", "likely cause", "labels")
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    click.secho(_aligned(header, widths), dim=True)
    for group, row in zip(groups, rows, strict=True):
        click.secho(_aligned(row, widths), fg=_colour(group[0]))
        for sentence in verdict_reasons(group[0]):
            click.echo(f"{'':{widths[0]}}  {printable(sentence)}")
        for line in pipeline_sentences(group[0]):
            click.echo(f"{'':{widths[0]}}  {printable(line)}")
        if (found := seen.get(_key(group[0]))) is not None:
            for line in (found.headline, *found.sentences):
                click.echo(f"{'':{widths[0]}}  {printable(line)}")
        if (replayed := predicted.get(WindowKey(*_key(group[0])))) is not None:
            click.echo(f"{'':{widths[0]}}  {printable(words.what_if_sentence(replayed))}")


def _colour(diagnosis: Diagnosis) -> str | None:
    """Return the colour of a window's row, always red if data are missing."""
    if diagnosis.lacks_data:
        return "red"
    return None if diagnosis.is_healthy else "yellow"


def _attention(diagnoses: Sequence[Diagnosis]) -> str:
    """Return the number of windows of a run that need attention, and the number that chance explains."""
    slow = sum(diagnosis.needs_attention for diagnosis in diagnoses)
    incomplete = sum(diagnosis.lacks_data for diagnosis in diagnoses)
    alpha = diagnoses[0].gates.alpha
    by_chance = f" ({words.attention_by_chance(len(diagnoses), alpha)})" if slow else ""
    return f"{words.attention_count(slow, len(diagnoses), incomplete)}{by_chance}"


def _with_same_verdict(
    diagnoses: Sequence[Diagnosis],
    seen: Mapping[tuple[str, int], Causes],
    predicted: Mapping[WindowKey, WhatIf],
) -> list[list[Diagnosis]]:
    """Return windows grouped by cause and labels, windows with missing data first; windows with additional
    lines are alone."""
    groups: dict[Any, list[Diagnosis]] = {}
    for diagnosis in diagnoses:
        is_alone = _key(diagnosis) in seen or WindowKey(*_key(diagnosis)) in predicted
        verdict = (
            words.summary(diagnosis),
            diagnosis.label_names,
            diagnosis.lacks_data,
            causes_of(diagnosis),
        )
        groups.setdefault(diagnosis.window if is_alone else verdict, []).append(diagnosis)
    return sorted(groups.values(), key=lambda group: not group[0].lacks_data)


def _table_row(group: Sequence[Diagnosis]) -> tuple[str, ...]:
    """Return the cells of windows with the same verdict: ranges, and the largest effect."""
    largest = max(group, key=lambda one: (one.main_finding.effect if one.main_finding else 0.0, one.window))
    changes = [one.change for one in group if one.change is not None]
    return (
        format.ranges((one.window for one in group), _MOST_RANGES),
        _between(format.duration(step) for step in _ends([one.step_time.mean_ns for one in group])),
        _between(format.percent_change(change) for change in _ends(changes)) if changes else "–",
        words.effect_cell(largest),
        printable(words.summary(group[0])),
        ", ".join(map(label_words, group[0].label_names[1:] or group[0].label_names)),
    )


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _between(shown: Iterable[str]) -> str:
    """Return ``88.8 ms`` if both ends have the same text, else ``88.8 ms … 90.4 ms``."""
    return " … ".join(dict.fromkeys(shown))


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
