"""Open files of other tools, expanded if they are gzipped."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sfapp.errors import TraceError
from sfapp.files import open_regular
from sfapp.terminal import first_line

MAX_RATIO = 100
"""Largest expansion of a gzipped file; traces and tables expand to 5 to 30 times their size."""

_LEAST_EXPANDED = 4 * 2**20
"""Size that any gzipped file may expand to, bytes."""

CHANGED = "it changed while it was read, so that old and new may be mixed: import a copy of it"

_BLOCK = 2**20


class _Expanded(io.RawIOBase):
    """Content of a gzipped file, which ends with an error where it expands beyond its size."""

    def __init__(self, file: Any, size: int) -> None:
        self._expanded = gzip.GzipFile(fileobj=file)
        self._most = _LEAST_EXPANDED + MAX_RATIO * size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._expanded.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        # A reader of a whole file asks for more than may be expanded.
        count = self._expanded.readinto(memoryview(buffer)[:_BLOCK])
        if self._expanded.tell() > self._most:
            raise OSError(f"expands to more than {self._most:,} bytes")
        return count


@contextmanager
def open_source(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file for reading; gzip is recognised by content, not by name.

    Reading a gzipped file raises ``OSError`` where it expands to more than ``MAX_RATIO`` times its size.

    Raises:
        OSError: it cannot be opened, is no regular file, or has changed by the end of the block.
    """
    with open_regular(path) as file:
        before = content_state(file.fileno())
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if packed:
            with io.BufferedReader(_Expanded(file, os.fstat(file.fileno()).st_size)) as expanded:
                yield expanded
        else:
            yield file
        if content_state(file.fileno()) != before:
            raise OSError(CHANGED)


def content_state(file: int | Path) -> tuple[int, int]:
    """Return what changes when a file is written to: its size and the time of its last change."""
    status = os.stat(file)
    return status.st_size, status.st_mtime_ns


def most_values(data: bytes) -> tuple[int, int]:
    """Return how many lists and objects JSON holds at most, and how many values beside the first of each, in
    time and memory that decoding would exceed."""
    return data.count(b"[") + data.count(b"{"), data.count(b",")


def expand(path: Path, most: int) -> bytes:
    """Return a file's bytes, expanded if it is gzipped.

    Raises:
        TraceError: the file cannot be read, is truncated, or holds more than ``most`` bytes.
    """
    try:
        with open_source(path) as file:
            data = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"cannot be read: {first_line(str(error))}", path=str(path)) from error
    if len(data) > most:
        raise TraceError(f"holds more than {most:,} bytes: split it into smaller files", path=str(path))
    return data
