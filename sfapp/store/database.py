"""Give access to an open DuckDB store: one cursor per call and one writer at a time."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from sfapp.errors import StoreError, StoreFailedError
from sfapp.files import lock_file, open_regular
from sfapp.store.lock import StoreLock

Cursor = duckdb.DuckDBPyConnection
Parameters = Sequence[Any] | dict[str, Any]

SETTLED = "settled"
"""Key of the row of ``store_info`` that holds until the next change (``settled.Settled``)."""

_LARGE_LOG = "32MB"
"""Size of the log from which rows are written into the file while there are many commits."""

_PREFIX, _LOCK = "sfapp-store-", "lock"
"""Names of the folder for what a store in memory cannot hold, and of a file in it that its process locks."""

_CALLS_BETWEEN = 2_000
"""Calls after which the handles of buffers that queries have returned are freed: 1 to 2 MB."""

_FAILURES = (duckdb.OperationalError, duckdb.InternalError, duckdb.FatalException)
"""Errors of the database; the others are of a query."""

_INTERRUPTED = "Query interrupted"
"""Message of DuckDB's error for a query amid which a signal's handler raised, whatever it raised."""

_CLOSING_S = 30.0
"""Maximum seconds to wait for running queries when the store is closed."""


class Database:
    """Open DuckDB database of a store.

    Attributes:
        path: the file, None in memory.
        note: message for the user on how it was opened; empty if there is nothing unusual.
    """

    def __init__(
        self,
        connection: Cursor,
        path: Path | None,
        lock: StoreLock | None,
        note: str = "",
        *,
        connect: Callable[[], Cursor],
    ) -> None:
        """Wrap a connection.

        Args:
            lock: released when the database is closed.
            connect: opens the same database again, or a new one in memory.
        """
        self.path = path
        self.note = note
        self._connect = connect
        self._connection = connection
        self._lock = lock
        self._writer = threading.Lock()
        # DuckDB refuses to close a connection while it creates a cursor, or while one of these is in use.
        self._handing_out = threading.Condition()
        self._in_use = 0
        self._calls = 0  # since handles were freed
        # Read once: the text is rounded down, each time anew.
        self._memory_limit = "" if path is None else _memory_limit(connection)
        self._generation = 0
        self._closed = False

    @property
    def generation(self) -> int:
        """Number of changes committed or noted since opening."""
        return self._generation

    def note_change(self) -> None:
        """Count a change of files that pages show but that are not in the store."""
        with self._writer:
            self._generation += 1

    def rows(self, sql: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
        """Return the rows of a query as dicts by column. Safe from any thread."""
        with self.cursor() as cursor:
            return rows_of(cursor.execute(sql, parameters))

    def tuples(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query as tuples. Safe from any thread."""
        with self.cursor() as cursor:
            return cursor.execute(sql, parameters).fetchall()

    @contextmanager
    def transaction(self, counted: bool = True) -> Iterator[Cursor]:
        """Yield a cursor whose changes are committed together or not at all; one writer at a time.

        Args:
            counted: whether ``generation`` grows. It does not for most samples, which arrive every second.
        """
        with self._writer, self.cursor() as cursor:
            cursor.begin()
            try:
                if counted:
                    cursor.execute("DELETE FROM store_info WHERE key = ?", [SETTLED])
                yield cursor
                cursor.commit()
            except BaseException:
                with suppress(duckdb.Error):  # DuckDB may have rolled back already.
                    cursor.rollback()
                raise
            self._generation += counted

    @contextmanager
    def rare_checkpoints(self) -> Iterator[None]:
        """Let the log grow before its rows are written into the file, for many commits in a row.

        A checkpoint writes the last row group of a table as a whole: up to 122,880 rows, however few are new.
        Committed rows survive a killed process either way, in the log or in the file.
        """
        usual = self.tuples("SELECT current_setting('checkpoint_threshold')")[0][0]
        self._set_log(_LARGE_LOG)
        try:
            yield
        finally:
            with suppress(StoreError):  # A database that is opened again has the usual limit.
                self._set_log(usual)

    def _set_log(self, size: str) -> None:
        with self.cursor() as cursor:
            cursor.execute(f"SET GLOBAL checkpoint_threshold = '{size}'")

    def recover(self, is_damaged: bool = False) -> None:
        """Open the database again if DuckDB has invalidated it, as it does where the disk refuses a write, or
        create a new one if its file is gone, with its folder: no log can then be written.

        Args:
            is_damaged: rename the file, and create a new one.

        Raises:
            StoreError: it cannot be opened, or has been closed.
        """
        with self._writer:
            try:
                with self.cursor() as cursor:
                    cursor.execute("SELECT count(*) FROM store_info").fetchall()
                if not is_damaged and not self._is_gone():
                    return
            except StoreError:
                if self._closed:
                    raise
            with self._handing_out:
                self._handing_out.wait_for(lambda: not self._in_use, _CLOSING_S)
                with suppress(duckdb.Error):
                    self._connection.close()
                try:
                    if self.path is not None and self._is_gone():
                        self.path.parent.mkdir(exist_ok=True)
                    elif is_damaged and self.path is not None:
                        set_aside(self.path)
                    self._connection = self._connect()
                except (duckdb.Error, OSError) as error:
                    reason = first_line(error) if isinstance(error, duckdb.Error) else error.strerror
                    raise StoreError(
                        f"the store {self.path or 'in memory'} cannot be opened: {reason}"
                    ) from error
            self._generation += 1

    def _is_gone(self) -> bool:
        """Return whether the file was removed. Where the packets are gone too, it may come back with them."""
        if self.path is None:
            return False
        return not os.path.exists(self.path) and os.path.exists(self.path.parent.parent)

    def close(self) -> None:
        """Write the log into the file, close the file and release the lock.

        Waits for a change in progress and for running queries; may be called again.
        """
        with self._writer:
            if self._closed:
                return
            self._closed = True
            try:
                with self._handing_out:
                    self._handing_out.wait_for(lambda: not self._in_use, _CLOSING_S)
                    self._connection.close()
                    # Routes and pages may outlive the store; they must not hold a connection, which would
                    # cause messages of DuckDB when the interpreter ends.
                    del self._connection
            finally:
                if self._lock is not None:
                    self._lock.release()

    @contextmanager
    def cursor(self) -> Iterator[Cursor]:
        """Yield a cursor for one call, turning DuckDB's exceptions into StoreError.

        Raises:
            StoreFailedError: the store is closed, or DuckDB cannot use its file any more.
            StoreError: DuckDB refused the query.
            KeyboardInterrupt: Ctrl-C interrupted a query.
        """
        try:
            with self._handing_out:
                if self._closed:
                    raise StoreFailedError("the store has been closed")
                cursor = self._connection.cursor()
                self._in_use += 1
            try:
                yield cursor
            finally:
                self._free_handles(cursor)
                cursor.close()
                with self._handing_out:
                    self._in_use -= 1
                    self._handing_out.notify_all()
        except duckdb.Error as error:
            if self._closed:
                raise StoreFailedError("the store has been closed") from error
            kind = StoreFailedError if isinstance(error, _FAILURES) else StoreError
            raise kind(f"the store {self.path or 'in memory'} failed: {first_line(error)}") from error
        except RuntimeError as error:
            if str(error) == _INTERRUPTED:
                raise KeyboardInterrupt from error
            raise

    def _free_handles(self, cursor: Cursor) -> None:
        """Free the handles of buffers that queries have returned, and what they have read from the file, if
        that is due and no other cursor is in use.

        DuckDB queues such handles, half a kB each, until 32,768 buffers of one kind are in the queue: tens of
        MB after an hour of live pages. It goes through the queues earlier only where memory is short, as it
        is for a limit of nothing, which it then refuses. A store in memory would be written to disk for it.
        """
        with self._handing_out:  # No query begins meanwhile: with nothing in use, the limit is taken.
            self._calls += 1
            if self._calls < _CALLS_BETWEEN or self._in_use > 1 or self.path is None:
                return
            self._calls = 0
            with suppress(duckdb.Error):
                cursor.execute("SET GLOBAL memory_limit = '0B'")
            with suppress(duckdb.Error):  # A database that has failed says so at the next query.
                cursor.execute(f"SET GLOBAL memory_limit = '{self._memory_limit}'")


