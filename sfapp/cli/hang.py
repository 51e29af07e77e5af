"""``sfapp hang``: find the ranks that block a stalled job, from its Flight Recorder dumps."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sfapp.importers import ImportNote, ImportOptions
from sfapp.importers.recorded_calls import read_calls
from sfapp.operators.hang import Hang, HangEvidence, HangSuspect, find_hang
from sfapp.operators.hang_waits import Wait
from sfapp.packets.stack_files import newest_dumps
from sfapp.terminal import printable
from sfapp.views import format
from sfapp.views.text.hang import evidence_words, hang_headline, hang_text

_SHOWN_NOTES = 5
_WIDTHS = 40, 110


@click.command()
@click.argument(
    "paths", metavar="DUMPS...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
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
    progress = _progress if sys.stderr.isatty() and not as_json else None
    dumps = [(newest_dumps(path) or path) if path.is_dir() else path for path in paths]
    job, notes, files = read_calls(dumps, ImportOptions(progress=progress))
    found = find_hang(job)
    if as_json:
        click.echo(json.dumps(document(found, notes, files), ensure_ascii=False, indent=2))
        return
    for indent, line in hang_text(found):
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


def document(found: Hang, notes: Sequence[ImportNote], files: Sequence[Path]) -> dict[str, Any]:
    """Return the object of ``--json``."""
    return {
        "headline": hang_headline(found),
        "suspects": [_suspect(each) for each in found.suspects],
        "groups": [_wait(each) for each in found.waits],
        "lags": [
            {
                "rank": lag.rank,
                "group": lag.group.name,
                "description": lag.group.description,
                "call": lag.call,
                "sequence": lag.sequence,
                "completed_on": lag.completed_on,
            }
            for lag in found.lags
        ],
        "ranks_with_dump": found.ranks_with_dump,
        "ranks_without_entries": found.ranks_without_entries,
        "ranks_without_dump": found.ranks_without_dump,
        "files": [str(path) for path in files],
        "notes": [{"kind": note.kind, "what": note.what, "where": note.where} for note in notes],
    }


def _suspect(suspect: HangSuspect) -> dict[str, Any]:
    waits = [each.wait for each in suspect.evidence if each.wait and suspect.rank in each.wait.held_by]
    return {
        "rank": suspect.rank,
        "certainty": suspect.certainty,
        "waiting": suspect.waiting,
        "groups": list(dict.fromkeys(wait.group.name for wait in waits)),
        "evidence": [_evidence(each) for each in suspect.evidence],
    }


def _evidence(evidence: HangEvidence) -> dict[str, Any]:
    shown: dict[str, Any] = {"kind": evidence.kind, "text": evidence_words(evidence)}
    if evidence.wait is not None:
        shown |= _wait(evidence.wait) | {"last_called": evidence.last_called}
    return shown


def _wait(wait: Wait) -> dict[str, Any]:
    return {
        "group": wait.group.name,
        "description": wait.group.description,
        "ranks": wait.group.ranks,
        "reason": wait.reason,
        "call": wait.call,
        "sequence": wait.sequence,
        "waiting": wait.waiting,
        "held_by": wait.held_by,
        "other_call": wait.other_call or None,
    }
