"""Find the files below the roots, and those whose present state is not in the store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sfapp.files import modified_ns
from sfapp.packets.paths import find_files

BATCH_FILES = 128
BATCH_BYTES = 32 * 2**20
"""Limits of a batch, which is read, diagnosed and committed together.

They spread the cost of a transaction over many files, and leave one or two windows of 16,384 ranks in a
batch: packets take some three times their size in memory."""

LEAST_BATCH_FILES, TAPER = 16, 4
"""Minimum number of files in a tapered batch, which has a quarter of the remaining files: each batch costs a
commit."""


@dataclass(frozen=True, slots=True)
class FileStamp:
    """Size and modification time, which identify a file's state without reading it."""

    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class FoundFile:
    """File to read.

    Attributes:
        name: its path as text; bytes that are not UTF-8 are escaped.
    """

    path: Path
    name: str
    stamp: FileStamp

    @property
    def is_nameable(self) -> bool:
        return self.name == str(self.path)


@dataclass(frozen=True, slots=True)
class Scan:
    """Result of comparing the files below the roots with those in the store.

    Attributes:
        fresh: new files and those whose stamp has changed, sorted by path.
        gone: names of stored files that no longer exist, sorted.
        unchanged: number of files with the stored stamp.
        operators: stamps of the files of operator events, by name; they are never read here.
    """

    fresh: tuple[FoundFile, ...]
    gone: tuple[str, ...]
    unchanged: int
    operators: Mapping[str, FileStamp]


def scan(roots: Sequence[Path], known: Mapping[str, FileStamp], operators: Mapping[str, FileStamp]) -> Scan:
    """Compare the files at or below these roots with the stored ones, reading none.

    If a root is absent, for example an unmounted share, the stored files below it are kept.

    Args:
        known: stamps of stored packets, including refused ones.
        operators: stamps of the files of operator events that the last scan found.
    """
    present = [root for root in roots if root.exists()]
    absent = [str(root) for root in roots if root not in present]
    packets, operator_paths = find_files(present)
    found = _stamped(packets)
    fresh = tuple(file for file in found if known.get(file.name) != file.stamp)
    missing = known.keys() - {file.name for file in found}
    gone = sorted(name for name in missing if not any(is_below(name, root) for root in absent))
    unseen = {name: stamp for name, stamp in operators.items() if any(is_below(name, at) for at in absent)}
    stamps = unseen | {file.name: file.stamp for file in _stamped(operator_paths)}
    return Scan(fresh, tuple(gone), len(found) - len(fresh), stamps)


def batches(fresh: Sequence[FoundFile], tapered: bool = False) -> Iterator[tuple[FoundFile, ...]]:
    """Yield consecutive files that fit in memory together; the parts of one window stay together.

    Args:
        tapered: whether the last batches are smaller, so that several readers finish at about the same time.
    """
    batch: list[FoundFile] = []
    size = 0
    most = BATCH_FILES
    for index, file in enumerate(fresh):
        is_full = len(batch) >= most or size + file.stamp.size > BATCH_BYTES
        if batch and is_full and window_stem(file) != window_stem(batch[-1]):
            yield tuple(batch)
            batch, size = [], 0
            if tapered:
                most = min(BATCH_FILES, max(LEAST_BATCH_FILES, (len(fresh) - index) // TAPER))
        batch.append(file)
        size += file.stamp.size
    if batch:
        yield tuple(batch)


def window_stem(file: FoundFile) -> Path:
    """Return the common prefix of the names of one window's parts (packet.md)."""
    return file.path.with_name(file.path.name.split(".", 1)[0])


def as_text(path: Path) -> str:
    """Return a path as text that can be stored; bytes that are not UTF-8 are escaped."""
    name = str(path)
    if name.isascii():
        return name
    return os.fsencode(path).decode(errors="backslashreplace")


def is_below(name: str, root: str) -> bool:
    return name == root or name.startswith(root.rstrip(os.sep) + os.sep)


def _stamped(paths: Sequence[Path]) -> list[FoundFile]:
    return [FoundFile(path, as_text(path), stamp) for path in paths if (stamp := _stamp(path)) is not None]


def _stamp(path: Path) -> FileStamp | None:
    """Return the stamp of a file, or None if it has disappeared; a dangling link has the link's own stamp."""
    for follow in (True, False):
        try:
            status = os.stat(path, follow_symlinks=follow)
        except OSError:
            continue
        return FileStamp(status.st_size, modified_ns(status))
    return None
