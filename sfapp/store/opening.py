"""Open a store file or create it. Everything in it is derived from the packets.

A file of another schema version is deleted, and an unreadable file is renamed; the next ingest fills a new
one. A DuckDB file with other tables is never changed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

from sfapp import __version__
from sfapp.errors import StoreError
from sfapp.files import open_regular
from sfapp.packets.memory_budget import available_memory
from sfapp.storage import StoragePath, local_paths, resolved, resolved_file
from sfapp.store.database import Cursor, Database, first_line, set_aside, spare_folder
from sfapp.store.lock import StoreLock, busy_from_duckdb
from sfapp.store.reference_choices import default_path
from sfapp.store.schema import (
    CELLS,
    MEANINGS,
    RUN_REFERENCES,
    SCHEMA_VERSION,
    STAGES,
    STORE_INFO,
    TABLES,
    WINDOWS,
    SchemaColumn,
    SchemaTable,
    quote_identifier,
)
from sfapp.store.verdict_checks import FOREIGN_VALUES, MAX_NUMBER
from sfapp.terminal import printable

# All needed extensions are built in. A cluster may have no internet access, so none are searched for.
_CONFIG: dict[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    # Rows are held uncompressed in memory until a checkpoint: by default until their log has 16 MB, which for
    # the samples of a running job are tens of MB.
    "checkpoint_threshold": "1MB",
    "allocator_flush_threshold": "1MB",
    # Otherwise a thread's freed memory is returned only when that thread allocates again.
    "allocator_background_threads": "true",
}

_LEAST_MEMORY_BYTES, _MOST_MEMORY_BYTES = 256 << 20, 2 << 30
"""Range of the memory of DuckDB for a store in a file, within which it is half of what is available. Blocks
that were read stay in memory up to this limit; larger queries use temporary files next to the store."""

_LEAST_EXPANDED_BYTES = 256 << 20
_EXPANSION = 32
"""Multiple of the file's size that the values of a store may take, if it is more than
``_LEAST_EXPANDED_BYTES``. Those of jobs take about five times the size."""

_LONGEST_SHOWN = 60
_VALUE_BYTES = 8
_TEXTS = ("VARCHAR", "JSON")
_TEXT_BYTES = "strlen(decode(encode({})))"
"""Bytes of a text; an error if it is not UTF-8, which DuckDB itself finds only when it returns the text."""

_FOREIGN_KINDS = (
    ("view", "duckdb_views", f"NOT internal AND view_name <> '{CELLS.name}'"),
    ("function", "duckdb_functions", "NOT internal"),
    ("trigger", "duckdb_triggers", "true"),
    ("index", "duckdb_indexes", "true"),
)
"""Kinds of objects that no store of sfapp holds, where DuckDB lists them, and which of those are meant."""

_MAGIC = slice(8, 12)
"""Bytes by which a DuckDB file is known."""


def absolute_roots(roots: Sequence[StoragePath]) -> list[StoragePath]:
    """Return the absolute paths of packet folders and files.

    Raises:
        StoreError: there are none, or a local one does not exist.
    """
    absolute = [resolved(root) for root in roots]
    if not absolute:
        raise StoreError("name at least one folder of packets")
    for root in local_paths(absolute):
        if not root.exists():
            raise StoreError(f"no such file or folder: {root}")
    return absolute


def open_database(roots: Sequence[StoragePath], db: Path | None, *, memory: bool) -> Database:
    """Open the store of some roots, as ``Store.open`` does.

    Raises:
        StoreBusyError: another process, or this one, has it open.
        StoreError: the file cannot be used.
    """
    if memory:
        return open_in_memory()
    if db is not None:
        return open_file(resolved_file(Path(db)))
    if not isinstance(roots[0], Path):
        return open_in_memory(
            f"the store of {roots[0]} is in memory and built again at every start; give --db FILE to keep it"
        )
    return open_default(roots[0])


def open_default(root: Path) -> Database:
    """Open the store next to the packets, or one in memory if that folder cannot be written.

    Raises:
        StoreBusyError: another process has it open.
        StoreError: it cannot be used for another reason than a read-only folder.
    """
    path = default_path(root)
    try:
        path.parent.mkdir(exist_ok=True)
        return _open_locked(path)
    except OSError as error:
        return open_in_memory(
            f"the store cannot be kept next to the packets ({path.parent}: {error.strerror}), so it is in "
            "memory and built again at every start; give --db FILE to keep it elsewhere"
        )


def open_file(path: Path) -> Database:
    """Open the store in a file chosen by the user.

    Raises:
        StoreBusyError: another process has it open.
        StoreError: it cannot be created or written, or is no store of sfapp.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if _is_another_kind(path):
            raise StoreError(f"{path} is no store of sfapp, nor a DuckDB file: name another with --db")
        return _open_locked(path)
    except OSError as error:
        raise StoreError(
            f"the store {path} cannot be opened for writing ({error.strerror}): name another file with --db, "
            "on a file system that has locks"
        ) from error


