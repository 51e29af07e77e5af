"""Write the verdicts of a store into a dataset: partitioned Parquet files (docs/fleet.md, Datasets).

A file ``run=…/day=…/windows.verdicts.parquet`` holds the windows of a run that began on a day (UTC). It is
replaced as a whole, and only if its content differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sfapp.errors import StoreError
from sfapp.files import read_regular, sync_folder, write_atomic
from sfapp.packets.paths import VERDICTS_SUFFIX, folder_name
from sfapp.storage import (
    ObjectPath,
    ObjectVersion,
    StoragePath,
    as_text,
    delete_object,
    fetch_version,
    replace_version,
)
from sfapp.store.database import Cursor, Database
from sfapp.store.scan import is_below
from sfapp.store.schema import CONFLICTS, PACKETS, STAGES
from sfapp.store.verdict_encoding import (
    MOST_BYTES,
    NESTED,
    SCHEMA,
    StoredReference,
    Verdicts,
    encode_verdicts,
    nested_names,
)

FILE_NAME = f"windows{VERDICTS_SUFFIX}"

NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""Day of windows without a start: what readers of partitioned datasets take for null."""

_ORDERS = {PACKETS: "path, sha256", STAGES: "position", CONFLICTS: "reason, path, shown"}


@dataclass(frozen=True, slots=True)
class DatasetReport:
    """Changes that were made to a dataset, in files, and the number of windows in it."""

    written: int
    removed: int
    windows: int


class ChangedMeanwhileError(Exception):
    """A file of a dataset is not as it was read: another machine has replaced it since, or it was not read,
    because the ingest was stopped or its folder could not be listed. It may hold the only verdicts of packets
    that are gone."""


def write_verdicts(database: Database, target: StoragePath) -> DatasetReport:
    """Write the verdicts of a store into a dataset, which the store has read before.

    A file that was refused when it was read may hold the only verdicts of packets that are gone: it is not
    replaced, and nothing is written of its run, or removed. A folder in the place of a file, or the reverse,
    is left too.

    Raises:
        ChangedMeanwhileError: a file is not as it was read; others may have been written.
        StoreError: a file cannot be written, or was refused; the files of other runs are written.
    """
    known = dict(database.tuples("SELECT path, sha256 FROM verdict_files"))
    refused = dict(
        database.tuples(f"SELECT path, reason FROM quarantine WHERE ends_with(path, '{VERDICTS_SUFFIX}')")
    )
    windows, there, left, new = 0, set(), list[str](), list[StoragePath]()
    try:
        for run_id in [run for (run,) in database.tuples("SELECT DISTINCT run_id FROM windows ORDER BY 1")]:
            files = list(_files_of(database, target, run_id))
            unreadable = [name for path, _ in files if (name := as_text(path)) in refused]
            if unreadable:
                left += unreadable
                continue
            for path, verdicts in files:
                windows += verdicts.table.num_rows
                there.add(name := as_text(path))
                try:
                    if _put(path, encode_verdicts(verdicts), known.get(name)):
                        new.append(path)
                except (IsADirectoryError, NotADirectoryError, FileExistsError) as error:
                    left.append(name)
                    refused[name] = str(error.strerror)
        _sync_folders(new, target)
        if left:
            raise _unreadable(left, refused[left[0]])
        gone = {name: own for name in sorted(known.keys() - there) if (own := _own_file(target, name))}
        for name, own in gone.items():
            _delete(own, known[name])
    except ChangedMeanwhileError:
        _sync_folders(new, target)
        raise
    except OSError as error:
        raise StoreError(f"the dataset {target} cannot be written: {error.strerror or error}") from error
    return DatasetReport(len(new), len(gone), windows)


def _own_file(target: StoragePath, name: str) -> StoragePath | None:
    """Return a file that has the place of one that this dataset writes; None for those of datasets below it,
    which keep their files.

    Args:
        name: as the store has it.
    """
    root = as_text(target)
    if not is_below(name, root):
        return None
    run, _, rest = name[len(root) :].strip("/").partition("/")
    day, _, file = rest.partition("/")
    is_own = run.startswith("run=") and day.startswith("day=") and file == FILE_NAME
    return target / run / day / file if is_own else None


