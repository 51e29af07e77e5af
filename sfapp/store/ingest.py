"""Synchronise the store with the packet files, in batches that are committed as a whole.

The packets are the only source. A killed process loses at most the current batch: committed files are
recognised by path, size and modification time, and the next ingest reads the rest.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from sfapp.packets.paths import VERDICTS_SUFFIX, sorted_files
from sfapp.storage import FileStamp, FoundFile, path_in
from sfapp.store.bulk_insert import (
    IN_KEYS,
    IN_NAMES,
    delete_windows,
    insert,
    insert_windows,
    key_values,
)
from sfapp.store.database import Database
from sfapp.store.left_parts import IN_REASONS, reason_for, without_left_parts
from sfapp.store.lost_files import still_to_read, windows_with_lost_files
from sfapp.store.operator_files import OperatorFiles
from sfapp.store.parallel_reader import PacketReader
from sfapp.store.reference_choices import ReferenceChoices
from sfapp.store.references import (
    compare,
    invalidate_references,
    references_of,
    runs_to_compare,
    update_reference,
)
from sfapp.store.run_waits import misaligned, stored_waits
from sfapp.store.scan import BATCH_FILES, FollowedRoot, RootListing, batches, is_below, scan
from sfapp.store.schema import CONFLICTS, PACKETS, QUARANTINE
from sfapp.store.verdict_builder import PacketBatch, StoredWaits, key_of, read_batch, without_windows
from sfapp.store.verdict_files import follow_verdicts, leave_out, read_again
from sfapp.store.verdict_rows import Key


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """Progress of an ingest.

    Attributes:
        phase: ``reading`` new files, ``aligning`` windows that have to be diagnosed again, or ``comparing``
            runs with their references.
        done, total: files, or runs while comparing.
    """

    phase: Literal["reading", "aligning", "comparing"]
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class IngestReport:
    """Changes made by one ingest, in files; ``unchanged`` includes refused ones.

    Attributes:
        added: packets read, new or with new content.
        quarantined: files refused.
        removed: files that no longer exist; their windows are removed too.
        conflicts: conflicts found among the affected windows.
        operators: files of operator events that appeared, changed or disappeared.
        verdicts: windows that came or went with files of verdicts (``verdict_files``).
        roots: roots that can no longer be listed, or can again (``Store.root_faults``).
        cancelled: whether it was stopped early; the next ingest reads the rest.
    """

    added: int = 0
    unchanged: int = 0
    quarantined: int = 0
    removed: int = 0
    conflicts: int = 0
    operators: int = 0
    verdicts: int = 0
    roots: int = 0
    seconds: float = 0.0
    cancelled: bool = False

    @property
    def changed(self) -> bool:
        """Whether anything on a page has changed."""
        packets = (self.added, self.quarantined, self.removed, self.conflicts)
        return any((*packets, self.operators, self.verdicts, self.roots))


class Ingest:
    """One pass over the roots. It runs once: two at a time would read the same files twice.

    Attributes:
        is_settled: whether all windows were aligned and compared when the pass ended.
    """

    def __init__(
        self,
        database: Database,
        roots: Sequence[FollowedRoot],
        chosen: ReferenceChoices,
        operator_files: OperatorFiles,
        reader: PacketReader,
    ) -> None:
        self._database = database
        self._reader = reader
        self._roots = roots
        self._paths = [root.root for root in roots]
        self._chosen = chosen
        self._operator_files = operator_files
        self._stored_waits: StoredWaits = partial(stored_waits, database)
        self._gone: frozenset[str] = frozenset()
        self._left: list[FoundFile] = []
        self._runs_compared: set[str] = set()
        self._is_aligned, self.is_settled, self._has_lost_windows = True, False, False
        self._added = self._unchanged = self._quarantined = self._conflicts = self._removed = 0

    def run(
        self,
        progress: Callable[[IngestProgress], None] | None,
        cancel: threading.Event,
        *,
        everything: bool = True,
        was_settled: bool = False,
    ) -> IngestReport:
        """Synchronise the store with the files, reading only new and changed ones.

        Args:
            everything: list all files; otherwise, new ones may be enough.
            was_settled: whether the pass before was settled, and the store has not changed since. All windows
                are then looked at again only if this pass changes something.

        Raises:
            StoreError: the store cannot be written. A damaged packet never raises.
            StorageError: a bucket cannot be read; what was read until then is stored.
        """
        started, generation = time.monotonic(), self._database.generation
        was_settled &= not self._chosen.follow()
        report_progress = progress or (lambda progress: None)

        def report_reading(done: int, total: int) -> None:
            report_progress(IngestProgress("reading", done, total))

        faults = [root.fault for root in self._roots]
        listings = [root.look(everything=everything) for root in self._roots]
        roots = sum(root.fault != fault for root, fault in zip(self._roots, faults, strict=True))
        verdicts = follow_verdicts(self._database, listings, report_reading, cancel)
        files = scan(listings, self._known(listings), self._operator_files.stamps)
        operators = self._operator_files.note(files.operators)
        if operators:
            self._database.note_change()
        self._gone = frozenset(files.gone)
        is_large = len(files.fresh) > BATCH_FILES
        with self._database.rare_checkpoints() if is_large else nullcontext():
            self._read(files.fresh, report_progress, cancel)
            # Files that were only moved are stored under their new names before the old names are removed.
            self._remove(files.gone, cancel)
            if self._has_lost_windows:  # Files of verdicts may hold them.
                verdicts += follow_verdicts(self._database, listings, report_reading, cancel)
                self._read(still_to_read(self._database, self._left), report_progress, cancel, counted=False)
            if self._database.generation != generation or not was_settled:
                self._align(report_progress, cancel)
                self._compare_runs(report_progress, cancel)
        self.is_settled = self._is_aligned and not cancel.is_set()
        return IngestReport(
            added=self._added,
            unchanged=self._unchanged + files.unchanged,
            quarantined=self._quarantined,
            removed=self._removed,
            conflicts=self._conflicts,
            operators=operators,
            verdicts=verdicts,
            roots=roots,
            seconds=time.monotonic() - started,
            cancelled=cancel.is_set(),
        )

    def _known(self, listings: Sequence[RootListing]) -> dict[str, FileStamp]:
        """Return the stamps of stored files; only of those listed if no file can be gone."""
        stored = f"""
            SELECT path, size, mtime_ns, verdicts IS NULL AS may_be_gone FROM packets
            UNION ALL SELECT path, size, mtime_ns, NOT ends_with(path, '{VERDICTS_SUFFIX}') FROM quarantine
        """
        names = [file.name for listing in listings for file in listing.packets]
        is_wanted = IN_NAMES
        if any(listing.is_complete for listing in listings):
            is_wanted = f"may_be_gone OR {IN_NAMES}"
        # What was read from a file counts, not what files of verdicts say of it.
        found = self._database.tuples(
            f"SELECT path, size, mtime_ns FROM ({stored}) WHERE {is_wanted} ORDER BY may_be_gone",
            {"names": names},
        )
        return {path: FileStamp(size, mtime_ns) for path, size, mtime_ns in found}

    def _read(
        self,
        fresh: Sequence[FoundFile],
        report_progress: Callable[[IngestProgress], None],
        cancel: threading.Event,
        *,
        counted: bool = True,
    ) -> None:
        left = Counter(_folder(found.name) for found in fresh)
        folders: dict[str, set[str]] = defaultdict(set)
        with closing(self._reader(fresh, cancel, self._stored_waits)) as batches_read:
            for batch in batches_read:
                self._commit(batch, batch.names, counted)
                left -= Counter(map(_folder, batch.names))
                for row in batch.packets:
                    folders[row["run_id"]].add(_folder(row["path"]))
                if left:
                    self._compare_finished_runs(folders, left)
                report_progress(IngestProgress("reading", len(fresh) - left.total(), len(fresh)))

    def _remove(self, gone: Sequence[str], cancel: threading.Event) -> None:
        for begin in range(0, len(gone), BATCH_FILES):
            if cancel.is_set():
                return
            names = gone[begin : begin + BATCH_FILES]
            self._commit(read_batch([]), names)
            self._removed += len(names)

    def _compare_finished_runs(self, folders: Mapping[str, set[str]], left: Mapping[str, int]) -> None:
        """Compare runs with their references if their folders have no file left to read.

        Pages then show them correctly while other runs are still being read. A run is compared once here; if
        more of its files follow, the last phase compares it again.

        Args:
            folders: of each run. left: files to read by folder.
        """
        for run_id in sorted(folders.keys() - self._runs_compared):
            if not any(folder in left for folder in folders[run_id]):
                self._runs_compared.add(run_id)
                with self._database.transaction() as cursor:
                    update_reference(cursor, self._chosen, run_id)

    def _align(self, report_progress: Callable[[IngestProgress], None], cancel: threading.Event) -> None:
        """Diagnose windows again from their packets if their run implies another synchronisation stage.

        A window is not changed if one of its files cannot be read, for example on an unmounted share. A file
        that has changed is left to the next scan.
        """
        with self._database.cursor() as cursor:
            wanted = misaligned(cursor)
        self._is_aligned = not wanted  # Packets that are not there now may be there in the next pass.
        done, files = 0, self._files_of(wanted)
        for file_batch in batches(files):
            if cancel.is_set():
                return
            stored = self._stored([found.name for found in file_batch])
            keys = {key for _, key in stored.values()}
            batch = read_batch(self._files_of(keys), keys, self._stored_waits)
            intact = keys - self._not_as_stored(keys, batch)
            if intact != keys:
                batch = read_batch(self._files_of(intact), intact, self._stored_waits)
            if intact and not self._not_as_stored(intact, batch):
                self._commit(batch, batch.names, counted=False)
            done += len(file_batch)
            report_progress(IngestProgress("aligning", done, len(files)))

    def _not_as_stored(self, keys: Collection[Key], batch: PacketBatch) -> set[Key]:
        """Return the windows with a file that was not read or whose content differs from the stored one."""
        files = self._stored([found.name for found in self._files_of(keys)])
        read = {row["path"]: row["sha256"] for row in batch.packets}
        return {key for name, (sha256, key) in files.items() if read.get(name) != sha256}

    def _compare_runs(
        self, report_progress: Callable[[IngestProgress], None], cancel: threading.Event
    ) -> None:
        with self._database.cursor() as cursor:
            runs = runs_to_compare(cursor, self._chosen)
        for done, run_id in enumerate(runs, start=1):
            if cancel.is_set():
                return
            with self._database.transaction() as cursor:
                update_reference(cursor, self._chosen, run_id)
            report_progress(IngestProgress("comparing", done, len(runs)))

    def _commit(self, batch: PacketBatch, names: Sequence[str], counted: bool = True) -> None:
        """Commit all changes by these files, read or gone, in one transaction.

        Every window to which one of them belongs or belonged is built again from all its present files. One
        that is taken from a file of verdicts stays if the packet named there is damaged or of another window,
        or if only parts of fewer ranks are there. One that loses files is removed if files of verdicts may
        hold it (``lost_files``).

        Args:
            counted: whether the changes count in the report; files that were only read again do not.
        """
        before = self._stored(names, "verdicts IS NULL")
        if not before and self._is_refused_again(batch, names):
            self._unchanged += len(names)
            return
        keys = batch.keys | {key for _, key in before.values()}
        lossy = windows_with_lost_files(self._database, keys, batch, names, self._gone)
        own = [row for row in batch.packets if key_of(row) in lossy]
        batch, left = without_windows(batch, lossy, self._stored_waits)
        left += self._companions(lossy, names)
        if companions := self._companions(keys - lossy, names):
            batch = read_batch([*batch.found, *companions], keys - lossy, self._stored_waits)
        batch = without_left_parts(self._database, batch, names, self._stored_waits)
        keys = batch.keys | lossy | {key for _, key in before.values()}
        lost = keys - batch.keys
        with self._database.transaction() as cursor:
            # Nothing is stored of a new window, and each search for it takes time.
            are_described = leave_out(cursor, keys)
            if before or companions or are_described:
                invalidate_references(cursor, keys)
                cursor.execute(f"DELETE FROM packets WHERE {IN_KEYS}", key_values(keys))
                cursor.execute(f"DELETE FROM conflicts WHERE {IN_KEYS}", key_values(keys))
                delete_windows(cursor, keys)
            if lost:
                read_again(cursor, lost)
            read = [*names, *batch.names, *(found.name for found in left)]
            cursor.execute(f"DELETE FROM quarantine WHERE {IN_NAMES}", {"names": read})
            insert(cursor, PACKETS, PACKETS.arrow(batch.packets))
            insert(cursor, QUARANTINE, QUARANTINE.arrow(batch.quarantine))
            insert(cursor, CONFLICTS, CONFLICTS.arrow(batch.conflicts))
            insert_windows(cursor, batch.windows, batch.stages)
            for run_id, reference in references_of(cursor, {run_id for run_id, _ in keys}).items():
                compare(cursor, [key for key in keys if key[0] == run_id], reference)
        self._has_lost_windows |= bool(lost)
        self._left += left
        if counted:
            self._count(batch, own, before, names)

    def _is_refused_again(self, batch: PacketBatch, names: Sequence[str]) -> bool:
        """Return whether all of some files are refused as before, as while they cannot be read."""
        rows = {row["path"]: tuple(row.values()) for row in batch.quarantine}
        if batch.packets or rows.keys() != set(names):
            return False
        columns = ", ".join(QUARANTINE.names)
        stored = f"SELECT {columns} FROM quarantine WHERE {IN_NAMES}"
        return set(self._database.tuples(stored, {"names": names})) == set(rows.values())

    def _count(
        self,
        batch: PacketBatch,
        left: Sequence[Mapping[str, Any]],
        before: Mapping[str, tuple[str, Key]],
        names: Sequence[str],
    ) -> None:
        wanted = set(names)
        for row in (*batch.packets, *left):
            if row["path"] in wanted:
                same = before.get(row["path"]) == (row["sha256"], key_of(row))
                self._added += not same
                self._unchanged += same
        self._quarantined += len(batch.quarantine)
        self._conflicts += batch.conflict_count

    def _stored(self, names: Sequence[str], condition: str = "true") -> dict[str, tuple[str, Key]]:
        """Return SHA-256 and window of the stored files among these names; what was read from one counts."""
        rows = self._database.tuples(
            f'SELECT path, sha256, run_id, "window" FROM packets WHERE {IN_NAMES} AND {condition} '
            "ORDER BY verdicts IS NULL",
            {"names": names},
        )
        return {path: (sha256, (run_id, window)) for path, sha256, run_id, window in rows}

    def _companions(self, keys: Collection[Key], names: Sequence[str]) -> list[FoundFile]:
        """Return the other files of these windows."""
        wanted = set(names)
        return [found for found in self._files_of(keys) if found.name not in wanted]

    def _files_of(self, keys: Collection[Key]) -> list[FoundFile]:
        """Return the stored files of these windows, by name, with parts that were refused for lack of others;
        of those that a file of verdicts names, only those at or below a root. One that was read or refused
        since is returned as it was then."""
        rows = self._database.tuples(
            f"SELECT path, size, mtime_ns, verdicts IS NULL AS was_read FROM packets WHERE {IN_KEYS} "
            "UNION ALL SELECT path, size, mtime_ns, true FROM quarantine "
            f"WHERE {IN_REASONS} ORDER BY was_read",
            key_values(keys) | {"reasons": [reason_for(key) for key in keys]},
        )
        roots = [str(path) for path in self._paths]
        return sorted_files(
            FoundFile(path_in(self._paths, path), path, FileStamp(size, mtime_ns))
            for path, size, mtime_ns, was_read in rows
            if path not in self._gone and (was_read or any(is_below(path, root) for root in roots))
        )


def _folder(name: str) -> str:
    """Return the name of the folder of a file."""
    return name.rpartition("/")[0]
