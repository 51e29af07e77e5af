"""Let files of verdicts say first what a window is that lost files, so that the store then has what a new one
would read from the same files.

Such a window is removed with the files that are left of it. Once files of verdicts were read again, those of
its files are read that none of them names as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sfapp.packets.paths import sorted_files
from sfapp.storage import FoundFile
from sfapp.store.bulk_insert import IN_KEYS, IN_NAMES, key_values
from sfapp.store.database import Database
from sfapp.store.verdict_builder import PacketBatch, key_of
from sfapp.store.verdict_files import left_out_of
from sfapp.store.verdict_rows import Key


def windows_with_lost_files(
    database: Database,
    keys: Collection[Key],
    batch: PacketBatch,
    names: Collection[str],
    gone: Collection[str],
) -> set[Key]:
    """Return those of some windows that were read from a file which is gone or is no longer one of theirs,
    and that files of verdicts may hold.

    Args:
        names: files whose present content is in the batch.
    """
    if not (held := left_out_of(database, keys)):
        return set()
    now = {row["path"]: key_of(row) for row in batch.packets}
    read = set(names)
    stored = database.tuples(
        f'SELECT path, run_id, "window" FROM packets WHERE verdicts IS NULL AND {IN_KEYS}', key_values(held)
    )
    return {
        (run_id, window)
        for path, run_id, window in stored
        if path in gone or (path in read and now.get(path) != (run_id, window))
    }


def still_to_read(database: Database, left: Sequence[FoundFile]) -> list[FoundFile]:
    """Return those of the files left of windows that were not read since and that no file of verdicts names
    as they are."""
    names = {"names": [found.name for found in left]}
    stored = database.tuples(
        f"SELECT path, size, mtime_ns, verdicts IS NULL FROM packets WHERE {IN_NAMES} "
        f"UNION ALL SELECT path, size, mtime_ns, true FROM quarantine WHERE {IN_NAMES}",
        names,
    )
    read = {path for path, _, _, was_read in stored if was_read}
    named = {(path, size, mtime_ns) for path, size, mtime_ns, _ in stored}
    return sorted_files(
        found
        for found in left
        if found.name not in read and (found.name, found.stamp.size, found.stamp.mtime_ns) not in named
    )
