"""``sfapp validate``: print every fault of every packet file, for terminals, scripts and CI."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext

import click

from sfapp.cli.console_messages import message_option, print_json, shows_progress
from sfapp.cli.packet_paths import PacketPath, storage_options
from sfapp.errors import PacketError
from sfapp.packets import find_packets, validate_packet
from sfapp.storage import StoragePath

_MANY_FILES = 50
"""Number of files from which a terminal shows the progress."""


@click.command()
@click.argument("paths", nargs=-1, required=True, type=PacketPath())
@storage_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every fault.")
@message_option
def validate(paths: Sequence[StoragePath], as_json: bool) -> None:
    """Check the packet files under PATHS and print every fault with its file, row and column.

    A fault that repeats over the rows of a column is printed once, at its first row. The exit code is 1 if
    there is any fault.

    \b
    sfapp validate packets
    sfapp validate packets --json | jq -r '.faults[] | .path' | sort -u
    """
    files = find_packets(paths)
    faults = _faults_of(files)
    if as_json:
        print_json(_document(files, faults), indent=2)
    else:
        for fault in faults:
            click.echo(str(fault))
        click.echo(_summary(files, faults, paths))
    sys.exit(1 if faults else 0)


def _faults_of(files: Sequence[StoragePath]) -> list[PacketError]:
    shown = len(files) >= _MANY_FILES and shows_progress()
    bar = click.progressbar(files, label="Checking", file=sys.stderr) if shown else nullcontext(files)
    with bar as each:
        return [fault for file in each for fault in validate_packet(file)]


def _bad_files(faults: Iterable[PacketError]) -> int:
    return len({fault.path for fault in faults})


def _document(files: Sequence[StoragePath], faults: Sequence[PacketError]) -> dict[str, object]:
    return {
        "files": len(files),
        "bad_files": _bad_files(faults),
        "faults": [
            {"path": fault.path, "row": fault.row, "column": fault.column, "reason": fault.reason}
            for fault in faults
        ],
    }


def _summary(
    files: Sequence[StoragePath], faults: Sequence[PacketError], paths: Sequence[StoragePath]
) -> str:
    if not files:
        places = ", ".join(repr(str(path)) for path in paths)
        return f"no packet files (*.parquet) under {places}"
    checked = f"{len(files):,} file{'s' if len(files) != 1 else ''} checked"
    if not faults:
        return f"{checked}: no faults"
    bad = _bad_files(faults)
    return (
        f"{checked}: {len(faults):,} fault{'s' if len(faults) != 1 else ''} "
        f"in {bad:,} file{'s' if bad != 1 else ''}"
    )
