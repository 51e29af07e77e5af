"""``sfapp demo``: browse the built-in sample job."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from sfapp.assets import EXAMPLES, assets, sample_packets
from sfapp.cli.serve import serve_from
from sfapp.cli.signals import temporary_folder
from sfapp.errors import SfappError


@click.command()
@click.option(
    "--port",
    default=8642,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes any free port.",
)
@click.option("--open", "browser", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--copy",
    "target",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Copy the sample job and the worked examples to a new folder instead, to try the other commands.",
)
def demo(port: int, browser: bool, target: Path | None) -> None:
    """Browse the built-in sample job: three recorded runs of 8 ranks, with one fault in each slow window.

    The packets are copied to a temporary folder, which is removed at the end with the notes that you wrote.
    The page can be reached from this machine only. Stop it with Ctrl-C.

    \b
    sfapp demo
    sfapp demo --open
    sfapp demo --copy demo
    """
    if target is not None:
        _copy(target)
        return
    with temporary_folder("sfapp-demo-") as scratch:
        packets = _copied(sample_packets(), scratch / "packets")

        def announce(address: str) -> None:
            click.echo(f"The sample job is at {address} (Ctrl-C stops)")
            click.echo(f"Its packets are in {packets} until then, also for sfapp analyze and sfapp report.")

        serve_from(
            scratch,
            lambda options: options(
                paths=(packets,), port=port, memory=True, browser=scratch if browser else None
            ),
            announce,
        )


def _copy(target: Path) -> None:
    """Copy the packets to a new folder, and print where they are.

    Raises:
        SfappError: the folder exists, or cannot be written.
    """
    try:
        target.mkdir(parents=True)
    except OSError as error:
        raise SfappError(f"cannot copy the packets to {str(target)!r}: {error.strerror}") from error
    try:
        sample = _copied(sample_packets(), target / "sample")
        examples = _copied(assets() / EXAMPLES, target / "examples")
    except SfappError:
        shutil.rmtree(target, ignore_errors=True)  # A part of a copy would be in the way of the next call.
        raise
    click.echo(f"The sample job is in {sample}, the worked examples are in {examples}.")


def _copied(packets: Path, target: Path) -> Path:
    """Copy packets to a new folder.

    Raises:
        SfappError: it cannot be written.
    """
    try:
        return Path(shutil.copytree(packets, target, ignore=_other_files))
    except OSError as error:
        why = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
        raise SfappError(f"cannot copy the packets to {str(target)!r}: {why}") from error


def _other_files(folder: str, names: list[str]) -> list[str]:
    """Return names that are no packets: those who browsed the sample of a checkout left a store and notes."""
    return [name for name in names if name.startswith(".")]
