"""Collect the faults of a packet, and translate pyarrow's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from sfapp.errors import PacketError
from sfapp.terminal import first_line


def and_more(others: int) -> str:
    """Return the end of a message that counts further faults of the same kind."""
    return f" (and {others:,} more)" if others else ""


@contextmanager
def arrow_errors() -> Iterator[None]:
    """Convert exceptions of pyarrow on a malformed file to a PacketError.

    Raises:
        PacketError: instead of any error of pyarrow or its codec, or for a name that is not UTF-8.
    """
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise PacketError(f"not a readable Parquet file: {first_line(str(error))}") from error


class Faults:
    """Faults found in one file or window, in the order in which they were found."""

    def __init__(self) -> None:
        self.found: list[PacketError] = []

    def add(self, reason: str, *, row: int | None = None, column: str | None = None) -> None:
        """Add a fault with this message."""
        self.found.append(PacketError(reason, row=row, column=column))

    def raise_first(self) -> None:
        """Raise the first fault if there is one."""
        if self.found:
            raise self.found[0]