def _memory_limit(connection: Cursor) -> str:
    ((limit,),) = connection.execute("SELECT current_setting('memory_limit')").fetchall()
    return str(limit)


def set_aside(path: Path) -> Path:
    """Rename the file of an unreadable store, and return its new path."""
    return path.replace(path.with_name(path.name + ".unreadable"))


def rows_of(cursor: Cursor) -> list[dict[str, Any]]:
    """Return the rows of a query that a cursor has executed, as dicts by column."""
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def first_line(error: duckdb.Error) -> str:
    """Return DuckDB's message without the repeated query."""
    return str(error).strip().split("\n", 1)[0]


def spare_folder() -> str:
    """Return where values that no longer fit into memory go; empty for nowhere.

    DuckDB makes the folder when it needs it and removes it afterwards. Its default is ``.tmp`` in the current
    folder, in which others may have put a link of that name.
    """
    try:
        folder = os.path.join(_own_folder(), secrets.token_hex(8))
        folder.encode()
    except (OSError, UnicodeEncodeError):  # No folder can be written, or DuckDB cannot take its name.
        return ""
    return folder


@cache
def _own_folder() -> str:
    """Make a folder that no other user can read, for as long as this process runs, and remove those of
    processes that were killed."""
    folder = tempfile.mkdtemp(prefix=_PREFIX)
    maker = os.getpid()
    files = ExitStack()  # Until this process and its forked children have ended.
    with suppress(OSError):  # Without a lock, no process removes it.
        lock = files.enter_context(open_regular(os.path.join(folder, f"new-{_LOCK}"), "xb"))
        lock_file(lock.fileno(), 0.0)
        os.rename(lock.name, os.path.join(folder, _LOCK))  # It has this name only while it is locked.
        _remove_left(os.path.dirname(folder), folder)

    def remove() -> None:
        if os.getpid() == maker:  # not in a forked child
            shutil.rmtree(folder, ignore_errors=True)
            files.close()

    atexit.register(remove)
    return folder


def _remove_left(parent: str, own: str) -> None:
    """Remove the folders of this user's processes that have ended without removing them: what they could not
    hold in memory may be large."""
    with os.scandir(parent) as entries:
        folders = [one.path for one in entries if one.name.startswith(_PREFIX) and one.path != own]
    for folder in folders:
        with suppress(OSError):  # It is of another user, in use, or of a version that does not lock it.
            status = os.lstat(folder)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            with open_regular(os.path.join(folder, _LOCK), "r+b", follow_links=False) as file:
                lock_file(file.fileno(), 0.0)
                shutil.rmtree(folder, ignore_errors=True)
