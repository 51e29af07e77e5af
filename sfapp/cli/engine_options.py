"""Options of commands that may read packets on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

ENGINES = ("local", "ray", "dask")  # as in ``sfapp.engines``, which is not imported for ``--help``


def engine_options(command: Command) -> Command:
    """Add ``--engine`` and ``--address``, the arguments of ``sfapp.engines.packet_reader``."""
    command = click.option(
        "--address",
        metavar="ADDRESS",
        help="Address of the Ray or Dask cluster [default: RAY_ADDRESS or DASK_SCHEDULER_ADDRESS, else "
        "processes on this machine].",
    )(command)
    return click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default="local",
        show_default=True,
        help="Where packets are read: on this machine's cores, or in tasks of Ray or Dask (docs/fleet.md).",
    )(command)
