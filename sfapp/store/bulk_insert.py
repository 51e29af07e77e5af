"""Writing rows in bulk: Arrow in, one statement a table. Nothing here goes row by row."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa

from sfapp.store.database import Cursor
from sfapp.store.schema import STAGES, WINDOWS, SchemaTable
from sfapp.store.verdict_rows import Key

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


def insert(cursor: Cursor, table: SchemaTable, rows: pa.Table) -> None:
    """Append rows, in the table's own columns."""
    if not rows.num_rows:
        return
    cursor.register("new_rows", rows)
    try:
        cursor.execute(f"INSERT INTO {table.name} SELECT * FROM new_rows")
    finally:
        cursor.unregister("new_rows")


def replace_windows(cursor: Cursor, keys: Collection[Key], windows: pa.Table, stages: pa.Table) -> None:
    """Put these rows in the place of whatever is stored of these windows."""
    for table, rows in ((WINDOWS, windows), (STAGES, stages)):
        cursor.execute(f"DELETE FROM {table.name} WHERE {IN_KEYS}", key_values(keys))
        insert(cursor, table, rows)
