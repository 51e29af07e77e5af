"""SQLite files of other tools: opened to read only, their tables and columns taken as they come."""

from __future__ import annotations

import gzip
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sfapp.errors import TraceError
from sfapp.terminal import first_line, quoted

MAX_EXPANDED = 2**36
"""Largest database that a gzipped file may expand to, on disk."""

MAX_CELL = 2**24
"""Longest text or blob in a row, in bytes."""

_BLOCK = 2**20
_ROWS = 2**14


@dataclass(frozen=True, slots=True)
class Database:
    """An open database: what tables it has, by name, with their columns."""

    path: Path
    connection: sqlite3.Connection
    columns: dict[str, tuple[str, ...]]

    def rows(
        self, table: str, needed: Sequence[str], optional: Sequence[str] = (), where: str = ""
    ) -> Iterator[Any]:
        """Rows of a table, a batch of tuples at a time; an optional column that is not there is null.

        Raises:
            TraceError: the table or a needed column is not there, or cannot be read.
        """
        present = self.columns.get(table)
        if present is None:
            raise TraceError(f"no table {table}", path=str(self.path))
        for column in needed:
            if column not in present:
                listed = ", ".join(quoted(each) for each in present[:20])
                raise TraceError(
                    f"no column {column!r}; there are: {listed}", path=str(self.path), place=f"table {table}"
                )
        chosen = [*needed, *(column if column in present else f"NULL AS {column}" for column in optional)]
        try:
            cursor = self.connection.execute(f"SELECT {', '.join(chosen)} FROM {table} {where}")
            while batch := cursor.fetchmany(_ROWS):
                yield batch
        except (sqlite3.Error, OverflowError) as error:
            raise TraceError(first_line(str(error)), path=str(self.path), place=f"table {table}") from error

    def count(self, table: str) -> int:
        """How many rows a table has; none where it is not there."""
        if table not in self.columns:
            return 0
        try:
            found: int = self.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        except sqlite3.Error as error:
            raise TraceError(first_line(str(error)), path=str(self.path), place=f"table {table}") from error
        return found


@contextmanager
def database(path: Path) -> Iterator[Database]:
    """A SQLite file, gzipped or not, to read from.

    Nothing in it is run: views, triggers and virtual tables are not looked at, and text that is no UTF-8 is
    read with marks in it.

    Raises:
        TraceError: it is no SQLite file, or damaged.
    """
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as scratch:
        file = path
        if path.name.endswith(".gz"):
            _expand(path, scratch)
            file = Path(scratch.name)
        connection = None
        try:
            # What is still in a journal beside the file is read too; without one the folder may be read-only.
            uri = f"{file.resolve().as_uri()}?mode=ro" + ("" if _has_journal(file) else "&immutable=1")
            connection = sqlite3.connect(uri, uri=True)
            connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL)
            connection.execute("PRAGMA trusted_schema = OFF")
            yield Database(path, connection, _columns(connection))
        except sqlite3.Error as error:
            raise TraceError(
                f"is no readable SQLite file: {first_line(str(error))}", path=str(path)
            ) from error
        finally:
            if connection is not None:
                connection.close()


def _has_journal(file: Path) -> bool:
    return any(file.with_name(file.name + ending).exists() for ending in ("-wal", "-journal"))


def _columns(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    ).fetchall()
    return {
        name: tuple(
            column for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (name,))
        )
        for (name,) in tables
    }


def _expand(path: Path, scratch: IO[bytes]) -> None:
    """Expand into a scratch file, block by block."""
    size = 0
    try:
        with gzip.open(path, "rb") as file:
            while block := file.read(_BLOCK):
                size += len(block)
                if size > MAX_EXPANDED:
                    raise TraceError(f"expands to more than {MAX_EXPANDED:,} bytes", path=str(path))
                scratch.write(block)
    except (OSError, EOFError, zlib.error) as error:
        reason = f"cannot be read after {size:,} bytes: {first_line(str(error))}"
        raise TraceError(reason, path=str(path)) from error
    scratch.flush()
