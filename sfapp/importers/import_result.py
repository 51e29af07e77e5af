"""The result of an import, and its output: windows, operator events and notes on missing information.

Information that a source lacks is derived by a rule, guessed or missing. Each case is a note, which is also
stored in the packet's manifest, so that it survives the trace.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as Table
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from sfapp import __version__
from sfapp.errors import PacketError, SfappError, TraceError, describe_error
from sfapp.importers.mapping import NO_MAPPING, Mapping
from sfapp.model import RecorderInfo, Window
from sfapp.model.job_fields import IMPORTED_SOURCE
from sfapp.model.operators import Operators
from sfapp.packets import (
    Quarantined,
    WindowDraft,
    load_packet,
    operators_path,
    packet_path,
    write_operators,
    write_packet,
)
from sfapp.packets.paths import OPERATORS_SUFFIX, SUFFIX
from sfapp.packets.run_lock import RunLocks
from sfapp.terminal import quoted

NoteKind = Literal["derived", "guessed", "missing", "skipped"]
NOTE_KINDS: tuple[NoteKind, ...] = ("derived", "guessed", "missing", "skipped")

_MOST_NOTES = 50
"""Largest number of notes of one kind in a manifest; the rest are counted."""


@dataclass(frozen=True, slots=True)
class ImportNote:
    """A piece of information that the source did not contain, or that was not used.

    Attributes:
        kind: ``derived`` by a documented rule, ``guessed`` if the source does not decide, ``missing`` if
            absent, ``skipped`` if present but not used.
        what: one sentence for the user.
        where: the file, rank or run that it concerns; empty if it concerns all.
    """

    kind: NoteKind
    what: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of an import.

    Attributes:
        mapping: maps foreign names to stages, columns and roles.
        progress: called before each file is read, with the file, the number of files read, and the total.
        scratch: folder for temporary files, the system's by default.
        out: folder that packets are written to, in which no traces are looked for unless it is given.
    """

    mapping: Mapping = NO_MAPPING
    progress: Callable[[Path, int, int], None] | None = None
    scratch: Path | None = None
    out: Path | None = None

    def each(self, paths: Sequence[Path]) -> Iterator[Path]:
        """Yield the paths and report progress before each."""
        for done, path in enumerate(paths):
            if self.progress is not None:
                self.progress(path, done, len(paths))
            yield path


@dataclass(frozen=True, eq=False)
class ImportedWindow:
    """One imported window with its operator events and notes.

    Attributes:
        draft: the stage matrix; its manifest does not contain the notes yet.
        operators: operator events, None if the source has none.
        notes: notes on this window.
    """

    draft: WindowDraft
    operators: Operators | None = None
    notes: tuple[ImportNote, ...] = ()

    @cached_property
    def window(self) -> Window:
        """The draft as a window that can be diagnosed."""
        return self.draft.window()


@dataclass(frozen=True, slots=True, eq=False)
class ImportResult:
    """Result of importing some files.

    Attributes:
        windows: all windows, by run and number.
        refused: errors of the files that could not be read.
        notes: notes that concern no single window (files that were left out, for example).
        sources: the folder or the file from which each run was read.
        format, named: the format's name and the files that were given by name, which ``read_traces`` sets.
    """

    windows: tuple[ImportedWindow, ...]
    refused: tuple[TraceError, ...] = ()
    notes: tuple[ImportNote, ...] = ()
    sources: Table[str, Path] = field(default_factory=dict)
    format: str = ""
    named: tuple[Path, ...] = ()

    def origin(self, run_id: str) -> dict[str, str]:
        """Return what tells packets of this import of a run from others: the format, and a digest of the
        run's source and of those files in it that were given by name."""
        source = os.path.realpath(self.sources[run_id])
        named = {os.path.join(os.path.realpath(path.parent), path.name) for path in self.named}
        parts = [source, *sorted(path for path in named if os.path.dirname(path) == source)]
        digest = hashlib.sha256(b"\0".join(map(os.fsencode, parts))).hexdigest()[:16]
        return {"imported_from": self.format, IMPORTED_SOURCE: digest}


