"""Open Parquet files of other tools and read their rows in batches, in memory that their size explains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sfapp.errors import PacketError, TraceError
from sfapp.files import read_regular
from sfapp.packets.page_sizes import expanded_pages

MAX_BYTES = 2**30
"""Largest file, which is held in memory: otherwise it could be replaced while it is read."""

MAX_RATIO = 20
"""Largest expansion of a file's pages: columns of one repeated value expand ten thousandfold."""

LEAST_EXPANDED = 2**27
"""Bytes to which the pages of any file may expand."""

LEAST_ROWS = 2**20
"""Number of rows that any file may have."""

_ROWS = 2**16


def most_rows(size: int, row_bytes: int) -> int:
    """Return how many rows a file of some bytes may have, where each takes ``row_bytes`` or more: equal rows
    take nearly none, and memory."""
    return max(LEAST_ROWS, size // row_bytes)


def open_parquet(path: Path, texts: Sequence[str]) -> tuple[Any, int]:
    """Return an open file and its size in bytes.

    Args:
        texts: columns that are read as dictionaries, if the file has them: a long text that many rows repeat
            is then in memory once.

    Raises:
        TraceError: the file is too large, or expands to more than its size explains.
        OSError, pa.ArrowException: it cannot be read.
    """
    data = read_regular(path, MAX_BYTES)
    try:
        # pyarrow allocates what the headers of pages say, whatever the footer says.
        file = pq.ParquetFile(pa.BufferReader(data))
        expanded = expanded_pages(data)
    except PacketError as error:
        raise TraceError(f"cannot be read: {error.fault}") from error
    most = max(LEAST_EXPANDED, MAX_RATIO * len(data))
    if expanded > most:
        raise TraceError(f"expands to {expanded:,} bytes, more than {most:,}: split it into smaller files")
    present = [name for name in texts if name in file.schema_arrow.names]
    if present:
        file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=present)
    return file, len(data)


def batches_of(file: Any, columns: Sequence[str]) -> Iterator[Any]:
    """Yield the rows of some columns in batches."""
    yield from file.iter_batches(batch_size=_ROWS, columns=list(columns), use_threads=False)
