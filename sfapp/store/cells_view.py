"""Maintain the view ``cells``: the rows of the packets themselves, for plain SQL, without a copy."""

from __future__ import annotations

from contextlib import suppress

from sfapp.errors import StoreError
from sfapp.store.database import Database
from sfapp.store.schema import CELLS, literal, quote_identifier

_PATTERN = frozenset("*?[")


def refresh(database: Database) -> None:
    """Point ``cells`` at the files shown now.

    Creating the view reads every footer, so it is done once per ingest or on closing, not at every change. If
    a file has disappeared meanwhile, the view stays as it was until the next ingest.
    """
    shown = database.tuples("SELECT path FROM packets WHERE state = 'shown' ORDER BY path")
    patterns = [pattern for (path,) in shown if (pattern := _exact(path)) is not None]
    with suppress(StoreError), database.cursor() as cursor:
        cursor.execute(f"CREATE OR REPLACE VIEW cells AS {_cells_of(patterns) if patterns else _nothing()}")


def _cells_of(patterns: list[str]) -> str:
    files = ", ".join(map(literal, patterns))
    return (
        f'SELECT packets.run_id, packets."window", packets.path, read.* EXCLUDE (packet_path) '
        f"FROM read_parquet([{files}], union_by_name = true, filename = 'packet_path', "
        "hive_partitioning = false) AS read JOIN packets ON packets.path = read.packet_path"
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
