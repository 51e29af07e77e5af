"""``sfapp demo``: browse the built-in sample job."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import click

from sfapp.assets import sample_packets
from sfapp.cli.serve import serve_from


@click.command()
@click.option(
    "--port",
    default=8642,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes any free port.",
)
@click.option("--open", "browser", is_flag=True, help="Open the page in a browser.")
def demo(port: int, browser: bool) -> None:
    """Browse the built-in sample job: three recorded runs of 8 ranks, with one fault in each slow window.

    The packets are copied to a temporary folder, which is removed at the end with the notes that you wrote.
    The page can be reached from this machine only. Stop it with Ctrl-C.

    \b
    sfapp demo
    sfapp demo --open
    """
    with tempfile.TemporaryDirectory(prefix="sfapp-demo-") as scratch:
        packets = Path(shutil.copytree(sample_packets(), Path(scratch, "packets"), ignore=_other_files))

        def announce(address: str) -> None:
            click.echo(f"The sample job is at {address} (Ctrl-C stops)")
            click.echo(f"Its packets are in {packets} until then, also for sfapp analyze and sfapp report.")

        serve_from(
            Path(scratch),
            lambda options: options(paths=(packets,), port=port, memory=True, browser=browser),
            announce,
        )


def _other_files(folder: str, names: list[str]) -> list[str]:
    """Return names that are no packets: those who browsed the sample of a checkout left a store and notes."""
    return [name for name in names if name.startswith(".")]
