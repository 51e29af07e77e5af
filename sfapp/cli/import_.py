"""``sfapp import``: convert traces of other tools to packets that every other command reads."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from sfapp.cli.console_messages import message_option, print_json, shows_progress
from sfapp.cli.signals import temporary_folder
from sfapp.errors import TemporaryFolderError, TraceError
from sfapp.importers import (
    IMPORT_FORMATS,
    ImportNote,
    ImportOptions,
    ImportResult,
    WrittenFiles,
    read_mapping,
    read_traces,
    write_imported,
)
from sfapp.terminal import printable
from sfapp.views import format

_SHOWN_NOTES = 20


class _ImportCommand(click.Command):
    """Command whose help ends with the list of formats."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Formats"):
            formatter.write_dl([(form.name, form.summary) for form in IMPORT_FORMATS.values()])


@click.command("import", cls=_ImportCommand)
@click.argument("source", metavar="FORMAT", type=click.Choice(list(IMPORT_FORMATS)))
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("packets"),
    show_default=True,
    help="Packet folder to write to.",
)
@click.option(
    "--mapping",
    "mapping_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML or JSON file that maps names to stages, columns and roles.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with files, errors and notes.")
@message_option
def import_(source: str, paths: Sequence[Path], out: Path, mapping_path: Path | None, as_json: bool) -> None:
    """Convert traces of another tool to packets. PATHS are files of FORMAT, or folders to search for them.

    The command prints which values were derived, guessed, missing or skipped; the packets record it too. A
    file that cannot be read is reported with the place of its fault, and the others are still converted. The
    exit code is 1 if any file is rejected.

    \b
    sfapp import kineto ./traces -o packets && sfapp serve packets
    sfapp import kineto ./traces --mapping stages.toml --json | jq '.windows[].notes'
    """
    mapping = read_mapping(mapping_path) if mapping_path else ImportOptions().mapping
    progress = _progress if shows_progress() and not as_json else None
    with _scratch() as scratch:
        options = ImportOptions(mapping=mapping, progress=progress, scratch=scratch, out=out)
        imported = read_traces(source, paths, options)
    written = write_imported(imported, out)
    refused = (*imported.refused, *written.refused)
    if as_json:
        print_json(_document(imported, written), indent=2)
    else:
        _print(imported, written)
    sys.exit(1 if refused else 0)


@contextmanager
def _scratch() -> Iterator[Path | None]:
    """Provide a folder that no signal leaves behind: a trace may expand to gigabytes there. None where there
    is none, because few traces need one."""
    with ExitStack() as stack:
        scratch = None
        with suppress(TemporaryFolderError):
            scratch = stack.enter_context(temporary_folder("sfapp-import-"))
        yield scratch


def _progress(path: Path, done: int, total: int) -> None:
    click.echo(f"[{done + 1}/{total}] {printable(path.name)}", err=True)


def _document(imported: ImportResult, written: WrittenFiles) -> dict[str, Any]:
    return {
        "format": imported.format,
        "windows": [
            {
                "run_id": each.draft.run_id,
                "window": each.draft.number,
                "steps": len(each.draft.step_N),
                "ranks": each.draft.ranks.rank,
                "missing_ranks": each.draft.manifest.missing_ranks,
                "stages": each.draft.stages,
                "operators": 0 if each.operators is None else len(each.operators),
                "notes": _notes(each.notes),
            }
            for each in imported.windows
        ],
        "packets": [str(path) for path in written.packets],
        "operators": [str(path) for path in written.operators],
        "refused": [_refusal(error) for error in (*imported.refused, *written.refused)],
        "notes": _notes(imported.notes),
    }


def _notes(notes: Sequence[ImportNote]) -> list[dict[str, str]]:
    return [{"kind": note.kind, "what": note.what, "where": note.where} for note in notes]


def _print_notes(notes: Sequence[ImportNote]) -> None:
    for note in notes[:_SHOWN_NOTES]:
        click.echo(f"  {note.kind}: {printable(str(note))}")
    if len(notes) > _SHOWN_NOTES:
        click.echo(f"  and {format.counted(len(notes) - _SHOWN_NOTES, 'note')} more: --json prints all")


def _refusal(error: TraceError) -> dict[str, str | None]:
    return {"path": error.path, "place": error.place, "reason": error.reason}


def _print(imported: ImportResult, written: WrittenFiles) -> None:
    for each in imported.windows:
        window = each.draft
        events = (
            "" if each.operators is None else f", {format.counted(len(each.operators), 'operator event')}"
        )
        click.echo(
            f"run {printable(window.run_id)}, window {window.number}: "
            f"{format.counted(len(window.step_N), 'step')}, {format.counted(len(window.ranks), 'rank')} of "
            f"{window.manifest.world_size:,}{events}"
        )
        _print_notes(each.notes)
    _print_notes(imported.notes)
    for error in (*imported.refused, *written.refused):
        click.secho(f"refused: {printable(str(error))}", fg="red", err=True)
    click.echo(f"{format.counted(len(written.packets), 'packet')} written")
