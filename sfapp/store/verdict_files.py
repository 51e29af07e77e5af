"""Synchronise the store with files of verdicts, which replace the packets of windows that were diagnosed
before (docs/fleet.md, Datasets).

A window that was read from its packets counts, unless a file of verdicts knows them all and more, or they are
parts of fewer ranks; of several files that hold one, the one that knows the newest packet. What is taken from
a file is replaced as a whole when the file changes.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

import pyarrow as pa

from sfapp.errors import PacketError
from sfapp.packets.arrow_columns import fault_in_tail
from sfapp.packets.paths import VERDICTS_SUFFIX, folder_name
from sfapp.storage import FileContent, FileStamp, FoundFile, storage_of
from sfapp.store.bulk_insert import IN_KEYS, IN_NAMES, IN_RUNS, insert, key_values
from sfapp.store.database import Cursor, Database
from sfapp.store.left_parts import read_left_parts_again
from sfapp.store.references import compare, invalidate_references, references_of
from sfapp.store.scan import RootListing, is_below, to_read_again
from sfapp.store.schema import QUARANTINE, RUN_REFERENCES, VERDICT_FILES, WINDOWS, quote_identifier
from sfapp.store.verdict_encoding import (
    MOST_BYTES,
    NESTED,
    StoredReference,
    Verdicts,
    check_rows,
    decode_unchecked,
    nested_names,
    reference_row,
    with_source,
)
from sfapp.store.verdict_rows import Key, decode_reference

_BATCH_FILES = 128
"""Files that are stored in one transaction."""

_BATCH_ROWS, _BATCH_BYTES = 20_000, 2**28
"""Rows and bytes of memory from which a batch is stored at once."""

_FOLDER = "regexp_extract(path, '/run=([^/]+)/day=[^/]+/[^/]+$', 1)"
"""Folder of the run whose windows a file of a dataset holds; empty for another, which may hold any."""

# Of several files that hold a window: the newest packet, then the most packets; a hash makes it one.
_PRECEDENCE = (
    "list_max([each.mtime_ns FOR each IN packet_files]), len(packet_files), sha256(diagnosis), verdicts"
)
_STORED = """
SELECT run_id, "window", bool_or(packets.verdicts IS NULL) AS was_read,
    (max(mtime_ns), count(*), any_value(sha256(diagnosis)), any_value(packets.verdicts)) AS precedence,
    list((path, size, mtime_ns)) AS files, bool_and(part_rank IS NOT NULL) AS are_parts,
    count(DISTINCT part_rank) AS parts
FROM packets JOIN windows USING (run_id, "window")
WHERE (run_id, "window") IN (SELECT run_id, "window" FROM new_rows) GROUP BY ALL
"""
_NOTHING_STORED = """
SELECT NULL::VARCHAR AS run_id, NULL::BIGINT AS "window", false AS was_read, NULL AS precedence,
    NULL::STRUCT(path VARCHAR, size BIGINT, mtime_ns BIGINT)[] AS files, false AS are_parts, 0 AS parts
WHERE false
"""
# A new store reads no packet that a file of verdicts names as it is, and refuses parts of fewer ranks.
_KNOWS_MORE = """
(len(offered.files) > len(stored.files) AND list_has_all(offered.files, stored.files))
OR (are_parts AND parts < ranks)
"""
_CHOSEN = f"""
CREATE OR REPLACE TEMP TABLE chosen AS
WITH stored AS (
    {{stored}}
), offered AS (
    SELECT run_id, "window", verdicts, ranks, ({_PRECEDENCE}) AS precedence,
        [(each.path, each.size, each.mtime_ns) FOR each IN packet_files] AS files
    FROM new_rows
)
SELECT offered.run_id, offered."window", offered.verdicts, stored.run_id IS NOT NULL AS replaces
FROM offered LEFT JOIN stored USING (run_id, "window")
WHERE stored.run_id IS NULL OR (CASE WHEN was_read THEN {_KNOWS_MORE}
    ELSE offered.precedence > stored.precedence END)
