"""The view ``cells``: the rows of the packets themselves, for plain SQL. Nothing is copied."""

from __future__ import annotations

from contextlib import suppress

from sfapp.errors import StoreError
from sfapp.store.database import Database
from sfapp.store.schema import CELLS, literal, quote_identifier

_PATTERN = frozenset("*?[")


def refresh(database: Database) -> None:
    """Point ``cells`` at the files shown now.

    Making the view reads every footer, so this is done once an ingest or on closing, not at every change.
    Where a file has gone meanwhile the view stays as it was, and the next ingest makes it right.
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
    """A pattern that only this path matches; None where DuckDB has no way to write one."""
    if _PATTERN.isdisjoint(path):
        return path
    if "\\" in path:
        return None  # an escape in a pattern, whatever is done to it
    return "".join(f"[{char}]" if char in _PATTERN else char for char in path)