def _is_another_kind(path: Path) -> bool:
    """Return whether a file is there that DuckDB has not written."""
    if not os.path.lexists(path):
        return False
    with open_regular(path) as file:
        head = file.read(_MAGIC.stop)
    return bool(head) and head[_MAGIC] != b"DUCK"


def open_in_memory(note: str = "") -> Database:
    """Create a store in memory, which ends with the process."""
    return Database(_in_memory(), None, None, note, connect=_in_memory)


def _in_memory() -> Cursor:
    connection = duckdb.connect(":memory:", config={**_CONFIG, "temp_directory": spare_folder()})
    _create(connection)
    return connection


def _open_locked(path: Path) -> Database:
    if b"?" in str(path).encode(errors="replace"):  # Or not UTF-8. DuckDB would cut the name of its log.
        raise OSError(errno.EINVAL, "DuckDB takes no '?' in the name of a file or folder, and UTF-8 only")
    # DuckDB writes through links: one that others put there would lead it to any file of this user. Opening
    # the files here also reports the operating system's reason before DuckDB reports its own.
    for file in (path, _write_ahead_log(path)):
        if os.path.lexists(file):
            with open_regular(file, "r+b", follow_links=False):
                pass
    if (temporary := path.with_name(path.name + ".tmp")).is_symlink():
        raise OSError(errno.ELOOP, "its folder of temporary files is a link", temporary)
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
    return Database(connection, path, lock, note, connect=lambda: _connect(path)[0])


def _connect(path: Path) -> tuple[Cursor, str]:
    if not path.exists():
        return _new(path), ""
    try:
        connection = _in_file(path)
    except duckdb.Error as error:
        busy = busy_from_duckdb(path, str(error))
        if busy is not None:
            raise busy from error
        return _replace(path, first_line(error))
    try:
        foreign = _foreign_object(connection)
        if foreign and STORE_INFO.name in _definitions(connection):
            connection.close()
            return _replace(path, foreign)
        version = None if foreign else _version(connection)
        if version == str(SCHEMA_VERSION):
            if foreign := _foreign_table(connection, TABLES):
                connection.close()
                return _replace(path, foreign)
            if too_much := _read_through(connection, path.stat().st_size):
                connection.close()
                return _replace(path, too_much)
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
    """Rename an unreadable store and create a new one."""
    aside = set_aside(path)
    _remove(path)
    note = (
        f"the store could not be read ({reason}): built again from the packets; the old file is {aside.name}"
    )
    return _new(path), note


def _remove(path: Path) -> None:
    for file in (path, _write_ahead_log(path)):
        file.unlink(missing_ok=True)


def _write_ahead_log(path: Path) -> Path:
    return path.with_name(path.name + ".wal")


def _new(path: Path) -> Cursor:
    _remove(path)  # A write-ahead log without its database file is useless.
    connection = _in_file(path)
    _create(connection)
    return connection


