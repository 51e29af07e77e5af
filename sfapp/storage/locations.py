"""From a path to its storage, and from a name to its path."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from sfapp.storage.interface import Storage, StoragePath
from sfapp.storage.local_storage import LocalStorage

_LOCAL = LocalStorage()


def location(named: str | PathLike[str] | StoragePath) -> StoragePath:
    """Return the path that a text names."""
    return Path(named)


def resolved(path: StoragePath) -> StoragePath:
    """Return the absolute path, without links."""
    return location(path).expanduser().resolve()


def storage_of(path: StoragePath) -> Storage:
    """Return the storage that holds a path."""
    return _LOCAL


def local_paths(paths: Iterable[StoragePath]) -> list[Path]:
    """Return the paths on this machine among these."""
    return [path for path in paths if isinstance(path, Path)]


def path_in(roots: Iterable[StoragePath], name: str) -> StoragePath:
    """Return the path of a file at or below one of some roots by its name."""
    return Path(name)
