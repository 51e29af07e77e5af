"""An open DuckDB store: one cursor a call, one writer at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from sfapp.errors import StoreError
from sfapp.store.lock import StoreLock

Cursor = duckdb.DuckDBPyConnection
Parameters = Sequence[Any] | dict[str, Any]


class Database:
    """An open store.

    Attributes:
        path: the file, None in memory.
        note: what the operator should know of how it was opened; empty where nothing is out of the ordinary.
    """

    def __init__(self, connection: Cursor, path: Path | None, lock: StoreLock | None, note: str = "") -> None:
        self.path = path
        self.note = note
        self._connection = connection
        self._lock = lock
        self._writer = threading.Lock()
        self._handing_out = threading.Lock()  # DuckDB refuses to close a connection that makes a cursor
        self._generation = 0
        self._closed = False

    @property
    def generation(self) -> int:
        """How many changes were committed, or noted, since opening."""
        return self._generation

    def note_change(self) -> None:
        """Something that pages show changed in files that are not stored."""
        with self._writer:
            self._generation += 1

    def rows(self, sql: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
        """The rows of a query, each as column → value. Safe from any thread."""
        with self.cursor() as cursor:
            found = cursor.execute(sql, parameters)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def tuples(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """The rows of a query as they come. Safe from any thread."""
        with self.cursor() as cursor:
            return cursor.execute(sql, parameters).fetchall()

    @contextmanager
    def transaction(self, counted: bool = True) -> Iterator[Cursor]:
        """A cursor whose changes appear together or not at all; one writer at a time.

        Args:
            counted: whether ``generation`` grows: not for samples, which arrive every second.
        """
        with self._writer, self.cursor() as cursor:
            cursor.begin()
            try:
                yield cursor
                cursor.commit()
            except BaseException:
                with suppress(duckdb.Error):  # it may have been rolled back already
                    cursor.rollback()
                raise
            self._generation += counted

    def close(self) -> None:
        """Fold the log into the file and let go of both. Waits for a change in progress; may be repeated."""
        with self._writer:
            if self._closed:
                return
            self._closed = True
            try:
                with self._handing_out:
                    self._connection.close()
            finally:
                if self._lock is not None:
                    self._lock.release()

    @contextmanager
    def cursor(self) -> Iterator[Cursor]:
        """A cursor for one call: the one place where what DuckDB raises becomes a StoreError."""
        try:
            with self._handing_out:
                cursor = self._connection.cursor()
            try:
                yield cursor
            finally:
                cursor.close()
        except duckdb.Error as error:
            if self._closed:
                raise StoreError("the store has been closed") from error
            raise StoreError(f"the store {self.path or 'in memory'} failed: {first_line(error)}") from error


def first_line(error: duckdb.Error) -> str:
    """DuckDB's message without the query it repeats."""
    return str(error).strip().split("\n", 1)[0]