def _in_file(path: Path) -> Cursor:
    limit = max(_LEAST_MEMORY_BYTES, min(_MOST_MEMORY_BYTES, available_memory() // 2))
    return duckdb.connect(path, config={**_CONFIG, "memory_limit": f"{limit}B"})


def _create(connection: Cursor) -> None:
    """Create all tables in one transaction, so that a killed process leaves either no store or a complete
    one.
    """
    connection.begin()
    for table in TABLES:
        connection.execute(table.ddl)
    connection.execute(
        "INSERT INTO store_info VALUES ('schema_version', $schema), ('sfapp_version', $sfapp)",
        {"schema": str(SCHEMA_VERSION), "sfapp": __version__},
    )
    # A table, because each COMMENT takes 0.4 ms.
    meanings = [meaning for table in TABLES for meaning in table.meanings]
    connection.execute(
        f"INSERT INTO {MEANINGS.name} SELECT unnest(?), unnest(?), unnest(?)",
        list(map(list, zip(*meanings, strict=True))),
    )
    connection.commit()


def _foreign_object(connection: Cursor) -> str:
    """Return what no store of sfapp holds, empty if there is nothing.

    A view or macro of another program, named as a table or function of ours, could read any file of this
    user, or compute without end, when a page queries it; a trigger or an index, when a row is stored.
    Functions are named with their schema here, because a macro may have their names too.
    """
    for kind, catalogue, which in _FOREIGN_KINDS:
        found = connection.execute(
            f"SELECT {kind}_name FROM system.main.{catalogue}() WHERE {which}"
        ).fetchall()
        if found:
            return f"it holds a {kind} of another program, {printable(min(found)[0], _LONGEST_SHOWN)}"
    return _foreign_table(connection, [STORE_INFO]) if STORE_INFO.name in _definitions(connection) else ""


def _foreign_table(connection: Cursor, tables: Sequence[SchemaTable]) -> str:
    """Return which of these tables is not defined as ours, empty if there is none.

    Columns may be computed, by expressions that take any time and memory when they are read.
    """
    found, own = _definitions(connection), _own_definitions()
    names = (table.name for table in tables if found.get(table.name) != own[table.name])
    return next((f"its table {name} is not of this version" for name in names), "")


@cache
def _own_definitions() -> dict[str, str]:
    with _in_memory() as connection:
        return _definitions(connection)


def _definitions(connection: Cursor) -> dict[str, str]:
    """Return the SQL statement that creates each table, as DuckDB writes it."""
    return dict(
        connection.execute(
            "SELECT table_name, sql FROM system.main.duckdb_tables() WHERE schema_name = 'main'"
        ).fetchall()
    )


def _version(connection: Cursor) -> str | None:
    """Return the schema version of a store, or None for a DuckDB file with other tables."""
    tables = _definitions(connection)
    if STORE_INFO.name not in tables:
        if not tables:
            _create(connection)
            return str(SCHEMA_VERSION)
        return None
    found = connection.execute("SELECT value FROM store_info WHERE key = 'schema_version'").fetchall()
    return found[0][0] if found else "unknown"


def _read_through(connection: Cursor, file_bytes: int) -> str:
    """Read every block once, so that damage is found on opening and not later by a page.

    Args:
        file_bytes: size of the file.

    Returns:
        What is wrong if the store is much larger than its file, else nothing. Pages read it in parts, but a
        small file that others made could take all time and memory.
    """
    most = max(_LEAST_EXPANDED_BYTES, _EXPANSION * file_bytes)
    sizes = "SELECT table_name, estimated_size FROM duckdb_tables() WHERE schema_name = 'main'"
    rows = dict(connection.execute(sizes).fetchall())
    found = sum(_VALUE_BYTES * len(table.columns) * rows[table.name] for table in TABLES)
    for sizes_of in (_own_sizes, _sizes_of_parts):  # Texts in lists take long to count, so lists come first.
        for table in TABLES:
            if found <= most:
                size = " + ".join(f"coalesce({each}, 0)" for each in ("0", *sizes_of(table)))
                found += connection.execute(f"SELECT sum({size}) FROM {table.name}").fetchall()[0][0] or 0
    if found > most:
        return f"it holds more than {most:,} bytes in a file of {file_bytes:,}"
    for table in TABLES:
        for column in table.columns:
            if _has_foreign_value(connection, table, column):
                return f"its column {table.name}.{column.name} has a value that no window can have"
        others = [quote_identifier(column.name) for column in table.columns if column.type not in _TEXTS]
        if others:  # Texts have been read for their sizes; they are most of a store.
            connection.execute(f"SELECT bit_xor(hash({', '.join(others)})) FROM {table.name}").fetchall()
    return ""


def _has_foreign_value(connection: Cursor, table: SchemaTable, column: SchemaColumn) -> bool:
    """Return whether a value is missing or has another form than all computations of pages rely on, or a time
    is in no year that Python has."""
    name = quote_identifier(column.name)
    is_foreign = FOREIGN_VALUES.get((table.name, column.name), "false")
    if column.type == "TIMESTAMP":
        is_foreign = f"{name} NOT BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'"
    elif column.type == "DOUBLE" and table in (WINDOWS, STAGES, RUN_REFERENCES):
        is_foreign += f" OR abs({name}) > {MAX_NUMBER}"
    if is_foreign == "false":
        return False
    return bool(connection.execute(f"SELECT 1 FROM {table.name} WHERE {is_foreign} LIMIT 1").fetchall())


def _own_sizes(table: SchemaTable) -> Iterator[str]:
    """Yield the SQL for the bytes of each text and list of a row, without the texts in lists."""
    for column in table.columns:
        name = quote_identifier(column.name)
        if column.type in _TEXTS:
            yield _TEXT_BYTES.format(name)
        elif column.type.endswith("[]"):
            yield f"{_VALUE_BYTES} * len({name})"
        elif column.type.startswith("MAP"):
            yield f"{_VALUE_BYTES} * cardinality({name})"


def _sizes_of_parts(table: SchemaTable) -> Iterator[str]:
    """Yield the SQL for the bytes of the texts in each list of a row."""
    for column in table.columns:
        name = quote_identifier(column.name)
        if column.type == "VARCHAR[]":
            yield _TEXT_BYTES.format(f"array_to_string({name}, ' ')")
        elif column.type.startswith("MAP"):
            yield _TEXT_BYTES.format(f"array_to_string(map_keys({name}), ' ')")
