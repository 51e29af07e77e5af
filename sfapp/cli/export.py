"""``sfapp export``: write the operator events of a window for another tool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from sfapp.cli.console_messages import message, message_option
from sfapp.cli.packet_paths import PacketPath, storage_options
from sfapp.cli.shared_options import window_key
from sfapp.errors import WindowNotFoundError
from sfapp.importers.perfetto_export import slice_of, write_perfetto
from sfapp.model.view import WindowKey
from sfapp.operators import events_of
from sfapp.packets import LoadedWindow, read_packet_operators, read_windows
from sfapp.storage import StoragePath
from sfapp.terminal import printable
from sfapp.views import format

_SHOWN = 20


@click.command()
@click.argument("target", metavar="FORMAT", type=click.Choice(["perfetto"]))
@click.argument("paths", nargs=-1, required=True, type=PacketPath())
@storage_options
@click.option(
    "--window", "chosen", metavar="RUN/WINDOW", help="Window to export; optional if there is only one."
)
@click.option("--step", "steps", type=int, multiple=True, help="Export only this step; may be repeated.")
@click.option("--rank", "ranks", type=int, multiple=True, help="Export only this rank; may be repeated.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="ZIP archive to write.",
)
@message_option
def export(
    target: str,
    paths: Sequence[StoragePath],
    chosen: str | None,
    steps: Sequence[int],
    ranks: Sequence[int],
    output: Path,
) -> None:
    """Export one window of the packets under PATHS, all its ranks on one time axis.

    FORMAT perfetto is an archive for https://ui.perfetto.dev, with one track per thread and stream, grouped
    by rank and node. If the window has no operator events, its stages are shown end to end.

    \b
    sfapp export perfetto packets --window train-7/12 --step 500 --rank 5 --rank 6 -o slice.zip
    """
    found = _one_of(read_windows(paths).windows, None if chosen is None else window_key(chosen, "--window"))
    recorded = read_packet_operators(packet.path for packet in found.packets)
    operators, note = events_of(recorded, found.window)
    kept = slice_of(operators, steps, ranks)
    size = write_perfetto(kept, found.window.ranks, output, note)
    if note:
        message(note)
    events, where = format.counted(len(kept), "event"), format.counted(len(kept.ranks), "rank")
    message(f"{events} of {where}, {size / 1e3:.0f} kB: {output}")


def _one_of(windows: Sequence[LoadedWindow], key: WindowKey | None) -> LoadedWindow:
    known = {WindowKey(each.window.run_id, each.window.number): each for each in windows}
    if key is None and len(known) == 1:
        return windows[0]
    if key is not None and key in known:
        return known[key]
    names = [str(each) for each in sorted(known, key=lambda each: (each.run_id, each.window))]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    there = printable(", ".join(names[:_SHOWN])) + more
    if key is None:
        raise WindowNotFoundError(f"choose a window with --window: {there or 'there is none'}")
    raise WindowNotFoundError(f"there is no window {printable(str(key))} here: {there or 'none'}")
