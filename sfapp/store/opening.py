"""Opening a store file, or making it anew: everything in it is derived from the packets.

A file of another schema version is dropped and one that cannot be read is moved aside, and the next ingest
fills a new one. A DuckDB file that holds somebody's own tables is left alone.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import duckdb

from sfapp import __version__
from sfapp.errors import StoreError
from sfapp.store.database import Cursor, Database, first_line
from sfapp.store.lock import StoreLock, busy_from_duckdb
from sfapp.store.schema import SCHEMA_VERSION, TABLES

# Everything needed is built in, and a cluster may have no way out: never look for extensions elsewhere.
_CONFIG: dict[str, Any] = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


def open_default(root: Path) -> Database:
    """The store beside the packets; in memory where nothing may be written there.

    Raises:
        StoreBusyError: another process has it open.
        StoreError: it cannot be used, for another reason than a folder that is read-only.
    """
    path = default_path(root)
    try:
        path.parent.mkdir(exist_ok=True)
        return _open_locked(path)
    except OSError as error:
        return open_in_memory(
            f"the store cannot be kept beside the packets ({path.parent}: {error.strerror}), so it is in "
            "memory and built again at every start; give --db FILE to keep it elsewhere"
        )


def default_path(root: Path) -> Path:
    """Where the store of a packet folder lies; for a single file, of the folder it is in."""
    return (root if root.is_dir() else root.parent) / ".sfapp" / "store.duckdb"


def open_file(path: Path) -> Database:
    """The store in a file named by the operator.

    Raises:
        StoreBusyError: another process has it open.
        StoreError: it cannot be made or written, or is no store of sfapp.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _open_locked(path)
    except OSError as error:
        raise StoreError(
            f"the store {path} cannot be opened for writing ({error.strerror}): name another file with --db, "
            "on a file system that has locks"
        ) from error


def open_in_memory(note: str = "") -> Database:
    """A store that ends with the process."""
    connection = duckdb.connect(":memory:", config=_CONFIG)
    _create(connection)
    return Database(connection, None, None, note)


def _open_locked(path: Path) -> Database:
    if "?" in str(path):  # DuckDB would put its log in the middle of the name
        raise OSError(errno.EINVAL, "DuckDB takes no '?' in the name of a file or folder")
    if path.exists():
        with path.open("r+b"):  # says in the system's own words why not, before DuckDB does
            pass
    lock = StoreLock.acquire(path)
    try:
        connection, note = _connect(path)
    except BaseException as error:
        lock.release()
        if isinstance(error, duckdb.Error):
            raise StoreError(
                f"the store {path} cannot be made ({first_line(error)}): name another file with --db"
            ) from error
        raise
    return Database(connection, path, lock, note)


def _connect(path: Path) -> tuple[Cursor, str]:
    if not path.exists():
        return _new(path), ""
    try:
        connection = duckdb.connect(path, config=_CONFIG)
    except duckdb.Error as error:
        busy = busy_from_duckdb(path, str(error))
        if busy is not None:
            raise busy from error
        return _replace(path, first_line(error))
    try:
        version = _version(connection)
        if version == str(SCHEMA_VERSION):
            _read_through(connection)
            return connection, ""
    except duckdb.Error as error:
        connection.close()
        return _replace(path, first_line(error))
    connection.close()
    if version is None:
        raise StoreError(
            f"{path} is a DuckDB file with tables of its own, not a store of sfapp: name another with --db"
        )
    _remove(path)
    note = f"the store was of schema version {version}, not {SCHEMA_VERSION}: built again from the packets"
    return _new(path), note


def _replace(path: Path, reason: str) -> tuple[Cursor, str]:
    """A new store in place of an unreadable one, which is kept under another name."""
    aside = path.with_name(path.name + ".unreadable")
    path.replace(aside)
    _remove(path)
    note = (
        f"the store could not be read ({reason}): built again from the packets; the old file is {aside.name}"
    )
    return _new(path), note


def _remove(path: Path) -> None:
    for file in (path, path.with_name(path.name + ".wal")):
        file.unlink(missing_ok=True)


def _new(path: Path) -> Cursor:
    _remove(path)  # a log without its file belongs to nothing
    connection = duckdb.connect(path, config=_CONFIG)
    _create(connection)
    return connection


def _create(connection: Cursor) -> None:
    """All tables in one transaction, so that a kill leaves either no store or a whole one."""
    connection.begin()
    for table in TABLES:
        connection.execute(table.ddl)
    connection.execute(
        "INSERT INTO store_info VALUES ('schema_version', $schema), ('sfapp_version', $sfapp)",
        {"schema": str(SCHEMA_VERSION), "sfapp": __version__},
    )
    connection.commit()


def _version(connection: Cursor) -> str | None:
    """The schema version of a store; None for a DuckDB file of somebody else's."""
    tables = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if "store_info" not in tables:
        if not tables:
            _create(connection)
            return str(SCHEMA_VERSION)
        return None
    found = connection.execute("SELECT value FROM store_info WHERE key = 'schema_version'").fetchall()
    return found[0][0] if found else "unknown"


def _read_through(connection: Cursor) -> None:
    """Read every block once, so that damage shows now and not on some page later."""
    for table in TABLES:
        connection.execute(f"SELECT bit_xor(hash(each)) FROM {table.name} AS each").fetchall()
