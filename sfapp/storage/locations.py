"""From a text to a path, from a path to its storage, and from a name to its path."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from sfapp.errors import StorageError
from sfapp.storage.interface import Storage, StoragePath
from sfapp.storage.local_storage import LocalStorage
from sfapp.storage.object_path import ObjectPath
from sfapp.storage.object_storage import ObjectStorage
from sfapp.storage.storage_address import local_path_of, parse_address, scheme_of
from sfapp.storage.storage_options import StorageOptions
from sfapp.terminal import quoted

_LOCAL = LocalStorage()


def location(
    named: str | PathLike[str] | StoragePath, options: Mapping[str, object] | None = None
) -> StoragePath:
    """Return the path that a text names: a local one, or an address such as ``s3://BUCKET/PREFIX``.

    Args:
        options: of the object store, by name: obstore's options, ``max_retries`` and ``retry_timeout``.

    Raises:
        StorageError: the address or an option is invalid.
        MissingExtraError: it is an address, and obstore is not installed.
    """
    if isinstance(named, Path | ObjectPath):
        return named
    text = os.fspath(named)
    scheme = scheme_of(text)
    if scheme is None:
        return Path(text)
    if scheme == "file":
        return local_path_of(text)
    address, key = parse_address(text)
    return ObjectPath(ObjectStorage(address, StorageOptions.of(options)), key)


def resolved(path: StoragePath) -> StoragePath:
    """Return the absolute path, without links.

    Raises:
        StorageError: it is in a home directory that does not exist, or links form a loop.
    """
    found = location(path)
    return found if isinstance(found, ObjectPath) else resolved_file(found)


def resolved_file(path: Path) -> Path:
    """Return the absolute path of a file or folder of this machine, without links (``resolved``)."""
    try:
        return path.expanduser().resolve()
    except RuntimeError as error:
        raise StorageError(f"{quoted(str(path))} is no place: {error}") from error


def storage_of(path: StoragePath) -> Storage[Any]:
    """Return the storage that holds a path."""
    return path.storage if isinstance(path, ObjectPath) else _LOCAL


def local_paths(paths: Iterable[StoragePath]) -> list[Path]:
    """Return the paths on this machine among these."""
    return [path for path in paths if isinstance(path, Path)]


def path_in(roots: Iterable[StoragePath], name: str) -> StoragePath:
    """Return the path of a file at or below one of some roots by its text."""
    for root in roots:
        if isinstance(root, ObjectPath) and root.storage.owns(name):
            return root.storage.path_of(name)
    return Path(name)
