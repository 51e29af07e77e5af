"""``sfapp aggregate``: receive the streams of a job's ranks and write packets."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sfapp.cli.console_messages import print_if_possible
from sfapp.cli.loading import modules_loading
from sfapp.cli.packet_paths import PacketPath, given_storage_options, storage_options
from sfapp.cli.shared_options import FiniteRange, standstill_option
from sfapp.cli.signals import call_when_parent_ends, wait_for_stop_signal
from sfapp.process_limits import allow_open_files
from sfapp.storage import StoragePath

if TYPE_CHECKING:
    from sfapp.stream import Aggregator, LiveSnapshot

_SILENT_SECONDS = 5.0
"""Seconds without a message after which a rank counts as ended, once the job has ended."""


@click.command()
@click.argument("packets", type=PacketPath(exists=False, file_okay=False))
@click.option(
    "--listen",
    default="tcp://127.0.0.1:29765",
    show_default=True,
    help="Address that relays and ranks connect to.",
)
@click.option(
    "--keys",
    type=click.Path(path_type=Path),
    help="File with the keys of the session [default: $SFAPP_STREAM_KEYS].",
)
@click.option("--make-keys", is_flag=True, help="First write new keys to the file given with --keys.")
@click.option(
    "--close-after",
    type=FiniteRange(0),
    default=30.0,
    show_default=True,
    help="Seconds that a window waits for its last ranks before it is written.",
)
@click.option(
    "--abandon-after",
    type=FiniteRange(0),
    default=60.0,
    show_default=True,
    help="Seconds without a message after which a rank's open window is written.",
)
@standstill_option
@storage_options
@click.option(
    "--attached", type=FiniteRange(0), hidden=True, help="Stop within this many seconds after stdin closes."
)
def aggregate(
    packets: StoragePath,
    listen: str,
    keys: Path | None,
    make_keys: bool,
    close_after: float,
    abandon_after: float,
    standstill_after: float,
    attached: float | None,
) -> None:
    """Receive the streams of a running job's ranks and write packets to the folder or bucket PACKETS.

    Ranks stream to the address in SFAPP_STREAM or Recorder(stream=...). An address that other machines can
    reach requires keys, the same on every node. Ctrl-C or SIGTERM stops it; it can be restarted at any time
    without losing steps, with the same folder or, for a bucket, with the same SFAPP_SPOOL.

    \b
    sfapp aggregate packets
    sfapp aggregate s3://my-bucket/packets
    sfapp aggregate packets --listen 'tcp://*:29765' --keys session.keys --make-keys
    """
    with modules_loading():
        from sfapp.operators.standstill import StandstillLimits, roll_call
        from sfapp.packets.output import open_output
        from sfapp.stream.aggregator import Aggregator
        from sfapp.stream.encryption import Keys
        from sfapp.stream.metrics_writer import MetricsWriter

    allow_open_files()
    if make_keys:
        if keys is None:
            raise click.UsageError("--make-keys also needs --keys FILE, the file to write")
        Keys.make().save(keys)
    session = Keys.from_environment() if keys is None else Keys.load(keys)
    rule = partial(roll_call, limits=StandstillLimits(standstill_after)) if standstill_after else None
    output = open_output(packets, given_storage_options(), "aggregator", discards=False)
    metrics = MetricsWriter(output.folder, standstills=rule)
    with (
        Aggregator(
            output,
            listen,
            session,
            close_after=close_after,
            abandon_after=abandon_after,
            on_samples=metrics.add_samples,
            on_steps=metrics.count_steps,
        ) as aggregator,
        metrics.running(aggregator.snapshot),
        wait_for_stop_signal(attached is not None) as stop,
    ):
        if attached is not None:
            call_when_parent_ends(lambda: _stop_after_the_last(aggregator, attached, stop))
        print_if_possible(f"listening on {aggregator.endpoint}", err=True)
        aggregator.run(stop)


def _stop_after_the_last(aggregator: Aggregator, seconds: float, stop: threading.Event) -> None:
    """Set ``stop`` once every rank has left or fallen silent, after ``seconds`` at the latest."""
    deadline = time.monotonic() + seconds
    silent_seconds = min(_SILENT_SECONDS, seconds / 2)
    while time.monotonic() < deadline and has_active_ranks(aggregator.snapshot(), silent_seconds):
        time.sleep(0.05)
    stop.set()


def has_active_ranks(snapshot: LiveSnapshot, silent_seconds: float) -> bool:
    """Return whether any rank has neither left nor been silent for ``silent_seconds``."""
    return any(not rank.has_left and rank.silent_seconds < silent_seconds for rank in snapshot.ranks)
