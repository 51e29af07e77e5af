"""Write tables as CSV that a spreadsheet opens as text and numbers only."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Number
from typing import Any

import msgspec

_FORMULA = "=+\\-@\uff1d\uff0b\uff0d\uff20"
"""Characters with which a formula begins; spreadsheets also take the full-width forms."""

_SEPARATORS = ";\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029"
"""Characters that may begin a new cell or line: if ``;`` or a tab separates cells, a spreadsheet splits a
text there, and it skips them at the beginning of a cell."""

_DANGEROUS = re.compile(f"^(?=[{_SEPARATORS}])|(?:^|(?<=[{_SEPARATORS}]))(?=\\s*[{_FORMULA}])")


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV: every column of any row, in order of first appearance; lists and objects as JSON.

    Every cell is one of ``csv_cell``.
    """
    return "".join(csv_parts(list(dict.fromkeys(name for row in rows for name in row)), [rows]))


def csv_parts(columns: Sequence[str], parts: Iterable[Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Yield the same text of rows that come a part at a time and have these columns."""
    yield _lines([columns])
    for rows in parts:
        yield _lines([row.get(column) for column in columns] for row in rows)


def _lines(rows: Iterable[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerows([csv_cell(value) for value in row] for row in rows)
    return buffer.getvalue()


def csv_cell(value: Any) -> Any:
    """Return a value as a cell: numbers and None as they are, everything else as text.

    A quote is inserted wherever a spreadsheet could begin a formula in a text, for any character that
    separates cells.
    """
    if isinstance(value, str):  # The most frequent first: to ask for a Number takes long.
        return _DANGEROUS.sub("'", value)
    if value is None or isinstance(value, float | int | Number):
        return value
    is_object = isinstance(value, dict | list | tuple)
    return _DANGEROUS.sub("'", msgspec.json.encode(value).decode() if is_object else str(value))
