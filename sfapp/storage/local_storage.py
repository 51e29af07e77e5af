"""Folders of packets on this machine, or on a file system that it has mounted."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from sfapp.errors import PacketError
from sfapp.files import modified_ns, open_regular, read_regular
from sfapp.storage.interface import (
    FileContent,
    FileStamp,
    FolderFollower,
    FolderListing,
    FoundFile,
    PathKind,
    Storage,
    StoragePath,
    TailCheck,
)
from sfapp.terminal import first_line

LARGE_BYTES = 16 * 2**20
"""Size from which on a file is read only where all of it is on the disk, and not to hash what is refused."""


class LocalStorage(Storage[Path]):
    """Files and folders of this machine."""

    readers = min(8, os.cpu_count() or 1)
    is_remote = False

    def kind(self, path: Path) -> PathKind | None:
        if path.is_dir():
            return "folder"
        return "file" if path.exists() else None

    def files_below(self, folder: Path, suffix: str) -> Iterator[FoundFile]:
        found = map(self.found, _paths_below(folder, suffix, unseen={}))
        return (file for file in found if file is not None)

    def follower(self, folder: Path, suffix: str) -> FolderFollower:
        return _LocalFollower(self, folder, suffix)

    def names_in(self, folder: Path, stem: str = "") -> list[str]:
        try:
            names = os.listdir(folder)
        except OSError:
            return []
        return [name for name in names if name.startswith(f"{stem}.")] if stem else names

    def found(self, path: Path) -> FoundFile | None:
        """Return a file with its stamp, or None if it has disappeared; a dangling link has the link's own
        stamp."""
        for follow in (True, False):
            try:
                status = os.stat(path, follow_symlinks=follow)
            except OSError:
                continue
            return FoundFile(path, as_text(path), FileStamp(status.st_size, modified_ns(status)))
        return None

    def fetch(self, path: Path, most_bytes: int, check_tail: TailCheck) -> FileContent:
        try:
            with open_regular(path) as file:
                status = os.fstat(file.fileno())
                is_large = status.st_size > LARGE_BYTES
                if is_large and _has_hole(file.fileno(), status.st_size):
                    fault = "parts of it were never written (a sparse file): copy it again"
                    return FileContent(None, status.st_size, "", modified_ns(status), fault)
                if status.st_size > most_bytes:
                    digest = "" if is_large else hashlib.file_digest(file, "sha256").hexdigest()
                    return FileContent(None, status.st_size, digest, modified_ns(status))
                data = file.read(status.st_size)  # A file that grows meanwhile keeps within the limit.
        except OSError as error:
            raise PacketError(f"cannot be read: {first_line(error.strerror or str(error))}") from error
        return FileContent(data, len(data), hashlib.sha256(data).hexdigest(), modified_ns(status))

    def read_small(self, path: Path, most_bytes: int) -> bytes:
        return read_regular(path, most_bytes)


def _has_hole(descriptor: int, size: int) -> bool:
    """Return whether parts of a file were never written. It can then say any size, and take no room."""
    try:
        is_sparse = os.lseek(descriptor, 0, os.SEEK_HOLE) < size
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:  # The file system does not know.
        return False
    return is_sparse


class _LocalFollower(FolderFollower):
    """Complete search of a local folder: looking at a file's stamp costs microseconds."""

    def __init__(self, storage: LocalStorage, folder: Path, suffix: str) -> None:
        self._storage = storage
        self._folder = folder
        self._suffix = suffix

    def look(self, *, everything: bool) -> FolderListing:
        unseen: dict[str, str] = {}
        files = []
        for path in _paths_below(self._folder, self._suffix, unseen):
            file = self._storage.found(path)
            if file is not None:
                files.append(file)
            elif (reason := _refusal(path)) is not None:
                unseen[as_text(path)] = reason
        return FolderListing(tuple(files), is_complete=True, unseen=unseen)


def as_text(path: StoragePath) -> str:
    """Return a path as text that can be stored; bytes that are not UTF-8 are escaped."""
    name = str(path)
    if name.isascii():
        return name
    return os.fsencode(name).decode(errors="backslashreplace")


def _refusal(path: Path) -> str | None:
    """Return why a file's stamp cannot be read; None if it can, or if the file is gone."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return first_line(error.strerror or str(error))
    return None


def _paths_below(root: Path, suffix: str, unseen: dict[str, str]) -> Iterator[Path]:
    """Yield the files below a folder whose name ends so.

    Args:
        unseen: gets the folders that exist and cannot be listed, and why.
    """

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            unseen[as_text(Path(error.filename))] = first_line(error.strerror or str(error))

    seen: set[tuple[int, int]] = set()  # Links between folders may form a cycle.
    for folder, folders, files in os.walk(root, onerror=note, followlinks=True):
        try:
            status = os.stat(folder)
        except OSError:  # The folder has disappeared since it was listed.
            continue
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(folder, name) for name in files if name.endswith(suffix) and name[0] != ".")
