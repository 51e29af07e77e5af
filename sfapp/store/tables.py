"""Writing rows in bulk: Arrow in, one statement a table. Nothing here goes row by row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from sfapp.store.database import Cursor
from sfapp.store.derive import Derived, Key
from sfapp.store.rows import stage_columns, window_row
from sfapp.store.schema import STAGES, WINDOWS, Table

KEYS = "(SELECT unnest($runs::VARCHAR[]), unnest($numbers::BIGINT[]))"
IN_KEYS = f'(run_id, "window") IN {KEYS}'
"""That a row is of one of some windows; bind ``key_values``."""

IN_NAMES = "path IN (SELECT unnest($names::VARCHAR[]))"
"""That a row is of one of some files."""

IN_RUNS = "run_id IN (SELECT unnest($runs::VARCHAR[]))"
"""That a row is of one of some runs."""


def key_values(keys: Collection[Key]) -> dict[str, list[Any]]:
    """What ``IN_KEYS`` binds."""
    return {"runs": [run_id for run_id, _ in keys], "numbers": [number for _, number in keys]}


def insert(cursor: Cursor, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows to a table."""
    if rows:
        _insert(cursor, table, table.arrow(rows))


def replace_windows(cursor: Cursor, keys: Collection[Key], windows: Iterable[Derived]) -> None:
    """Put these windows in the place of whatever is stored under these keys."""
    for table in (WINDOWS, STAGES):
        cursor.execute(f"DELETE FROM {table.name} WHERE {IN_KEYS}", key_values(keys))
    found = list(windows)
    if found:
        insert(cursor, WINDOWS, [window_row(each.diagnosis, each.origin) for each in found])
        columns = stage_columns([each.diagnosis for each in found])
        _insert(cursor, STAGES, STAGES.arrow_columns(columns))


def _insert(cursor: Cursor, table: Table, rows: pa.Table) -> None:
    cursor.register("new_rows", rows)
    try:
        cursor.execute(f"INSERT INTO {table.name} SELECT * FROM new_rows")
    finally:
        cursor.unregister("new_rows")
