"""Packets into the store: read in threads, diagnosed in batches, each batch committed whole.

The packets are the truth. A kill loses at most the batch in hand: what is committed is recognised by path,
size and time of writing, and the rest is read by the next ingest.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sfapp.accounting import with_reference
from sfapp.packets import Conflict
from sfapp.store.chosen import ChosenReferences
from sfapp.store.database import Cursor, Database
from sfapp.store.derive import Batch, Derived, Key, Outcome, ReadFile, Refused, derive, read, read_batch
from sfapp.store.references import references_of, settle, unsettle, unsettled
from sfapp.store.scan import BATCH_FILES, Found, Stamp, as_text, batches, scan
from sfapp.store.schema import CONFLICTS, PACKETS, QUARANTINE
from sfapp.store.tables import IN_KEYS, IN_NAMES, insert, key_values, replace_windows


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an ingest is: files read, then runs compared with their references."""

    phase: Literal["reading", "comparing"]
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What one ingest changed, in files; ``unchanged`` counts refused ones too.

    Attributes:
        added: packets read, new or with new content.
        quarantined: files refused.
        removed: files that are gone, with the windows that were made of them.
        conflicts: conflicts found among the windows that were touched.
        cancelled: whether it was stopped before the end; the next ingest does the rest.
    """

    added: int = 0
    unchanged: int = 0
    quarantined: int = 0
    removed: int = 0
    conflicts: int = 0
    seconds: float = 0.0
    cancelled: bool = False

    @property
    def changed(self) -> bool:
        """Whether anything that a page shows is different now."""
        return bool(self.added or self.quarantined or self.removed)


class Ingest:
    """One pass over the roots. Runs once; two at a time would read the same files twice."""

    def __init__(self, database: Database, roots: Sequence[Path], chosen: ChosenReferences) -> None:
        self._database = database
        self._roots = roots
        self._chosen = chosen
        self._gone: frozenset[str] = frozenset()
        self._added = self._unchanged = self._quarantined = self._conflicts = self._removed = 0

    def run(self, progress: Callable[[Progress], None] | None, cancel: threading.Event) -> IngestReport:
        """Bring the store in line with the files; what is unchanged is not read.

        Raises:
            StoreError: the store cannot be written. Nothing in a packet raises.
        """
        started = time.monotonic()
        tell = progress or (lambda progress: None)
        files = scan(self._roots, self._known())
        self._gone = frozenset(files.gone)
        self._read(files.fresh, tell, cancel)
        # Last, so that files that were only moved are in again before their old names go.
        self._forget(files.gone, cancel)
        self._settle(tell, cancel)
        return IngestReport(
            added=self._added,
            unchanged=self._unchanged + files.unchanged,
            quarantined=self._quarantined,
            removed=self._removed,
            conflicts=self._conflicts,
            seconds=time.monotonic() - started,
            cancelled=cancel.is_set(),
        )

    def _known(self) -> dict[str, Stamp]:
        found = self._database.tuples(
            "SELECT path, size, mtime_ns FROM packets UNION ALL SELECT path, size, mtime_ns FROM quarantine"
        )
        return {path: Stamp(size, mtime_ns) for path, size, mtime_ns in found}

    def _read(
        self, fresh: Sequence[Found], tell: Callable[[Progress], None], cancel: threading.Event
    ) -> None:
        done = 0
        for batch in _read_ahead(fresh, cancel):
            self._commit(batch)
            done += batch.looked_at
            tell(Progress("reading", done, len(fresh)))

    def _forget(self, gone: Sequence[str], cancel: threading.Event) -> None:
        for begin in range(0, len(gone), BATCH_FILES):
            if cancel.is_set():
                return
            names = gone[begin : begin + BATCH_FILES]
            self._commit(Batch(), names)
            self._removed += len(names)

    def _settle(self, tell: Callable[[Progress], None], cancel: threading.Event) -> None:
        with self._database.cursor() as cursor:
            runs = unsettled(cursor, self._chosen)
        for done, run_id in enumerate(runs, start=1):
            if cancel.is_set():
                return
            with self._database.transaction() as cursor:
                settle(cursor, self._chosen, run_id)
            tell(Progress("comparing", done, len(runs)))

    def _commit(self, batch: Batch, gone: Sequence[str] = ()) -> None:
        """What follows from these files, and from those that went away, in one transaction.

        Every window that one of them is or was part of is made anew from all the files it has now.
        """
        names = [*(file.name for file in batch.files), *(file.name for file in batch.refused), *gone]
        before = self._stored(names)
        keys = {file.key for file in batch.files} | {key for _, key in before.values()}
        outcome = batch.outcome
        companions = self._companions(keys, names)
        if companions:
            outcome = derive([*batch.files, *companions])
        with self._database.transaction() as cursor:
            unsettle(cursor, keys)
            cursor.execute(f"DELETE FROM packets WHERE {IN_KEYS}", key_values(keys))
            cursor.execute(f"DELETE FROM conflicts WHERE {IN_KEYS}", key_values(keys))
            cursor.execute(f"DELETE FROM quarantine WHERE {IN_NAMES}", {"names": names})
            insert(cursor, PACKETS, _packet_rows([*batch.files, *companions], outcome))
            insert(cursor, QUARANTINE, _quarantine_rows([*batch.refused, *outcome.refused]))
            insert(cursor, CONFLICTS, _conflict_rows(outcome.conflicts))
            replace_windows(cursor, keys, _compared(cursor, outcome.windows))
        same = sum(before.get(file.name) == (file.packet.sha256, file.key) for file in batch.files)
        self._added += len(batch.files) - same
        self._unchanged += same
        self._quarantined += len(batch.refused) + len(outcome.refused)
        self._conflicts += len(outcome.conflicts)

    def _stored(self, names: Sequence[str]) -> dict[str, tuple[str, Key]]:
        """File name → SHA-256 and window, of those that are stored."""
        rows = self._database.tuples(
            f'SELECT path, sha256, run_id, "window" FROM packets WHERE {IN_NAMES}', {"names": names}
        )
        return {path: (sha256, (run_id, window)) for path, sha256, run_id, window in rows}

    def _companions(self, keys: Collection[Key], names: Sequence[str]) -> list[ReadFile]:
        """The other files of these windows. One that has changed meanwhile is left to the next ingest."""
        rows = self._database.tuples(
            f"SELECT path, size, mtime_ns FROM packets WHERE {IN_KEYS} AND NOT {IN_NAMES}",
            {**key_values(keys), "names": names},
        )
        others = [
            Found(Path(path), path, Stamp(size, mtime_ns))
            for path, size, mtime_ns in rows
            if path not in self._gone
        ]
        return [file for file in map(read, others) if isinstance(file, ReadFile) and file.key in keys]


def _read_ahead(fresh: Sequence[Found], cancel: threading.Event) -> Iterator[Batch]:
    """Batches as they are read and diagnosed, the next ones already under way; ends early when cancelled."""
    workers = min(8, os.cpu_count() or 1)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="sfapp-ingest")
    waiting: deque[Future[Batch]] = deque()
    try:
        for handful in batches(fresh):
            waiting.append(pool.submit(read_batch, handful, cancel))
            if len(waiting) > workers:
                yield waiting.popleft().result()
            if cancel.is_set():
                return
        while waiting and not cancel.is_set():
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _compared(cursor: Cursor, windows: Sequence[Derived]) -> list[Derived]:
    """Windows compared with what their runs' windows are compared with at present."""
    references = references_of(cursor, {found.diagnosis.run_id for found in windows})
    return [
        Derived(with_reference(found.diagnosis, references[found.diagnosis.run_id]), found.origin)
        if found.diagnosis.run_id in references
        else found
        for found in windows
    ]


