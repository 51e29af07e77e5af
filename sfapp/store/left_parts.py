"""Refuse parts of a window whose other packets are gone, so that the verdict on all of its ranks stays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from sfapp.store.bulk_insert import IN_KEYS, key_values
from sfapp.store.database import Cursor, Database
from sfapp.store.verdict_builder import PacketBatch, StoredWaits, key_of, without_windows
from sfapp.store.verdict_rows import Key

IN_REASONS = "reason IN (SELECT unnest($reasons::VARCHAR[]))"
"""Condition that a file was refused for one of some reasons."""


def reason_for(key: Key) -> str:
    """Return why a part of this window is refused. By it, they are found once others come."""
    run_id, window = key
    return (
        f"the verdict on window {window} of run {run_id!r} is of more ranks, whose packets are gone or "
        "cannot be read, and stays; open the part in a folder of its own"
    )


def without_left_parts(
    database: Database, batch: PacketBatch, names: Collection[str], stored_waits: StoredWaits
) -> PacketBatch:
    """Return a batch without the parts of windows of which no whole packet and fewer ranks are there than
    in a verdict that the store has from a file of verdicts.

    Args:
        names: files that are refused with the reason; others of the batch stay as they are.
    """
    whole = {key_of(row) for row in batch.packets if row["part_rank"] is None}
    parts: defaultdict[Key, set[int]] = defaultdict(set)
    for row in batch.packets:
        if (key := key_of(row)) not in whole:
            parts[key].add(row["part_rank"])
    if not parts:
        return batch
    described = database.tuples(
        'SELECT DISTINCT run_id, "window", ranks FROM windows JOIN packets USING (run_id, "window") '
        f"WHERE verdicts IS NOT NULL AND {IN_KEYS}",
        key_values(parts),
    )
    stay = {(run_id, window) for run_id, window, ranks in described if len(parts[run_id, window]) < ranks}
    if not stay:
        return batch
    rows = [_refused(row) for row in batch.packets if key_of(row) in stay and row["path"] in names]
    others, _ = without_windows(batch, stay, stored_waits)
    return replace(others, quarantine=(*others.quarantine, *rows))


def read_left_parts_again(cursor: Cursor, keys: Collection[Key]) -> None:
    """Let the next scan read the refused parts of those of some windows that are no longer in the store: the
    verdicts on more ranks went with their file."""
    if not cursor.execute("SELECT 1 FROM quarantine LIMIT 1").fetchall():
        return
    stored = cursor.execute(f'SELECT run_id, "window" FROM windows WHERE {IN_KEYS}', key_values(keys))
    reasons = [reason_for(key) for key in {*keys} - {*stored.fetchall()}]
    cursor.execute(f"DELETE FROM quarantine WHERE {IN_REASONS}", {"reasons": reasons})


def _refused(packet: Mapping[str, Any]) -> dict[str, Any]:
    return {name: packet[name] for name in ("path", "size", "mtime_ns", "sha256")} | {
        "reason": reason_for(key_of(packet))
    }