QUALIFY row_number() OVER (PARTITION BY offered.run_id, offered."window" ORDER BY offered.precedence DESC) = 1
"""


@dataclass(frozen=True, slots=True)
class _ReadFile:
    """File of verdicts that was read, or the reason why it is refused."""

    found: FoundFile
    sha256: str
    verdicts: Verdicts | None
    reason: str = ""


def follow_verdicts(
    database: Database,
    listings: Sequence[RootListing],
    report_progress: Callable[[int, int], None],
    cancel: threading.Event,
) -> int:
    """Read new and changed files of verdicts, remove what was taken from files that no longer exist, and
    return the number of windows that came or went.

    Args:
        report_progress: called with the number of files read and of all to read.

    Raises:
        StoreError: the store cannot be written. A damaged file never raises: it is quarantined.
    """
    found = {file.name: file for listing in listings for file in listing.verdicts}
    stored = (
        "SELECT path, size, mtime_ns, NULL FROM verdict_files "
        "UNION ALL SELECT path, size, mtime_ns, reason FROM quarantine"
    )
    known = {name: (FileStamp(size, mtime_ns), why) for name, size, mtime_ns, why in database.tuples(stored)}
    fresh = [file for name, file in sorted(found.items()) if known.get(name, (None,))[0] != file.stamp]
    changed = _remove_gone(database, found.keys(), listings)
    # What is only refused again, as while an object may not be read, is no change.
    reading = (file for file in _read(fresh) if known.get(file.found.name) != (file.found.stamp, file.reason))
    done = 0
    while (batch := _batch(reading)) and not cancel.is_set():
        with database.transaction() as cursor:
            changed += _replace(cursor, batch)
        done += len(batch)
        report_progress(done, len(fresh))
    return changed


def _read(files: Iterable[FoundFile]) -> Iterator[_ReadFile]:
    """Yield what is in each file, not yet checked; a remote storage fetches ahead."""
    for storage, group in groupby(files, lambda file: storage_of(file.path)):
        of_storage = list(group)
        contents = storage.fetch_ahead([file.path for file in of_storage], MOST_BYTES, fault_in_tail)
        for file, content in zip(of_storage, contents, strict=True):
            if isinstance(content, PacketError):
                # Nothing of an object was read, for example because access is refused.
                unread = to_read_again(file) if storage.is_remote else file
                yield _ReadFile(unread, "", None, content.fault)
            else:
                yield _decoded(file, content)


def _decoded(file: FoundFile, content: FileContent) -> _ReadFile:
    reason, verdicts = content.fault, None
    if not reason and content.data is None:
        reason = f"{content.size:,} bytes, more than the {MOST_BYTES:,} allowed"
    if content.data is not None:
        try:
            verdicts = decode_unchecked(content.data)
        except PacketError as error:
            reason = error.fault
    sha256 = content.sha256 or hashlib.sha256(content.data or b"").hexdigest()
    return _ReadFile(file, sha256, verdicts, reason)


def _batch(reading: Iterator[_ReadFile]) -> list[_ReadFile]:
    batch, rows, held = [], 0, 0
    for file in islice(reading, _BATCH_FILES):
        batch.append(file)
        if file.verdicts is not None:
            rows += file.verdicts.table.num_rows
            held += file.verdicts.table.nbytes
        if rows >= _BATCH_ROWS or held >= _BATCH_BYTES:
            break
    return _checked(batch)


def _checked(files: list[_ReadFile]) -> list[_ReadFile]:
    """Return the files, without the verdicts of those whose rows cannot be those of windows."""
    tables = [file.verdicts.table for file in files if file.verdicts is not None]
    if not tables:
        return files
    try:
        check_rows(tables)
    except PacketError as error:
        if len(files) == 1:
            return [replace(files[0], verdicts=None, reason=error.fault)]
        return [checked for file in files for checked in _checked([file])]
    return files


def _remove_gone(database: Database, there: Iterable[str], listings: Sequence[RootListing]) -> int:
    """Remove what was taken from files that no longer exist below roots that were listed as a whole."""
    unknown = [name for listing in listings for name in listing.unknown]
    refused = f"SELECT path FROM quarantine WHERE ends_with(path, '{VERDICTS_SUFFIX}')"
    stored = {name for (name,) in database.tuples(f"SELECT path FROM verdict_files UNION {refused}")}
    gone = sorted(name for name in stored - set(there) if not any(is_below(name, place) for place in unknown))
    if not gone:
        return 0
    with database.transaction() as cursor:
        cursor.execute(f"DELETE FROM quarantine WHERE {IN_NAMES}", {"names": gone})
        removed = _remove_rows(cursor, gone)
        read_left_parts_again(cursor, removed)
        return len(removed)


def _remove_rows(cursor: Cursor, names: Sequence[str]) -> list[Key]:
    """Remove what was taken from some files, and return the windows."""
    rows = cursor.execute(
        f'SELECT DISTINCT run_id, "window" FROM packets WHERE {IN_NAMES.replace("path", "verdicts")}',
        {"names": list(names)},
    ).fetchall()
    if rows:
        _delete(cursor, rows)
        read_again(cursor, rows)
    cursor.execute(f"DELETE FROM verdict_files WHERE {IN_NAMES}", {"names": list(names)})
    return rows


def _delete(cursor: Cursor, keys: Sequence[Key]) -> None:
    invalidate_references(cursor, keys)
    for table in (WINDOWS, *NESTED.values()):
        cursor.execute(f"DELETE FROM {table.name} WHERE {IN_KEYS}", key_values(keys))


def leave_out(cursor: Cursor, keys: Collection[Key]) -> bool:
    """Note that these windows are no longer taken from files of verdicts; return whether any was."""
    if not cursor.execute("SELECT 1 FROM verdict_files LIMIT 1").fetchall():
        return False
    left = cursor.execute(
        f"""
        UPDATE verdict_files SET left_out = left_out + found.windows
        FROM (SELECT verdicts, count(DISTINCT (run_id, "window")) AS windows FROM packets
              WHERE verdicts IS NOT NULL AND {IN_KEYS} GROUP BY verdicts) AS found
        WHERE path = found.verdicts
        """,
        key_values(keys),
    ).fetchall()
    return bool(left[0][0])


def read_again(cursor: Cursor, keys: Collection[Key]) -> None:
    """Let the next ingest read files again that may hold some windows which were taken from elsewhere: what
    replaced them may be gone."""
    cursor.execute(
        f"UPDATE verdict_files SET mtime_ns = 0 WHERE left_out > 0 AND {_FOLDER} IN "
        "(SELECT unnest($folders::VARCHAR[]))",
        {"folders": ["", *{folder_name(run_id) for run_id, _ in keys}]},
    )


def left_out_of(database: Database, keys: Collection[Key]) -> set[Key]:
    """Return those of some windows that files of verdicts may hold which were taken from elsewhere."""
    found = database.tuples(f"SELECT DISTINCT {_FOLDER} FROM verdict_files WHERE left_out > 0")
    folders = {folder for (folder,) in found}
    return {key for key in keys if "" in folders or folder_name(key[0]) in folders} if folders else set()


def _replace(cursor: Cursor, batch: Sequence[_ReadFile]) -> int:
    """Store the present content of some files; return the number of windows that came or went."""
    names = [file.found.name for file in batch]
    removed = _remove_rows(cursor, names)
    cursor.execute(f"DELETE FROM quarantine WHERE {IN_NAMES}", {"names": names})
    refused = [_stamp_of(file) | {"reason": file.reason} for file in batch if file.verdicts is None]
    insert(cursor, QUARANTINE, QUARANTINE.arrow(refused))
    accepted = [(file, file.verdicts) for file in batch if file.verdicts is not None]
    if not accepted:
        read_left_parts_again(cursor, removed)
        return len(removed)
    rows = with_source([(file.found.name, verdicts.table) for file, verdicts in accepted])
    references = {
        (reference.run_id, file.found.name): reference
        for file, verdicts in accepted
        for reference in verdicts.references
    }
    taken = _insert(cursor, rows, references)
    read_left_parts_again(cursor, removed)
    described = [
        _stamp_of(file)
        | {
            "windows": verdicts.table.num_rows,
            "left_out": verdicts.table.num_rows - taken.get(file.found.name, 0),
        }
        for file, verdicts in accepted
    ]
    insert(cursor, VERDICT_FILES, VERDICT_FILES.arrow(described))
    return len(removed) + sum(taken.values())


def _stamp_of(file: _ReadFile) -> dict[str, object]:
    stamp = file.found.stamp
    return {
        "path": file.found.name,
        "size": stamp.size,
        "mtime_ns": stamp.mtime_ns,
        "sha256": file.sha256,
    }


def _insert(
    cursor: Cursor, rows: pa.Table, references: Mapping[tuple[str, str], StoredReference]
) -> dict[str, int]:
    """Insert the rows that count, and return their number by file.

    Args:
        references: of each run in each file, with which its windows there are compared.
    """
    cursor.register("new_rows", rows)
    try:
        # Most windows are new. Looking for the others would read every stored diagnosis once for each batch.
        found = 'SELECT 1 FROM packets SEMI JOIN new_rows USING (run_id, "window") LIMIT 1'
        are_stored = bool(cursor.execute(found).fetchall())
        cursor.execute(_CHOSEN.format(stored=_STORED if are_stored else _NOTHING_STORED))
        replaced = cursor.execute('SELECT run_id, "window" FROM chosen WHERE replaces').fetchall()
        if replaced:
            leave_out(cursor, replaced)
            _delete(cursor, replaced)
        offered: dict[str, list[StoredReference | None]] = {}
        for source in cursor.execute("SELECT DISTINCT run_id, verdicts FROM chosen ORDER BY ALL").fetchall():
            offered.setdefault(source[0], []).append(references.get(source))
        known = cursor.execute(
            f"SELECT DISTINCT run_id FROM windows WHERE {IN_RUNS}", {"runs": list(offered)}
        ).fetchall()
        counted = 'FROM new_rows JOIN chosen USING (run_id, "window", verdicts)'
        columns = ", ".join(map(quote_identifier, WINDOWS.names))
        cursor.execute(f"INSERT INTO windows SELECT {columns} {counted}")
        for name, table in NESTED.items():
            values = ", ".join(
                "each." + quote_identifier(column)
                if column in nested_names(table)
                else quote_identifier(column)
                for column in table.names
            )
            cursor.execute(
                f'INSERT INTO {table.name} SELECT {values} FROM (SELECT run_id, "window", verdicts, '
                f"unnest({name}) AS each {counted})"
            )
        _compare(cursor, offered, {run for (run,) in known})
        taken = cursor.execute("SELECT verdicts, count(*) FROM chosen GROUP BY ALL").fetchall()
    finally:
        cursor.unregister("new_rows")
    return dict(taken)


def _compare(
    cursor: Cursor, offered: Mapping[str, Sequence[StoredReference | None]], known: set[str]
) -> None:
    """Let all windows of a run be compared with one reference: that of the store, else that of the files.

    Args:
        offered: of each run, those of the files from which windows are taken; None if they have none.
        known: runs of which other windows are stored.
    """
    stored = references_of(cursor, offered)
    for run, of_run in offered.items():
        found = {one and one.reference for one in of_run}
        if run not in known and run not in stored and len(found) == 1:
            if (one := of_run[0]) is not None:
                insert(cursor, RUN_REFERENCES, RUN_REFERENCES.arrow([reference_row(one)]))
        elif any((one and decode_reference(one)) != stored.get(run) for one in found):
            new = cursor.execute('SELECT run_id, "window" FROM chosen WHERE run_id = ?', [run]).fetchall()
            compare(cursor, new, stored.get(run))
            cursor.execute("UPDATE run_references SET healthy_windows = NULL WHERE run_id = ?", [run])
