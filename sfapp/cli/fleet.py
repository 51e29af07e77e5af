"""``sfapp fleet``: what the runs under some folders show together."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from sfapp.cli.console_messages import print_json
from sfapp.cli.packet_paths import PacketPath, storage_options
from sfapp.cli.signals import cancelled_by_signals
from sfapp.model.fleet import Fleet
from sfapp.model.trends import Trends
from sfapp.storage import StoragePath
from sfapp.terminal import printable

_MOST_HOSTS = 10
_MOST_RUNS = 20
_MOST_REFUSED = 20
"""Hosts, runs and refused files that are listed in a terminal."""


@click.command()
@click.argument("paths", nargs=-1, required=True, type=PacketPath())
@storage_options
@click.option("--text", default="", help="Only hosts and runs whose name, stage or state has these words.")
@click.option(
    "--by",
    default="day",
    show_default=True,
    metavar="FIELD",
    help="Field by which runs are compared: `day`, or what jobs state, such as `image` or `torch_version`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every host and run.")
@click.option(
    "--db",
    type=click.Path(path_type=Path),
    help="Keep results in this file, so that the next call reads new packets only. It may be the store of "
    "`sfapp serve` while that does not run.",
)
def fleet(paths: Sequence[StoragePath], text: str, by: str, as_json: bool, db: Path | None) -> None:
    """Show what the runs under PATHS have in common.

    It names hosts that have the late rank in more runs than expected by chance, and says where time is lost,
    which runs need attention, and whether runs became slower.

    \b
    sfapp fleet packets
    sfapp fleet s3://bucket/packets --db fleet.duckdb --json | jq '.suspects'
    """
    from sfapp.service.fleet import FleetQuery, fleet_document, fleet_of
    from sfapp.service.trends import trends_of
    from sfapp.store import Store

    with Store.open(paths, db, memory=db is None) as store:
        with cancelled_by_signals() as cancel:
            report = store.ingest(cancel=cancel)
        if report.cancelled:
            click.echo("sfapp: stopped before all packets were read", err=True)
            sys.exit(1)
        found, trends = FleetQuery(text).select(fleet_of(store)), trends_of(store, by)
        refused = store.quarantine()
    for file in refused[:_MOST_REFUSED]:
        click.echo(f"sfapp: left out {printable(f'{file.name}: {file.reason}')}", err=True)
    if (more := len(refused) - _MOST_REFUSED) > 0:
        click.echo(f"sfapp: left out {more:,} more", err=True)
    if as_json:
        print_json(fleet_document(found, trends=trends))
        return
    for line in (*_lines(found), *_trend_lines(trends)):
        click.echo(printable(line))


def _lines(fleet: Fleet) -> Iterator[str]:
    from sfapp.views import format
    from sfapp.views.text.fleet import STATE_WORDS, fleet_headline, host_advice, host_sentence
    from sfapp.views.text.problems import rank_time

    yield fleet_headline(fleet)
    for host in fleet.suspects[:_MOST_HOSTS]:
        yield from (
            "",
            format.clip(host.hostname, 80),
            f"  {host_sentence(host)}",
            f"  {host_advice(host)}",
        )
    yield from ("", f"{'time lost in':<25}{'above healthy steps':>20}{'imbalance':>20}")
    for lost in fleet.lost:
        stage = format.clip(format.short_stage(lost.stage), 23)
        yield f"  {stage:<23}{rank_time(lost.above_healthy):>20}{rank_time(lost.imbalance):>20}"
    yield from ("", f"{'run':<42}{'state':<17}{'windows':>10}{'above healthy steps':>22}")
    for run in fleet.runs[:_MOST_RUNS]:
        troubled = f"{run.troubled_windows:,} of {run.windows:,}"
        name = format.clip(run.run_id, 40)
        yield f"  {name:<40}{STATE_WORDS[run.state]:<17}{troubled:>10}{rank_time(run.above_healthy):>22}"
    if len(fleet.runs) > _MOST_RUNS:
        yield f"  … {len(fleet.runs) - _MOST_RUNS:,} more runs: --json has all"


def _trend_lines(trends: Trends) -> Iterator[str]:
    from sfapp.views import format
    from sfapp.views.text.trends import (
        basis_text,
        difference_text,
        field_name,
        left_out_text,
        lost_share,
        points_text,
        trends_headline,
    )

    yield from ("", trends_headline(trends))
    if not trends.groups:
        return
    name = field_name(trends.by).lower() if trends.by == "day" else field_name(trends.by)
    yield f"{name:<42}{'runs':>6}{'healthy step':>14}{'difference':>31}{'lost':>8}{'difference':>33}"
    for group in trends.groups:
        yield (
            f"  {format.clip(group.value, 38):<40}{group.runs:>6,}{format.duration(group.step_ns):>14}"
            f"{difference_text(group.step):>31}{lost_share(group):>8}{points_text(group.lost):>33}"
        )
    if left_out := left_out_text(trends):
        yield f"  … {left_out}"
    yield basis_text(trends)
