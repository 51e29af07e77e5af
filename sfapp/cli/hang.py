"""``sfapp hang``: find the ranks that block a stalled job, from its Flight Recorder dumps."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path

import click

from sfapp.cli.console_messages import message_option, print_json, shows_progress
from sfapp.service.hang import analyze_dumps
from sfapp.terminal import printable
from sfapp.views import format
from sfapp.views.text.hang import hang_text

_SHOWN_NOTES = 5
_WIDTHS = 40, 110


@click.command()
@click.argument(
    "paths", metavar="DUMPS...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@message_option
def hang(paths: Sequence[Path], as_json: bool) -> None:
    """Find the ranks that block a stalled job. DUMPS are PyTorch Flight Recorder dumps (pickle or
    JSON) of one job, one file per rank, or folders with such files.

    A dump's name ends in its rank, as torch writes it. Other files in a folder are skipped with a note. No
    code in a pickle is run. A packet folder stands for the dumps that came with the newest stacks.

    \b
    sfapp hang /tmp/nccl_trace_rank_*
    sfapp hang packets
    sfapp hang dumps/ --json | jq '.suspects[0]'
    """
    analysis = analyze_dumps(paths, _progress if shows_progress() and not as_json else None)
    if as_json:
        print_json(analysis.document(), indent=2)
        return
    notes = analysis.notes
    for indent, line in hang_text(analysis.found):
        _print(line, indent)
    if notes:
        click.echo()
    for note in notes[:_SHOWN_NOTES]:
        _print(f"{note.kind}: {note}")
    if len(notes) > _SHOWN_NOTES:
        click.echo(f"and {format.counted(len(notes) - _SHOWN_NOTES, 'more note')}: --json prints all")


def _progress(path: Path, done: int, total: int) -> None:
    click.echo(f"\r[{done + 1}/{total}]", err=True, nl=done + 1 == total)


def _print(line: str, indent: int = 0) -> None:
    """Print a line, wrapped to the terminal; names in it come from the dumps."""
    narrowest, widest = _WIDTHS
    width = min(max(shutil.get_terminal_size().columns, narrowest), widest)
    left = " " * indent
    wrapped = textwrap.wrap(
        printable(line),
        width,
        initial_indent=left,
        subsequent_indent=left + "  ",
        break_long_words=False,  # a path stays one word, so that it can be copied
        break_on_hyphens=False,
    )
    click.echo("\n".join(wrapped))
