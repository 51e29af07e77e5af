"""Define the paths of packets: ``<root>/<run_id>/<window:08d>[[.<process>].rank<r>].parquet`` (packet.md,
Rules).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from sfapp.errors import PacketError
from sfapp.storage import FoundFile, StoragePath, location, storage_of
from sfapp.terminal import quoted

SUFFIX = ".parquet"
OPERATORS_SUFFIX = ".ops.parquet"
"""Suffix of files of operator events, stored next to the packets (operators.md)."""

VERDICTS_SUFFIX = ".verdicts.parquet"
"""Suffix of files of verdicts in a dataset (fleet.md)."""

THINNED_SUFFIX = ".thinned.parquet"
"""Suffix of what `sfapp compact` leaves of a packet, next to where it was (fleet.md)."""

_PART_NAME = re.compile(r"\.rank(?P<rank>[0-9]{1,10})(\.ops)?\.parquet$")
_PROCESS_PART = re.compile(r"[0-9]+\.(?!rank)[^.]+\.rank[0-9]{1,10}\.parquet")
_PLAIN_NAME = re.compile("[0-9a-f]{1,64}")
_SAFE_IN_FOLDER_NAME = frozenset("-_.+@,")
_LONGEST_FOLDER_NAME = 200  # Bytes; file systems allow 255.


def packet_path(
    root: Path, run_id: str, window: int, part_rank: int | None = None, process: str | None = None
) -> Path:
    """Return the path of one window's packet, or of one rank's part of it, always below ``root``.

    Args:
        process: name of the process that writes its own part of a streamed job: the number is then the rank's
            own, and another process's file of this name must not be replaced.

    Raises:
        PacketError: an empty run id, or a negative window or rank.
    """
    path = _path(root, run_id, window, part_rank, SUFFIX)
    return path if process is None else path.with_name(path.name.replace(".", f".{process}.", 1))


def operators_path(root: Path, run_id: str, window: int, part_rank: int | None = None) -> Path:
    """Return the path of one window's operator events, or of one rank's, next to the packet.

    Raises:
        PacketError: as ``packet_path``.
    """
    return _path(root, run_id, window, part_rank, OPERATORS_SUFFIX)


def operator_files_of(packets: Iterable[StoragePath]) -> list[StoragePath]:
    """Return the files of operator events of a window, of all ranks or one each, next to its packet or
    parts.
    """
    stems = {(path.parent, stem) for path in packets if (stem := events_stem(path)) is not None}
    return sorted(
        folder / name
        for folder, window in stems
        for name in storage_of(folder).names_in(folder, window)
        if name == f"{window}{OPERATORS_SUFFIX}"
        or (name.endswith(OPERATORS_SUFFIX) and part_rank_of(folder / name) is not None)
    )


def with_operators(packets: Iterable[StoragePath]) -> list[StoragePath]:
    """Return the packets of windows that have files of operator events; each folder is listed once."""
    asked = list(packets)
    stems = {
        (folder, name.partition(".")[0])
        for folder in {path.parent for path in asked}
        for name in storage_of(folder).names_in(folder)
        if name.endswith(OPERATORS_SUFFIX)
    }
    return [path for path in asked if (path.parent, events_stem(path)) in stems]


def events_stem(packet: StoragePath) -> str | None:
    """Return how the names of a window's files of operator events begin; None for a part with the name of its
    process.

    Such a part has the rank's own number, which in the run may be that of a window of an earlier attempt;
    files of events have the run's numbers.
    """
    return None if _PROCESS_PART.fullmatch(packet.name) else packet.name.partition(".")[0]


def _path(root: Path, run_id: str, window: int, part_rank: int | None, suffix: str) -> Path:
    if not run_id:
        raise PacketError("run_id is empty: give the run a name")
    if window < 0 or (part_rank is not None and part_rank < 0):
        raise PacketError(f"window {window} and rank {part_rank} must not be negative")
    part = "" if part_rank is None else f".rank{part_rank}"
    return Path(root) / folder_name(run_id) / f"{window:08d}{part}{suffix}"


def folder_name(run_id: str) -> str:
    """Return a run id as one folder name, different for different run ids.

    Letters and digits of any script and ``-_.+@,`` stay; everything else, and a leading dot, is
    percent-encoded (``/``, NUL, but also ``=`` and ``*``, which DuckDB reads as a partition and a pattern). A
    name too long for a file system is cut and ends in a hash of the run id. The run id itself is in the
    manifest and never read from the folder.
    """
    name = "".join(
        char
        if char.isalnum() or char in _SAFE_IN_FOLDER_NAME
        else quote(char, safe="", errors="surrogatepass")
        for char in run_id
    )
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name.encode()) <= _LONGEST_FOLDER_NAME:
        return name
    digest = hashlib.sha256(run_id.encode(errors="surrogatepass")).hexdigest()[:16]
    kept = name.encode()[: _LONGEST_FOLDER_NAME - len(digest) - 1].decode(errors="ignore")
    return f"{kept}~{digest}"


def name_in_path(process: str) -> str:
    """Return the name of a process, which may come from the network, as a part of a file's name."""
    if _PLAIN_NAME.fullmatch(process):
        return process
    return hashlib.sha256(process.encode(errors="surrogatepass")).hexdigest()[:16]


