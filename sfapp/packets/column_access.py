"""Decode the columns of a file: all at once if the file is small, otherwise one at a time.

Decoding all at once is faster. A large packet would then be in memory twice, decoded and as the planes of
its window; therefore its step and rank are decoded and checked first, and every other column when it is
needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sfapp.packets.arrow_columns import PacketFile, is_full
from sfapp.packets.faults import Faults
from sfapp.packets.memory_budget import UNCOUNTED_BYTES

Columns = Mapping[str, Any]
"""pyarrow chunked arrays by column name, without those whose nulls have been reported."""


def decoded(file: PacketFile, names: Sequence[str], nullable: frozenset[str], faults: Faults) -> Columns:
    """Return these columns; one that is not ``nullable`` and has a null is reported and absent."""
    if file.decoded_bytes(len(names)) > UNCOUNTED_BYTES:
        return _ColumnsOneByOne(file, names, nullable, faults)
    columns = file.decode(names)
    return {name: column for name, column in columns.items() if is_full(name, column, nullable, faults)}


class _ColumnsOneByOne(Mapping[str, Any]):
    """Columns that are decoded on access; only the last one is kept."""

    def __init__(
        self, file: PacketFile, names: Sequence[str], nullable: frozenset[str], faults: Faults
    ) -> None:
        self._file = file
        self._names = dict.fromkeys(names)
        self._nullable = nullable
        self._faults = faults
        self._last: tuple[str, Any] = ("", None)
        self._with_nulls: set[str] = set()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def __getitem__(self, name: str) -> Any:
        column = self._find(name)
        if column is None:
            raise KeyError(name)
        return column

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _find(self, name: str) -> Any:
        if name not in self._names or name in self._with_nulls:
            return None
        if self._last[0] != name:
            self._last = ("", None)  # Free the last one before the next is decoded.
            column = self._file.decode((name,))[name]
            if not is_full(name, column, self._nullable, self._faults):
                self._with_nulls.add(name)
                return None
            self._last = (name, column)
        return self._last[1]
