"""Write files atomically: readers see the old file or the new one, never a part of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_LONGEST_NAME_KEPT = 100
"""Characters of the target's name in the temporary one: file systems allow 255 bytes."""


@contextmanager
def atomic_writer(path: Path, *, mode: int = 0o666, sync: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path`` that replaces it when the block ends without an exception.

    The temporary file has a name that begins with a dot and is removed when the block raises.

    Args:
        mode: permissions of a new file, less the process's umask.
        sync: flush the content to disk before the rename, so that a power failure leaves no empty file.

    Raises:
        OSError: the file cannot be written.
    """
    name = f".{path.name[:_LONGEST_NAME_KEPT]}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    temporary = path.with_name(name)
    try:
        with open(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: Path, content: bytes, *, mode: int = 0o666, sync: bool = True) -> int:
    """Replace the content of ``path``, making its folder, and return the number of bytes written.

    Raises:
        OSError: the file cannot be written.
    """
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_writer(path, mode=mode, sync=sync) as file:
        return file.write(content)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, so that a new file in it survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