def part_path(packet: Path, rank: int) -> Path:
    """Return the path of one rank's part of the window with this packet."""
    return packet.with_name(f"{packet.name.removesuffix(SUFFIX)}.rank{rank}{SUFFIX}")


def thinned_path(packet: Path) -> Path:
    """Return the path of what `sfapp compact` leaves of a packet."""
    return packet.with_name(f"{packet.name.removesuffix(SUFFIX)}{THINNED_SUFFIX}")


def is_thinned(folder: StoragePath, window: int) -> bool:
    """Return whether `sfapp compact` has replaced the packet of a window in a run's folder, which it does on
    disks only."""
    if not isinstance(folder, Path):
        return False
    packet = folder / f"{window:08d}{SUFFIX}"
    return thinned_path(packet).exists() and not packet.exists()


def part_rank_of(path: StoragePath) -> int | None:
    """Return the rank whose part of a window this file is by its name; None for a whole window."""
    match = _PART_NAME.search(path.name)
    return int(match["rank"]) if match else None


def find_packets(paths: Iterable[StoragePath]) -> list[StoragePath]:
    """Return every packet file at or below these paths, each once, sorted.

    A file in ``paths`` is taken whatever its name. Below a folder, files ending in ``.parquet`` are taken,
    except those of operator events (``.ops.parquet``), of verdicts (``.verdicts.parquet``) and thinned
    packets (``.thinned.parquet``). Files and folders whose name starts with a dot belong to the store or are
    being written, and are skipped.

    Raises:
        PacketError: a path does not exist.
    """
    return [found.path for found in find_files(paths)[0]]


def find_files(paths: Iterable[StoragePath]) -> tuple[list[FoundFile], list[FoundFile]]:
    """Return the files of ``find_packets`` and every file of operator events there, or next to a packet in
    ``paths``.

    Each file is returned once, sorted by path.

    Raises:
        PacketError: a path does not exist.
    """
    found: list[FoundFile] = []
    named: list[FoundFile] = []
    for path in map(location, paths):
        storage = storage_of(path)
        kind = storage.kind(path)
        if kind == "folder":
            found += storage.files_below(path, SUFFIX)
        elif kind == "file":
            named += _existing([path])
            found += _existing(operator_files_of([path]))
        else:
            raise PacketError(f"no such file or folder: {quoted(str(path))}")
    kinds = by_kind(found)
    return sorted_files([*kinds.packets, *named]), sorted_files(kinds.operators)


def _existing(paths: Iterable[StoragePath]) -> list[FoundFile]:
    return [file for path in paths if (file := storage_of(path).found(path)) is not None]


class FilesByKind(NamedTuple):
    """Files whose names end in ``.parquet``, by what they hold."""

    packets: list[FoundFile]
    operators: list[FoundFile]
    verdicts: list[FoundFile]


def by_kind(files: Iterable[FoundFile]) -> FilesByKind:
    """Return the packets, the files of operator events and those of verdicts among these."""
    found = FilesByKind([], [], [])
    for file in files:
        name = file.path.name
        if name.endswith(OPERATORS_SUFFIX):
            found.operators.append(file)
        elif name.endswith(VERDICTS_SUFFIX):
            found.verdicts.append(file)
        elif not name.endswith(THINNED_SUFFIX):
            found.packets.append(file)
    return found


def sorted_files(files: Iterable[FoundFile]) -> list[FoundFile]:
    """Return each file once, sorted by path."""
    each = {file.path: file for file in files}
    return [each[path] for path in sorted(each)]
