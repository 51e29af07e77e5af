"""Tables as CSV that a spreadsheet opens as text and numbers only."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that spreadsheets take for a formula."""


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV: every column of any row, in order of first appearance; lists and objects as JSON.

    A text that a spreadsheet would take for a formula starts with a quote.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow([_cell(column) for column in columns])
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in columns])
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return msgspec.json.encode(value).decode()
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return f"'{value}"
    return value
