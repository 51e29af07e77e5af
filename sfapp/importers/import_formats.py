"""List the import formats and read one of them. A format's module is imported when it is used."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Table
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from sfapp.errors import TraceError
from sfapp.importers.import_result import ImportOptions, ImportResult


@dataclass(frozen=True, slots=True)
class Format:
    """One format that can be imported.

    Attributes:
        name: its name on the command line.
        summary: one line of help.
        suffixes: endings of the names of files read from a folder: a suffix, a whole file name, or ``""`` for
            every file. A file given by name is read whatever its name is.
        module: the module that holds ``read``.
    """

    name: str
    summary: str
    suffixes: tuple[str, ...]
    module: str


class Reader(Protocol):
    """Signature of the function ``read`` of a format's module."""

    def __call__(self, paths: Sequence[Path], options: ImportOptions) -> ImportResult:
        """Read files of one format as windows.

        A file that cannot be read is listed in ``refused`` and does not affect the others.
        """
        ...


IMPORT_FORMATS: Table[str, Format] = {
    each.name: each
    for each in (
        Format(
            "kineto",
            "PyTorch Profiler (Kineto) JSON, one file per rank.",
            (".json", ".json.gz"),
            "sfapp.importers.kineto",
        ),
        Format(
            "table",
            "CSV, Parquet or JSON tables of step, rank, stage and duration (or start and end).",
            (".csv", ".csv.gz", ".parquet", ".json", ".json.gz"),
            "sfapp.importers.table",
        ),
        Format(
            "nsys",
            "Nsight Systems SQLite exports (nsys export --type sqlite).",
            (".sqlite", ".sqlite.gz"),
            "sfapp.importers.nsys",
        ),
        Format(
            "flight-recorder",
            "PyTorch Flight Recorder dumps (pickle or JSON), one file per rank.",
            ("",),
            "sfapp.importers.flight_recorder",
        ),
        Format(
            "traceml",
            "TraceML's SQLite database (aggregator/telemetry).",
            ("telemetry", ".sqlite", ".db"),
            "sfapp.importers.traceml",
        ),
        Format(
            "straggler-analysis",
            "Operation tables of StragglerAnalysis: trace-*.parquet with a meta-*.yaml file each.",
            (".parquet",),
            "sfapp.importers.straggler_analysis",
        ),
        Format(
            "nccl-inspector",
            "NCCL Inspector logs: JSON lines of collectives, one file per process.",
            (".log", ".json", ".jsonl", ".log.gz", ".json.gz", ".jsonl.gz"),
            "sfapp.importers.nccl_inspector",
        ),
    )
}


def read_traces(name: str, paths: Sequence[Path], options: ImportOptions) -> ImportResult:
    """Read files, and files in folders, of one format as windows.

    Raises:
        TraceError: unknown format or path, or no file of this format in the folders.
    """
    if name not in IMPORT_FORMATS:
        raise TraceError(f"unknown format {name!r}; known formats: {', '.join(IMPORT_FORMATS)}")
    form = IMPORT_FORMATS[name]
    files = find_files(paths, form.suffixes, options.out)
    if not files:
        where = ", ".join(str(path) for path in paths)
        raise TraceError(f"no {name} traces ({', '.join(form.suffixes)}) under {where}")
    read: Reader = importlib.import_module(form.module).read
    named = tuple(path for path in paths if not path.is_dir())
    return replace(read(files, options), format=name, named=named)


def find_files(paths: Sequence[Path], suffixes: tuple[str, ...], out: Path | None = None) -> list[Path]:
    """Return the given files, and the files below the given folders whose names end with one of the suffixes,
    sorted. A file of a folder that is given in two ways is returned once.

    Names that start with a dot are skipped.

    Args:
        out: folder of packets, which is left out below the given folders.

    Raises:
        TraceError: a path does not exist.
    """
    found: set[Path] = set()
    for path in paths:
        if path.is_dir():
            found.update(
                each for each in _below(path, out) if each.name.endswith(suffixes) and _may_be_file(each)
            )
        elif path.exists():
            found.add(path)
        else:
            raise TraceError("no such file or folder", path=str(path))
    return sorted({(os.path.realpath(path.parent), path.name): path for path in sorted(found)}.values())


def _below(folder: Path, left_out: Path | None) -> Iterator[Path]:
    """Yield what is no folder below this one; a folder that is removed meanwhile has nothing."""
    other = None if left_out is None else os.path.realpath(left_out)
    for place, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and (other is None or os.path.realpath(os.path.join(place, name)) != other)
        ]
        yield from (Path(place, name) for name in names if not name.startswith("."))


def _may_be_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # Such as a link into a folder of another user: reading it says why it cannot be read.
        return True
