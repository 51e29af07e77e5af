"""``sfapp ingest``: read packets into the file of a store, on this machine or on a cluster."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import click

from sfapp.cli.console_messages import message, message_option, shows_progress
from sfapp.cli.engine_options import engine_options
from sfapp.cli.packet_paths import PacketPath, storage_options
from sfapp.storage import StoragePath


@click.command()
@click.argument("paths", nargs=-1, required=True, type=PacketPath())
@click.option(
    "--to",
    "db",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File of the store; the next call reads new and changed packets only.",
)
@storage_options
@engine_options
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one JSON object.")
@message_option
def ingest(paths: Sequence[StoragePath], db: Path, engine: str, address: str | None, as_json: bool) -> None:
    """Read and diagnose the packets under PATHS, and store the verdicts in a file for `sfapp serve --db`.

    Every batch of packets is stored as a whole. Ctrl-C stops after the current one, and the next call reads
    the rest. A damaged packet is set aside, and a task whose worker is lost runs again on another one.

    \b
    sfapp ingest packets --to fleet.duckdb
    sfapp ingest s3://bucket/packets --to fleet.duckdb --engine ray --address auto
    sfapp serve s3://bucket/packets --db fleet.duckdb
    """
    from sfapp.engines import packet_reader
    from sfapp.store import IngestProgress, Store

    with _cancelled_by_signals() as cancel, packet_reader(engine, address) as reader:
        is_shown = shows_progress()

        def show(progress: IngestProgress) -> None:
            if is_shown:
                click.echo(
                    f"\r\x1b[K{progress.phase} {progress.done:,} of {progress.total:,}", nl=False, err=True
                )

        with Store.open(paths, db) as store:
            report = store.ingest(show, cancel, reader)
            windows = sum(run.windows for run in store.runs())
    if is_shown:
        click.echo("\r\x1b[K", nl=False, err=True)
    if as_json:
        click.echo(json.dumps({**asdict(report), "windows": windows, "store": str(db)}))
    else:
        click.echo(
            f"{report.added:,} packets read in {report.seconds:.1f} s, {report.unchanged:,} unchanged, "
            f"{report.quarantined:,} set aside, {report.removed:,} removed: {windows:,} windows in {db}"
        )
    if report.cancelled:
        message("sfapp: stopped; the next call reads the rest")
        sys.exit(1)


@contextmanager
def _cancelled_by_signals() -> Iterator[threading.Event]:
    """Set an event at the first Ctrl-C or SIGTERM; the second one ends the process as usual."""
    cancel = threading.Event()
    previous = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, _: FrameType | None) -> None:
        cancel.set()
        signal.signal(number, previous[number])

    for number in previous:
        signal.signal(number, stop)
    try:
        yield cancel
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