def _sync_folders(written: Sequence[StoragePath], target: StoragePath) -> None:
    """Have files survive a power failure, because packets whose verdicts they hold may be removed next."""
    folders = {
        folder
        for path in written
        if isinstance(path, Path) and isinstance(target, Path)
        for folder in path.parents
        if folder.is_relative_to(target)
    }
    for folder in sorted(folders, reverse=True):
        sync_folder(folder)


def _unreadable(names: Sequence[str], reason: str) -> StoreError:
    """Return the error about files that are left as they are, with the reason of the first."""
    others = f" (and {len(names) - 1} others)" if len(names) > 1 else ""
    return StoreError(
        f"{names[0]}{others} is not replaced, because it cannot be read ({reason}) and may hold verdicts of "
        "packets that are gone: repair it or move it away, then call this again"
    )


def _put(path: StoragePath, content: bytes, known: str | None) -> bool:
    """Replace a file that has a known hash; return False if it has this content already.

    Raises:
        ChangedMeanwhileError: it has another hash.
    """
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 == known:
        return False
    version = None
    if (found := _present(path)) is not None:
        present, version = found
        if present == sha256:
            return False
        if present != known:
            raise ChangedMeanwhileError(as_text(path))
    if isinstance(path, Path):
        write_atomic(path, content)
    elif replace_version(path, content, version) is None:
        raise ChangedMeanwhileError(as_text(path))
    return True


def _present(path: StoragePath) -> tuple[str, ObjectVersion | None] | None:
    """Return the hash of a file and, in a bucket, its version; None if there is no such file."""
    found: tuple[bytes, ObjectVersion | None] | None = None
    try:
        if isinstance(path, ObjectPath):
            found = fetch_version(path, None, MOST_BYTES)
        elif path.is_file():
            found = read_regular(path, MOST_BYTES), None
    except FileNotFoundError:
        return None
    return None if found is None else (hashlib.sha256(found[0]).hexdigest(), found[1])


def _delete(path: StoragePath, known: str) -> None:
    """Delete a file that has a known hash.

    Buckets delete without a condition: what is written in the instant between the look and the request is
    lost until its packets are added again.

    Raises:
        ChangedMeanwhileError: it has another hash.
    """
    found = _present(path)
    if found is not None and found[0] != known:
        raise ChangedMeanwhileError(as_text(path))
    if isinstance(path, ObjectPath):
        delete_object(path)
    else:
        path.unlink(missing_ok=True)


def _files_of(database: Database, target: StoragePath, run_id: str) -> Iterator[tuple[StoragePath, Verdicts]]:
    """Yield the files of a run with their content, by day."""
    with database.cursor() as cursor:
        rows = _rows(cursor, run_id)
        references = _references(cursor, run_id)
    days = pc.strftime(rows.column("started_at"), format="%Y-%m-%d").fill_null(NO_DAY)
    for day in sorted(pc.unique(days).to_pylist()):
        path = target / f"run={folder_name(run_id)}" / f"day={day}" / FILE_NAME
        yield path, Verdicts(rows.filter(pc.equal(days, day)), references)


def _rows(cursor: Cursor, run_id: str) -> pa.Table:
    """Return the rows of ``SCHEMA`` of a run, by window."""
    joined, columns = "", ["windows.*"]
    for name, table in NESTED.items():
        fields = ", ".join(f"'{column}': {column}" for column in nested_names(table))
        joined += f"""
            LEFT JOIN (
                SELECT "window", list({{{fields}}} ORDER BY {_ORDERS[table]}) AS found FROM {table.name}
                WHERE run_id = $run GROUP BY "window"
            ) AS of_{table.name} ON of_{table.name}."window" = windows."window"
        """
        columns.append(f"coalesce(of_{table.name}.found, []) AS {name}")
    found = cursor.sql(
        f"SELECT {', '.join(columns)} FROM windows {joined} WHERE windows.run_id = $run "
        'ORDER BY windows."window"',
        params={"run": run_id},
    )
    return found.to_arrow_table().cast(SCHEMA)


def _references(cursor: Cursor, run_id: str) -> tuple[StoredReference, ...]:
    found = cursor.execute("SELECT * FROM run_references WHERE run_id = ?", [run_id])
    names = [column[0] for column in found.description or ()]
    return tuple(StoredReference(**dict(zip(names, row, strict=True))) for row in found.fetchall())
