"""``sfapp ingest``: read packets into the file of a store, on this machine or on a cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from sfapp.cli.console_messages import message, message_option, print_json, shows_progress
from sfapp.cli.engine_options import engine_options
from sfapp.cli.packet_paths import PacketPath, given_storage_options, storage_options
from sfapp.cli.signals import cancelled_by_signals
from sfapp.storage import StoragePath, location, redacted


@click.command()
@click.argument("paths", nargs=-1, required=True, type=PacketPath())
@click.option(
    "--to",
    "target",
    required=True,
    metavar="FILE|FOLDER/",
    help="File of the store; or, if it ends in a slash, is a folder or an address, a dataset of Parquet "
    "files. The next call reads new and changed packets only.",
)
@storage_options
@engine_options
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object.")
@message_option
def ingest(
    paths: Sequence[StoragePath], target: str, engine: str, address: str | None, as_json: bool
) -> None:
    """Read and diagnose the packets under PATHS, and keep the verdicts: in a file for `sfapp serve --db`, or
    as a dataset, partitioned by run and day, which serve, fleet, mcp, DuckDB and Polars read (docs/fleet.md).

    Every batch of packets is stored as a whole. Ctrl-C stops after the current one, and the next call reads
    the rest. A damaged packet is set aside, and a task whose worker is lost runs again on another one.

    \b
    sfapp ingest packets --to fleet.duckdb
    sfapp ingest s3://bucket/packets --to s3://bucket/verdicts --engine ray --address auto
    sfapp fleet s3://bucket/verdicts
    """
    from sfapp.engines import packet_reader
    from sfapp.store import IngestProgress, Store, ingest_to_dataset

    with cancelled_by_signals() as cancel, packet_reader(engine, address) as reader:
        is_shown = shows_progress()

        def show(progress: IngestProgress) -> None:
            if is_shown:
                click.echo(
                    f"\r\x1b[K{progress.phase} {progress.done:,} of {progress.total:,}", nl=False, err=True
                )

        path = location(target, given_storage_options())
        if target.endswith("/") or not isinstance(path, Path) or path.is_dir():
            report, written = ingest_to_dataset(paths, path, show, cancel, reader)
            windows = written.windows
        else:
            with Store.open(paths, path) as store:
                report = store.ingest(show, cancel, reader)
                windows = sum(run.windows for run in store.runs())
    if is_shown:
        click.echo("\r\x1b[K", nl=False, err=True)
    if as_json:
        print_json({**asdict(report), "windows": windows, "store": redacted(target)})
    else:
        click.echo(
            f"{report.added:,} packets read in {report.seconds:.1f} s, {report.unchanged:,} unchanged, "
            f"{report.quarantined:,} set aside, {report.removed:,} removed: "
            f"{windows:,} windows in {redacted(target)}"
        )
    if report.cancelled:
        message("sfapp: stopped; the next call reads the rest")
        sys.exit(1)
