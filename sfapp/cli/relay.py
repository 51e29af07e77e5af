"""``sfapp relay``: forward the streams of a node's ranks to the aggregator over one connection."""

from __future__ import annotations

from pathlib import Path

import click

from sfapp.cli.console_messages import print_if_possible
from sfapp.cli.signals import call_when_parent_ends, wait_for_stop_signal
from sfapp.process_limits import allow_open_files


@click.command()
@click.argument("aggregator")
@click.option(
    "--listen",
    default="tcp://127.0.0.1:29766",
    show_default=True,
    help="Address that this node's ranks connect to.",
)
@click.option(
    "--keys",
    type=click.Path(path_type=Path),
    help="File with the keys of the session [default: $SFAPP_STREAM_KEYS].",
)
@click.option("--attached", is_flag=True, hidden=True, help="Stop when stdin closes.")
def relay(aggregator: str, listen: str, keys: Path | None, attached: bool) -> None:
    """Forward the streams of this node's ranks to the address AGGREGATOR over one connection.

    A relay stores nothing and can be restarted at any time while the job runs.

    \b
    sfapp relay tcp://node0:29765 --keys session.keys
    """
    from sfapp.stream.encryption import Keys
    from sfapp.stream.relay import Relay

    allow_open_files()
    session = Keys.from_environment() if keys is None else Keys.load(keys)
    with Relay(listen, aggregator, session) as server, wait_for_stop_signal(attached) as stop:
        if attached:
            call_when_parent_ends(stop.set)
        print_if_possible(f"listening on {server.endpoint}", err=True)
        server.run(stop)
