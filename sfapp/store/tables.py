"""Writing rows in bulk: Arrow in, one statement a table. Nothing here goes row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from sfapp.store.database import Cursor
from sfapp.store.derive import Derived, Key
from sfapp.store.rows import stage_rows, window_row
from sfapp.store.schema import STAGES, WINDOWS, Table

IN_KEYS = '(run_id, "window") IN (SELECT run_id, "window" FROM keys)'
IN_NAMES = "path IN (SELECT path FROM names)"
IN_RUNS = "run_id IN (SELECT run_id FROM some_runs)"


@contextmanager
def given(
    cursor: Cursor,
    *,
    keys: Iterable[Key] = (),
    names: Iterable[str] = (),
    runs: Iterable[str] = (),
) -> Iterator[None]:
    """Let statements speak of these windows, files and runs: ``IN_KEYS``, ``IN_NAMES``, ``IN_RUNS``."""
    pairs = list(keys)
    run_ids = pa.array([run_id for run_id, _ in pairs], pa.string())
    numbers = pa.array([number for _, number in pairs], pa.int64())
    cursor.register("keys", pa.table({"run_id": run_ids, "window": numbers}))
    cursor.register("names", pa.table({"path": pa.array(list(names), pa.string())}))
    cursor.register("some_runs", pa.table({"run_id": pa.array(list(runs), pa.string())}))
    try:
        yield
    finally:
        for name in ("keys", "names", "some_runs"):
            cursor.unregister(name)


def insert(cursor: Cursor, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows to a table; keys that a row lacks are null."""
    if not rows:
        return
    cursor.register("new_rows", table.arrow(rows))
    try:
        cursor.execute(f"INSERT INTO {table.name} SELECT * FROM new_rows")
    finally:
        cursor.unregister("new_rows")


def replace_windows(cursor: Cursor, keys: Iterable[Key], windows: Sequence[Derived]) -> None:
    """Put these windows in the place of whatever is stored under these keys."""
    with given(cursor, keys=keys):
        for table in (WINDOWS, STAGES):
            cursor.execute(f"DELETE FROM {table.name} WHERE {IN_KEYS}")
    insert(cursor, WINDOWS, [window_row(found.diagnosis, found.origin) for found in windows])
    insert(cursor, STAGES, [row for found in windows for row in stage_rows(found.diagnosis)])
