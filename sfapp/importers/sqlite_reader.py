"""Read SQLite files of other tools, read-only; any table or column may be absent."""

from __future__ import annotations

import sqlite3
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sfapp.errors import TraceError
from sfapp.files import check_regular
from sfapp.importers.source_files import CHANGED, content_state, open_source
from sfapp.terminal import first_line, quoted

MAX_EXPANDED = 2**36
"""Largest size on disk that a gzipped file may expand to, bytes."""

MAX_CELL = 2**24
"""Longest text or blob in a row, bytes."""

MAX_TEXT = 2**14
"""Number of characters kept of a value: the longest name of an operator event."""

MAX_SECONDS = 300.0
"""Longest time in which a file is read: a damaged one can make SQLite search without end."""

_SQLITE_ERRORS = (sqlite3.Error, OverflowError, UnicodeError)
"""Exceptions of the sqlite3 module on damaged files: a message with an undecodable name is a UnicodeError."""

MAX_BATCH_TEXT = 2**22
"""Number of characters of texts from which a batch takes no further rows: a few bytes can name one long text
as the value of many rows."""

_STEPS_BETWEEN_CHECKS = 2**16
_BLOCK = 2**20
_ROWS = 2**14
_ROWS_OF_TEXT = 2**7


@dataclass(frozen=True, slots=True)
class SqliteDatabase:
    """An open database with the columns of its tables."""

    path: Path
    connection: sqlite3.Connection
    columns: dict[str, tuple[str, ...]]

    def rows(
        self,
        table: str,
        needed: Sequence[str],
        optional: Sequence[str] = (),
        where: str = "",
        texts: Sequence[str] = (),
    ) -> Iterator[Any]:
        """Yield the rows of a table in batches of tuples; an absent optional column is null.

        Args:
            texts: columns among them that hold text: only the first ``MAX_TEXT`` characters are read. Others
                hold numbers. A value of any other type is read as null.

        Raises:
            TraceError: the table or a needed column is absent, or cannot be read.
        """
        present = self.columns.get(table)
        if present is None:
            raise TraceError(f"no table {table}", path=str(self.path))
        for column in needed:
            if column not in present:
                listed = ", ".join(quoted(each) for each in present[:20])
                raise TraceError(
                    f"no column {column!r}; present columns: {listed}",
                    path=str(self.path),
                    place=f"table {table}",
                )
        chosen = [
            f"NULL AS {column}"
            if column not in present
            else f"CASE typeof({column}) WHEN 'text' THEN substr({column}, 1, {MAX_TEXT}) END"
            if column in texts
            else f"CASE WHEN typeof({column}) IN ('integer', 'real') THEN {column} END"
            for column in (*needed, *optional)
        ]
        places = [place for place, column in enumerate((*needed, *optional)) if column in texts]
        try:
            yield from _batches(
                self.connection.execute(f"SELECT {', '.join(chosen)} FROM {table} {where}"), places
            )
        except _SQLITE_ERRORS as error:
            raise TraceError(first_line(str(error)), path=str(self.path), place=f"table {table}") from error

    def count(self, table: str) -> int:
        """Return the number of rows of a table, 0 if it is absent."""
        if table not in self.columns:
            return 0
        try:
            found: int = self.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        except _SQLITE_ERRORS as error:
            raise TraceError(first_line(str(error)), path=str(self.path), place=f"table {table}") from error
        return found


@contextmanager
def open_database(path: Path, scratch_folder: Path | None = None) -> Iterator[SqliteDatabase]:
    """Open a SQLite file, gzipped or not, for reading.

    Nothing in it is executed: views, triggers and virtual tables are ignored. Text that is not valid UTF-8 is
    read with replacement characters.

    Args:
        scratch_folder: where a gzipped file is expanded to, for as long as it is open; the system's folder
            of temporary files by default.

    Raises:
        TraceError: it is not a SQLite file, is damaged, or was written to while it was read.
    """
    with _expanded(path, scratch_folder) as file:
        connection = None
        try:
            journals = _journals(file)
            for each in (file, *journals):
                check_regular(each)
            # A journal next to the file is read too. Without one the folder may be read-only, and SQLite does
            # not look whether another process writes to the file.
            uri = f"{file.resolve().as_uri()}?mode=ro" + ("" if journals else "&immutable=1")
            before = content_state(file)
            connection = sqlite3.connect(uri, uri=True)
            connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL)
            connection.execute("PRAGMA trusted_schema = OFF")
            deadline = time.monotonic() + MAX_SECONDS
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_CHECKS)
            yield SqliteDatabase(path, connection, _columns(connection))
            if not journals and content_state(file) != before:
                raise TraceError(CHANGED, path=str(path))
        except (*_SQLITE_ERRORS, OSError) as error:
            raise TraceError(
                f"is not a readable SQLite file: {first_line(str(error))}", path=str(path)
            ) from error
        finally:
            if connection is not None:
                connection.close()


def _batches(cursor: sqlite3.Cursor, texts: Sequence[int]) -> Iterator[Any]:
    """Yield rows in batches, smaller ones if the texts at these places of a row are long."""
    batch: list[Any] = []
    characters = 0
    while some := cursor.fetchmany(_ROWS_OF_TEXT if texts else _ROWS):
        batch += some
        characters += sum(len(row[place]) for row in some for place in texts if row[place])
        if len(batch) >= _ROWS or characters > MAX_BATCH_TEXT:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _journals(file: Path) -> list[Path]:
    candidates = (file.with_name(file.name + ending) for ending in ("-wal", "-journal"))
    return [path for path in candidates if path.exists()]


def _columns(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    # As SQLite writes it: the words before VIRTUAL may be separated in many ways.
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE %'"
    ).fetchall()
    return {
        name: tuple(
            column for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (name,))
        )
        for (name,) in tables
    }


@contextmanager
def _expanded(path: Path, scratch_folder: Path | None) -> Iterator[Path]:
    """Provide the path of a file's content: a scratch file for a gzipped file, else its own."""
    if not path.name.endswith(".gz"):
        yield path
        return
    with tempfile.NamedTemporaryFile(suffix=".sqlite", dir=scratch_folder) as scratch:
        _expand(path, scratch)
        yield Path(scratch.name)


def _expand(path: Path, scratch: IO[bytes]) -> None:
    """Expand into a scratch file, block by block."""
    size = 0
    try:
        with open_source(path) as file:
            while block := file.read(_BLOCK):
                size += len(block)
                if size > MAX_EXPANDED:
                    raise TraceError(f"expands to more than {MAX_EXPANDED:,} bytes", path=str(path))
                scratch.write(block)
    except (OSError, EOFError, zlib.error) as error:
        reason = f"cannot be read after {size:,} bytes: {first_line(str(error))}"
        raise TraceError(reason, path=str(path)) from error
    scratch.flush()
