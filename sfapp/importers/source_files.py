"""Open files of other tools, expanded if they are gzipped."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from sfapp.errors import TraceError
from sfapp.files import open_regular
from sfapp.terminal import first_line


@contextmanager
def open_source(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file for reading; gzip is recognised by content, not by name.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    with open_regular(path) as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if packed:
            with gzip.GzipFile(fileobj=file) as expanded:
                yield cast(IO[bytes], expanded)
        else:
            yield file


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