def _packet_rows(files: Sequence[ReadFile], outcome: Outcome) -> list[dict[str, Any]]:
    return [
        {
            "path": file.name,
            "size": file.stamp.size,
            "mtime_ns": file.stamp.mtime_ns,
            "sha256": file.packet.sha256,
            "run_id": file.packet.window.run_id,
            "window": file.packet.window.number,
            "part_rank": file.packet.part_rank,
            "state": outcome.states[file.name],
        }
        for file in files
        if file.name in outcome.states
    ]


def _quarantine_rows(refused: Sequence[Refused]) -> list[dict[str, Any]]:
    return [
        {
            "path": file.name,
            "size": file.stamp.size,
            "mtime_ns": file.stamp.mtime_ns,
            "sha256": file.sha256,
            "reason": file.reason,
        }
        for file in refused
    ]


def _conflict_rows(conflicts: Sequence[Conflict]) -> list[dict[str, Any]]:
    return [
        {
            "run_id": conflict.run_id,
            "window": conflict.window,
            "reason": conflict.reason,
            "path": as_text(packet.path),
            "size": packet.size,
            "sha256": packet.sha256,
            "shown": shown,
        }
        for conflict in conflicts
        for shown, packets in ((True, conflict.shown), (False, conflict.set_aside))
        for packet in packets
    ]
