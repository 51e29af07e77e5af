"""Insert rows in bulk: Arrow tables, one statement per table."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa

from sfapp.store.database import Cursor
from sfapp.store.schema import STAGES, WINDOWS, SchemaTable
from sfapp.store.verdict_rows import Key

KEYS = "(SELECT unnest($runs::VARCHAR[]), unnest($numbers::BIGINT[]))"
IN_KEYS = f'(run_id, "window") IN {KEYS}'
"""Condition that a row belongs to one of some windows; bind ``key_values``."""

IN_NAMES = "path IN (SELECT unnest($names::VARCHAR[]))"
"""Condition that a row belongs to one of some files."""

IN_RUNS = "run_id IN (SELECT unnest($runs::VARCHAR[]))"
"""Condition that a row belongs to one of some runs."""


def key_values(keys: Collection[Key]) -> dict[str, list[Any]]:
    """Return the values that ``IN_KEYS`` binds."""
    return {"runs": [run_id for run_id, _ in keys], "numbers": [number for _, number in keys]}


def insert(cursor: Cursor, table: SchemaTable, rows: pa.Table) -> None:
    """Append rows that have the table's columns."""
    if not rows.num_rows:
        return
    cursor.register("new_rows", rows)
    try:
        cursor.execute(f"INSERT INTO {table.name} SELECT * FROM new_rows")
    finally:
        cursor.unregister("new_rows")


def insert_windows(cursor: Cursor, windows: pa.Table, stages: pa.Table) -> None:
    """Append the verdicts of windows of which none is stored."""
    insert(cursor, WINDOWS, windows)
    insert(cursor, STAGES, stages)


def delete_windows(cursor: Cursor, keys: Collection[Key]) -> None:
    """Delete the verdicts of these windows."""
    for table in (WINDOWS, STAGES):
        cursor.execute(f"DELETE FROM {table.name} WHERE {IN_KEYS}", key_values(keys))
