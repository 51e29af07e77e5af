"""``sfapp aggregate``: take the streams of a job's ranks and write packets."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sfapp.cli.signals import until_told_to_stop, with_parent

if TYPE_CHECKING:
    from sfapp.stream import Aggregator, LiveSnapshot

_SILENT_SECONDS = 5.0
"""A rank that was not heard for so long, once its job has ended, has ended too."""


@click.command()
@click.argument("packets", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--listen", default="tcp://127.0.0.1:29765", show_default=True, help="Where relays and ranks connect."
)
@click.option(
    "--keys",
    type=click.Path(path_type=Path),
    help="File with the session's keys [default: $SFAPP_STREAM_KEYS].",
)
@click.option("--make-keys", is_flag=True, help="Write new keys to the file that --keys names, first.")
@click.option(
    "--close-after", default=30.0, show_default=True, help="Seconds that a window waits for its last ranks."
)
@click.option(
    "--abandon-after", default=60.0, show_default=True, help="Seconds after which a silent rank is given up."
)
@click.option("--attached", type=float, hidden=True, help="End so many seconds after stdin has, at most.")
def aggregate(
    packets: Path,
    listen: str,
    keys: Path | None,
    make_keys: bool,
    close_after: float,
    abandon_after: float,
    attached: float | None,
) -> None:
    """Take the streams of a job's ranks while it runs and write packets to the folder PACKETS.

    Ranks stream where SFAPP_STREAM says, or Recorder(stream=...). Beyond this machine, keys are needed, the
    same on every node. Ctrl-C or SIGTERM stops; nothing is lost by starting again.

    \b
    sfapp aggregate packets
    sfapp aggregate packets --listen 'tcp://*:29765' --keys session.keys --make-keys
    """
    from sfapp.stream.aggregator import Aggregator
    from sfapp.stream.metrics_writer import MetricsWriter
    from sfapp.stream.security import Keys

    if make_keys:
        if keys is None:
            raise click.UsageError("--make-keys needs --keys FILE, to write them to")
        Keys.make().save(keys)
    gc.freeze()  # what is imported stays: looking through all of it takes a tenth of a second each time
    session = Keys.from_environment() if keys is None else Keys.load(keys)
    collector = MetricsWriter(packets)
    with (
        Aggregator(
            packets,
            listen,
            session,
            close_after=close_after,
            abandon_after=abandon_after,
            on_samples=collector.take,
            on_steps=collector.count,
        ) as aggregator,
        collector.running(aggregator.snapshot),
        until_told_to_stop(attached is not None) as stop,
    ):
        if attached is not None:
            with_parent(lambda: _stop_after_the_last(aggregator, attached, stop))
        click.echo(f"listening on {aggregator.endpoint}", err=True)
        aggregator.run(stop)


def _stop_after_the_last(aggregator: Aggregator, seconds: float, stop: threading.Event) -> None:
    """Set ``stop`` once every rank has left or fallen silent, and after so many seconds in any case."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and somebody_speaks(
        aggregator.snapshot(), min(_SILENT_SECONDS, seconds / 2)
    ):
        time.sleep(0.05)
    stop.set()


def somebody_speaks(now: LiveSnapshot, silent_seconds: float) -> bool:
    """Whether a rank that has not said goodbye was heard lately."""
    return any(not rank.has_left and rank.silent_seconds < silent_seconds for rank in now.ranks)