@contextmanager
def guarded(refused: list[TraceError], path: Path, place: str | None = None) -> Iterator[None]:
    """Add an exception of the block to ``refused``, as a fault of this file or run; the others continue.

    Each reader checks its input. An unexpected exception, of a library or for lack of memory, still concerns
    one file only.
    """
    try:
        yield
    except TraceError as error:
        at = str(path) if error.path is None else error.path
        refused.append(TraceError(error.reason, path=at, place=error.place or place))
    except PacketError as error:
        refused.append(TraceError(error.fault, path=str(path), place=place))
    except SfappError as error:
        refused.append(TraceError(str(error), path=str(path), place=place))
    except Exception as error:  # noqa: BLE001  # The other files go on, whatever one of them holds.
        refused.append(
            TraceError(f"cannot be imported: {describe_error(error)}", path=str(path), place=place)
        )


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Files written by one import.

    Attributes:
        packets: one file per window.
        operators: one file per window with operator events.
        refused: errors of the windows that cannot be written as packets.
    """

    packets: tuple[Path, ...] = ()
    operators: tuple[Path, ...] = ()
    refused: tuple[TraceError, ...] = ()


def write_imported(imported: ImportResult, root: Path) -> WrittenFiles:
    """Write every window as a packet below ``root``, with its operator events next to it.

    Importing the same source again replaces all that the last import of it wrote; if a window cannot be
    written, what the last import wrote of it stays. A run is refused if its folder holds packets of anything
    else, or another process writes to it.
    """
    written, locks = _WrittenSoFar(), RunLocks()
    runs: dict[str, list[ImportedWindow]] = {}
    for each in imported.windows:
        runs.setdefault(each.draft.run_id, []).append(each)
    for run_id, windows in runs.items():
        folder = packet_path(root, run_id, 0).parent
        with guarded(written.refused, folder, f"run {run_id!r}"):
            origin = imported.origin(run_id)
            if folder.is_symlink():
                raise TraceError("is a link, through which nothing is written: choose another folder with -o")
            with locks.locked(folder):
                before = _files_of_import(folder, origin)
                kept = [path for each in windows for path in written.add(each, origin, root)]
                for path in sorted(before.difference(kept)):
                    path.unlink()
    return WrittenFiles(tuple(written.packets), tuple(written.operators), tuple(written.refused))


@dataclass(frozen=True, slots=True)
class _WrittenSoFar:
    """``WrittenFiles`` while they are written."""

    packets: list[Path] = field(default_factory=list)
    operators: list[Path] = field(default_factory=list)
    refused: list[TraceError] = field(default_factory=list)

    def add(self, imported: ImportedWindow, origin: Table[str, str], root: Path) -> list[Path]:
        """Write one window; return its files, those of the last import if the packet cannot be written."""
        window = with_notes(imported.draft, origin, imported.notes)
        place = f"run {window.run_id!r}, window {window.number}"
        path = packet_path(root, window.run_id, window.number)
        operators_file = operators_path(root, window.run_id, window.number)
        files = [path, operators_file]
        with guarded(self.refused, path, place):
            write_packet(window, path)
            self.packets.append(path)
            files.remove(operators_file)  # That of the last import is about the packet that was replaced.
        if imported.operators is not None and operators_file not in files:
            with guarded(self.refused, operators_file, place):
                write_operators(imported.operators, window.run_id, window.number, operators_file)
                self.operators.append(operators_file)
                files.append(operators_file)
        return files


def _files_of_import(folder: Path, origin: Table[str, str]) -> set[Path]:
    """Return the packets and files of operator events in the folder of a run.

    Raises:
        TraceError: one of them was not written by an import of this origin.
    """
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    files = [path for path in found if path.name.endswith(SUFFIX) and not path.name.startswith(".")]
    own: set[Path] = set()
    for path in files:
        packet = path.with_name(path.name.removesuffix(OPERATORS_SUFFIX).removesuffix(SUFFIX) + SUFFIX)
        if packet not in own:
            loaded = load_packet(packet)
            if isinstance(loaded, Quarantined) or not origin.items() <= loaded.window.manifest.extra.items():
                raise TraceError(
                    f"holds {quoted(path.name)}, which no import of the same source wrote: choose another "
                    "folder with -o, or move this one away"
                )
        own |= {packet, path}
    return set(files)


def with_notes(window: WindowDraft, origin: Table[str, str], notes: Sequence[ImportNote]) -> WindowDraft:
    """Return the window with its origin and its notes by kind in ``extra``, and with the importer as
    recorder."""
    extra: dict[str, object] = {**origin}
    for kind in NOTE_KINDS:
        of_kind = list(dict.fromkeys(str(note) for note in notes if note.kind == kind))
        if len(of_kind) > _MOST_NOTES:
            of_kind[_MOST_NOTES:] = [f"and {len(of_kind) - _MOST_NOTES:,} more"]
        if of_kind:
            extra[kind] = of_kind
    recorder = window.manifest.recorder
    if not recorder.version:
        recorder = RecorderInfo(
            version=f"sfapp {__version__} import {origin['imported_from']}",
            torch=recorder.torch,
            backend=recorder.backend,
            host=recorder.host,
        )
    manifest = replace(window.manifest, recorder=recorder, extra=window.manifest.extra | extra)
    return replace(window, manifest=manifest)
