"""How faults of a packet are worded and gathered, and where foreign errors become ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from sfapp.errors import PacketError
from sfapp.terminal import first_line


def and_more(others: int) -> str:
    """How a fault says that it stands for others like it."""
    return f" (and {others:,} more)" if others else ""


@contextmanager
def arrow_errors() -> Iterator[None]:
    """The one place where what pyarrow raises on a malformed file becomes a PacketError.

    Raises:
        PacketError: in place of any error of pyarrow, of the codec below it, or of a name that is no UTF-8.
    """
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise PacketError(f"not a readable Parquet file: {first_line(str(error))}") from error


class Faults:
    """The faults found in one file or window, in the order in which they were found."""

    def __init__(self) -> None:
        self.found: list[PacketError] = []

    def add(self, reason: str, *, row: int | None = None, column: str | None = None) -> None:
        """Report a fault in these words."""
        self.found.append(PacketError(reason, row=row, column=column))

    def raise_first(self) -> None:
        """Raise the first fault, if there is any."""
        if self.found:
            raise self.found[0]
