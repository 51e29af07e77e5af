"""Open and query the store: the packets below some folders, diagnosed.

All data in it is derived. Packets, and files of verdicts that were derived from packets, are the only source:
a store that is lost, old or damaged is built again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from sfapp.accounting import RunWaits
from sfapp.errors import StoreFailedError
from sfapp.model import Diagnosis, Operators, Reference, Window
from sfapp.model.samples import PaceSample, Sample
from sfapp.packets import read_packet_operators
from sfapp.storage import StoragePath, local_paths
from sfapp.store import cells_view, fleet_queries, opening, queries, samples, trend_queries, window_queries
from sfapp.store.database import Database
from sfapp.store.fleet_queries import FleetRows
from sfapp.store.ingest import Ingest, IngestProgress, IngestReport
from sfapp.store.operator_files import OperatorFiles
from sfapp.store.parallel_reader import PacketReader, read_all
from sfapp.store.queries import PacketSource, QuarantinedFile, RunSummary, WindowConflict
from sfapp.store.reference_choices import ReferenceChoices
from sfapp.store.references import update_reference
from sfapp.store.run_waits import stored_waits
from sfapp.store.samples import MOST_SUBJECTS, Paces, SampleFollower, SampleQuery
from sfapp.store.scan import FollowedRoot
from sfapp.store.settled import Settled
from sfapp.store.stored_windows import read_stored_window, thinned_at
from sfapp.store.trend_queries import TrendRows
from sfapp.store.verdict_rows import EncodedVerdict, Key
from sfapp.store.verdict_writer import DatasetReport, write_verdicts
from sfapp.store.watch import watch
from sfapp.store.window_queries import WindowCounts, WindowQuery, WindowRows


class Store:
    """Open store. Any number of threads may query it while one ingests.

    Attributes:
        roots: absolute paths of the packet folders and files.
        path: the DuckDB file, None in memory.
        note: message for the user on how the store was opened (rebuilt, kept in memory); empty if there is
            nothing unusual.
    """

    def __init__(self, database: Database, roots: Sequence[StoragePath], chosen: ReferenceChoices) -> None:
        """Wrap an open database; use ``Store.open`` instead."""
        self.roots = tuple(roots)
        self.path = database.path
        self.note = database.note
        self._database = database
        self._chosen = chosen
        self._ingesting = threading.Lock()
        self._followed = [FollowedRoot(root) for root in self.roots]
        self._follower = SampleFollower(database, local_paths(self.roots))
        self._operator_files = OperatorFiles()
        self._cells_are_stale = False
        self._settled = Settled(database, chosen)

    @classmethod
    def open(
        cls,
        roots: Sequence[StoragePath],
        db: Path | None = None,
        memory: bool = False,
        chosen: ReferenceChoices | None = None,
    ) -> Store:
        """Open or create the store of these packet folders. Reads no packet yet.

        Args:
            roots: folders of packets, or packet files.
            db: the store's file; ``.sfapp/store.duckdb`` next to the first root if None. If that folder
                cannot be written or the root is in a bucket, it is kept in memory and ``note`` says so.
            memory: keep it in memory in any case.
            chosen: references chosen by the user; those kept for this store if None.

        Raises:
            StoreBusyError: another process, or this one, has it open; the message names it.
            StoreError: a root does not exist, or the file or the chosen references cannot be read.
        """
        absolute = opening.absolute_roots(roots)
        database = opening.open_database(absolute, db, memory=memory)
        try:
            return cls(database, absolute, chosen or ReferenceChoices.for_store(database.path, absolute))
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Close the store, so that other processes can open it. May be called again."""
        with suppress(StoreFailedError):  # which was reported when it failed
            self._refresh_cells()
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- updating -------------------------------------------------------------------------------

    def ingest(
        self,
        progress: Callable[[IngestProgress], None] | None = None,
        cancel: threading.Event | None = None,
        reader: PacketReader = read_all,
    ) -> IngestReport:
        """Synchronise the store with the packets, reading only new and changed files.

        Args:
            progress: called after every batch, from this thread.
            cancel: set it to stop after the current batch; the next ingest reads the rest.
            reader: reads the packets, for example on a cluster (``sfapp.engines.packet_reader``).

        Raises:
            StoreError: the store cannot be written. A bad packet is quarantined and never raises.
        """
        report = self._ingest(progress, cancel or threading.Event(), reader)
        self._follower.follow(look_everywhere=True)
        self._refresh_cells()
        return report

    def recover(self, is_damaged: bool = False) -> None:
        """Make the store usable again after a write failed, on a full disk for example, if it is not.

        Args:
            is_damaged: begin with an empty one, which the next ingest fills.

        Raises:
            StoreError: it cannot be opened yet.
        """
        self._database.recover(is_damaged)

    def watch(self, stop: threading.Event, on_change: Callable[[IngestReport], None]) -> None:
        """Ingest new packets until ``stop`` is set; blocks. ``on_change`` gets every report of a change."""

        def follow() -> None:
            before = self.generation
            self.follow()
            if self.generation != before:  # A standstill began, changed or ended.
                on_change(IngestReport())

        watch(self.roots, stop, lambda: self._ingest(None, stop, everything=False), follow, on_change)

    def follow(self) -> int:
        """Read the samples that running jobs have written since the last call, and return their number.

        ``ingest`` and ``watch`` do too. ``generation`` changes with standstills only, not every second.

        Raises:
            StoreError: the store cannot be written. A bad file never raises.
        """
        return self._follower.follow()

    def _ingest(
        self,
        progress: Callable[[IngestProgress], None] | None,
        cancel: threading.Event,
        reader: PacketReader = read_all,
        *,
        everything: bool = True,
    ) -> IngestReport:
        with self._ingesting:
            ingest = Ingest(self._database, self._followed, self._chosen, self._operator_files, reader)
            report = ingest.run(progress, cancel, everything=everything, was_settled=bool(self._settled))
            self._settled.note(ingest.is_settled)
            self._cells_are_stale |= report.changed
            return report

    def _refresh_cells(self) -> None:
        if self._cells_are_stale:
            cells_view.refresh(self._database)
        self._cells_are_stale = False

    # ---- queries --------------------------------------------------------------------------------

    @property
    def root_faults(self) -> list[str]:
        """Return why roots could not be listed at the last look; their windows are kept."""
        return [root.fault for root in self._followed if root.fault]

    @property
    def generation(self) -> int:
        """Number that grows with every change visible on a page; 0 after opening."""
        return self._database.generation

    def runs(self) -> list[RunSummary]:
        """Return every run, the one with the newest window first."""
        return queries.runs(self._database)

    def windows(self, query: WindowQuery | None = None) -> WindowRows:
        """Return one page of windows; see ``WindowQuery``.

        Raises:
            StoreError: a sort column or direction does not exist, or offset or limit is negative.
        """
        return window_queries.windows(self._database, query or WindowQuery())

    def window_parts(self, query: WindowQuery) -> Iterator[list[dict[str, Any]]]:
        """Return all windows that match, a part at a time; see ``window_queries.window_parts``."""
        return window_queries.window_parts(self._database, query)

    def timeline(
        self, query: WindowQuery | None = None, latest: int | None = None, *, is_sorted: bool = False
    ) -> list[dict[str, Any]]:
        """Return what a timeline plots of the windows that match; see ``window_queries.timeline``."""
        return window_queries.timeline(self._database, query or WindowQuery(), latest, is_sorted=is_sorted)

    def window_counts(self, run: str | None = None) -> WindowCounts:
        """Return how many windows there are of one run or of all, and the worst."""
        return window_queries.counts(self._database, run)

    def diagnosis(self, run: str, window: int) -> Diagnosis:
        """Return the stored diagnosis: all ranks, default thresholds, compared with the run's reference.

        Raises:
            WindowNotFoundError: no such window.
        """
        return queries.diagnosis(self._database, run, window)

    def diagnoses(self, run: str) -> list[Diagnosis]:
        """Return the stored diagnoses of all windows of a run, in order; see ``diagnosis``.

        Raises:
            WindowNotFoundError: no such run.
        """
        return queries.diagnoses(self._database, run)

    def telling_windows(self, runs: Sequence[str], most: int) -> dict[str, dict[int, int]]:
        """Return, by run, the latest ``most`` windows from which problems are derived, and their hashes."""
        return queries.telling_windows(self._database, runs, most)

    def verdicts(self, keys: Collection[Key]) -> Iterator[EncodedVerdict]:
        """Return the verdicts on some windows, by run and window; missing windows are left out."""
        return queries.verdicts(self._database, keys)

    def troubled_runs(self) -> list[str]:
        """Return the runs with a window that needs attention or lacks ranks, or that have stood still, in
        alphabetical order."""
        return queries.troubled_runs(self._database)

    def runs_that_stood_still(self) -> set[str]:
        """Return the runs that have stood still."""
        return queries.runs_that_stood_still(self._database)

    def window_numbers(self, runs: Sequence[str]) -> dict[str, list[int]]:
        """Return the numbers of some runs' windows, ascending; runs without windows are left out."""
        return queries.window_numbers(self._database, runs)

    def window(self, run: str, window: int) -> Window:
        """Return a window with its matrix, read from its packets; see ``read_stored_window``.

        Raises:
            WindowNotFoundError: no such window.
            StoreError: its packets are not here, or have disappeared or changed since they were ingested.
        """
        return read_stored_window(run, window, *self.packet_files(run, window), self.roots)

    def thinned_at(self, run: str, window: int) -> datetime | None:
        """Return when the rows of a window were thinned (`sfapp compact`); None if all are there."""
        return thinned_at(self.sources(run, window))

    def operators(self, run: str, window: int) -> Operators | None:
        """Return the operator events of a window from the files next to its packets; None if there are none.

        Raises:
            WindowNotFoundError: no such window.
            PacketError: one of the files is damaged.
        """
        return read_packet_operators(source.path for source in self.sources(run, window))

    def operator_files(self, packets: Sequence[PacketSource]) -> tuple[str, ...]:
        """Return a fingerprint of the operator events next to these packets, as of the last ingest."""
        return self._operator_files.for_packets(packet.path for packet in packets)

    def sources(self, run: str, window: int) -> list[PacketSource]:
        """Return the packet files of a window; raise WindowNotFoundError if there is no such window."""
        return self.packet_files(run, window)[0]

    def packet_files(self, run: str, window: int) -> tuple[list[PacketSource], list[PacketSource]]:
        """Return the packet files of a window, and those that were set aside: see ``conflicts``."""
        return queries.packet_files(self._database, self.roots, run, window)

    def write_verdicts(self, folder: StoragePath) -> DatasetReport:
        """Write the verdicts on all windows to a dataset that is one of the roots (``ingest_to_dataset``)."""
        return write_verdicts(self._database, folder)

    def hostnames(self) -> frozenset[str]:
        """Return every host name in the packets, including those set aside."""
        return queries.hostnames(self._database)

    def quarantine(self) -> list[QuarantinedFile]:
        """Return every refused file with its reason."""
        return queries.quarantine(self._database)

    def conflicts(self) -> list[WindowConflict]:
        """Return every conflict: the used files and those set aside."""
        return queries.conflicts(self._database, self.roots)

    def newest_packet_at(self) -> datetime | None:
        """Return the modification time of the newest packet."""
        return queries.newest_packet_at(self._database)

    def fleet(self) -> FleetRows:
        """Return hosts, lost time and states of all runs."""
        return fleet_queries.fleet(self._database)

    def trends(self, by: str, most: int) -> TrendRows:
        """Return parts of runs by the value of a field; see ``trend_queries.trends``."""
        return trend_queries.trends(self._database, by, most)

    def samples(self, query: SampleQuery) -> list[dict[str, Any]]:
        """Return samples of nodes, GPUs, processes or the pace of ranks over time; see ``SampleQuery``.

        Raises:
            StoreError: a kind or subject does not exist, or fewer than one point is requested.
        """
        return samples.series(self._database, query)

    def newest_samples(
        self,
        kind: type[Sample],
        run: str,
        until: datetime | None = None,
        since: datetime | None = None,
        node: int | None = None,
        most: int = MOST_SUBJECTS,
    ) -> list[dict[str, Any]]:
        """Return the newest sample of every node, GPU or rank of a run or node, ascending.

        Args:
            until: newest at this moment.
            since: leave out subjects without a sample after this moment.
            most: number of subjects; those with the newest samples.

        Raises:
            StoreError: a kind of sample does not exist.
        """
        return samples.newest(self._database, kind, run, until, since, node, most)

    def paces(
        self,
        run: str,
        since: datetime,
        until: datetime,
        node: int | None = None,
        known: Paces | None = None,
    ) -> Paces:
        """Return the pace that the ranks of a run or node reported.

        Args:
            known: an earlier result for the same ranks; only later samples are read from the store.
        """
        query = SampleQuery(PaceSample, run, node, since=since, until=until)
        return samples.paces(self._database, query, known)

    def live_runs(self, since: datetime | None = None) -> list[dict[str, Any]]:
        """Return every streamed run, the last one that reported first: ``run_id``, ``sampled_at``, ``ranks``,
        ``nodes`` and ``left``, the number of ranks that have disconnected.

        Args:
            since: leave out ranks without a sample after this moment.
        """
        return samples.live_runs(self._database, since)

    # ---- references -----------------------------------------------------------------------------

    def reference(self, run: str) -> Reference | None:
        """Return the reference of a run's windows; None if none of them is healthy."""
        return queries.reference(self._database, run)

    def run_waits(self, run: str, recorded_stages: Sequence[str]) -> RunWaits:
        """Return where ranks wait according to the run's windows with these stages (``Measures.in_run``)."""
        return stored_waits(self._database, (run, tuple(recorded_stages)))

    def set_reference(self, run: str, window: int | None) -> None:
        """Compare a run's windows with this one from now on, or with the measured reference if None.

        The choice is saved next to the store and is kept when the store is built again.

        Raises:
            WindowNotFoundError: the run has no such window.
            StoreError: the choice cannot be saved.
        """
        if window is not None:
            self.sources(run, window)
        with self._database.transaction() as cursor:
            self._chosen.set(run, window)
            update_reference(cursor, self._chosen, run)
