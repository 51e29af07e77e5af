"""What an importer yields, and how it becomes files: windows, operator events, and what the source lacks.

Whatever a source does not say is derived by a rule, guessed, or missing; each such thing is a note, and goes
into the packet's manifest too, so that it is still there when the trace is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from sfapp import __version__
from sfapp.errors import PacketError, TraceError
from sfapp.importers.mapping import NO_MAPPING, Mapping
from sfapp.model import RecorderInfo, Window
from sfapp.model.operators import Operators
from sfapp.packets import Draft, operators_path, packet_path, write_operators, write_packet

NoteKind = Literal["derived", "guessed", "missing", "skipped"]
NOTE_KINDS: tuple[NoteKind, ...] = ("derived", "guessed", "missing", "skipped")

_MOST_NOTES = 50
"""Of one kind in a manifest; further ones are counted."""


@dataclass(frozen=True, slots=True)
class ImportNote:
    """One thing that the source did not say.

    Attributes:
        kind: ``derived`` by a documented rule, ``guessed`` where the source leaves it open, ``missing`` and
            so absent, ``skipped`` although it was there.
        what: one sentence for people.
        where: the file, rank or run it is about; empty where it is about all of them.
    """

    kind: NoteKind
    what: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


@dataclass(frozen=True, slots=True)
class Options:
    """How to import.

    Attributes:
        mapping: which foreign names are which stages, columns and roles.
        progress: called with a file before it is read, how many were, and how many there are.
    """

    mapping: Mapping = NO_MAPPING
    progress: Callable[[Path, int, int], None] | None = None

    def each(self, paths: Sequence[Path]) -> Iterator[Path]:
        """The paths one by one, telling progress before each."""
        for done, path in enumerate(paths):
            if self.progress is not None:
                self.progress(path, done, len(paths))
            yield path


@dataclass(frozen=True, eq=False)
class ImportedWindow:
    """One window with what belongs to it.

    Attributes:
        draft: the stage matrix; its manifest needs no notes yet.
        operators: its operator events, None where the source has none.
        notes: what was derived, guessed, missing or skipped for it.
    """

    draft: Draft
    operators: Operators | None = None
    notes: tuple[ImportNote, ...] = ()

    @cached_property
    def window(self) -> Window:
        """The same as a window that can be diagnosed."""
        return self.draft.window()


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """What came of some files.

    Attributes:
        format: the format's name.
        windows: every window, by run and number.
        refused: files that could not be read, each with what is wrong and where.
        notes: what is about no single window (files that were left out, say).
    """

    format: str
    windows: tuple[ImportedWindow, ...]
    refused: tuple[TraceError, ...] = ()
    notes: tuple[ImportNote, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """The files that one import left.

    Attributes:
        packets: one a window.
        operators: one a window that has operator events.
        refused: windows that cannot be written as packets.
    """

    packets: tuple[Path, ...] = ()
    operators: tuple[Path, ...] = ()
    refused: tuple[TraceError, ...] = ()


def write_imported(imported: Imported, root: Path) -> Written:
    """Write every window as a packet below ``root``, operator events beside it. The same source gives the
    same files: importing it again replaces them."""
    packets, operators, refused = [], [], []
    for each in imported.windows:
        window = with_notes(each.draft, imported.format, each.notes)
        path = packet_path(root, window.run_id, window.number)
        try:
            write_packet(window, path)
            packets.append(path)
            if each.operators is not None:
                beside = operators_path(root, window.run_id, window.number)
                write_operators(each.operators, window.run_id, window.number, beside)
                operators.append(beside)
        except PacketError as error:
            refused.append(
                TraceError(
                    error.fault, path=str(path), place=f"run {window.run_id!r}, window {window.number}"
                )
            )
    return Written(tuple(packets), tuple(operators), tuple(refused))


def with_notes(window: Draft, format_name: str, notes: Sequence[ImportNote]) -> Draft:
    """The window with its notes in ``extra``, by kind, and with who wrote it."""
    extra: dict[str, object] = {"imported_from": format_name}
    for kind in NOTE_KINDS:
        of_kind = list(dict.fromkeys(str(note) for note in notes if note.kind == kind))
        if len(of_kind) > _MOST_NOTES:
            of_kind[_MOST_NOTES:] = [f"and {len(of_kind) - _MOST_NOTES:,} more"]
        if of_kind:
            extra[kind] = of_kind
    recorder = window.manifest.recorder
    if not recorder.version:
        recorder = RecorderInfo(
            version=f"sfapp {__version__} import {format_name}",
            torch=recorder.torch,
            backend=recorder.backend,
            host=recorder.host,
        )
    manifest = replace(window.manifest, recorder=recorder, extra=window.manifest.extra | extra)
    return replace(window, manifest=manifest)
