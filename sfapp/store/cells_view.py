"""Maintain the view ``cells``: the rows of the packets for plain SQL, without a copy."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from sfapp.errors import StoreError
from sfapp.store.database import Database
from sfapp.store.schema import CELLS, literal, quote_identifier

_PATTERN = frozenset("*?[")


def refresh(database: Database) -> None:
    """Let ``cells`` read the files that are currently shown.

    Files of one layout are read together, so that creating and querying the view opens only one file of each
    to determine its columns; DuckDB's ``union_by_name`` would open every file. The view lists all files, so
    it is created once per ingest or on closing, not at every change. If a file has disappeared meanwhile, the
    view stays as it was until the next ingest.
    """
    shown = database.tuples(
        "SELECT layout, path FROM packets WHERE state = 'shown' AND verdicts IS NULL ORDER BY path"
    )
    layouts: dict[str, list[str]] = defaultdict(list)
    for layout, path in shown:
        # DuckDB reads buckets only with an extension and credentials of its own.
        if os.path.isabs(path) and (pattern := _exact(path)) is not None:
            layouts[layout].append(pattern)
    with suppress(StoreError), database.cursor() as cursor:
        cells = _cells_of(layouts.values()) if layouts else _nothing()
        cursor.execute(f"CREATE OR REPLACE VIEW cells AS {cells}")


def _cells_of(layouts: Iterable[list[str]]) -> str:
    """Return the query for the rows of these files, listed by layout."""
    read = " UNION ALL BY NAME ".join(
        f"SELECT * FROM read_parquet([{', '.join(map(literal, patterns))}], filename = 'packet_path', "
        "hive_partitioning = false)"
        for patterns in layouts
    )
    return (
        f'SELECT packets.run_id, packets."window", packets.path, read.* EXCLUDE (packet_path) '
        f"FROM ({read}) AS read JOIN packets ON packets.path = read.packet_path AND packets.verdicts IS NULL"
    )


def _nothing() -> str:
    columns = (f"NULL::{column.type} AS {quote_identifier(column.name)}" for column in CELLS.columns)
    return f"SELECT {', '.join(columns)} WHERE false"


def _exact(path: str) -> str | None:
    """Return a pattern that matches this path only; None if DuckDB cannot express one."""
    if _PATTERN.isdisjoint(path):
        return path
    if "\\" in path:
        return None  # DuckDB treats a backslash in a pattern as an escape.
    return "".join(f"[{char}]" if char in _PATTERN else char for char in path)
