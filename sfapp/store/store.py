"""The store: what the packets under some folders say, diagnosed and ready to be asked.

DerivedWindow data only. The packets are the truth, and a store that is lost, old or damaged is built again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from sfapp.accounting import RunWaits
from sfapp.errors import StoreError
from sfapp.model import Diagnosis, Operators, Reference, Window
from sfapp.model.samples import PaceSample, Sample
from sfapp.packets import Packet, group, load_packet, read_packet_operators
from sfapp.store import cells_view, opening, queries, samples
from sfapp.store.database import Database
from sfapp.store.ingest import Ingest, IngestProgress, IngestReport
from sfapp.store.operator_files import OperatorFiles
from sfapp.store.queries import (
    PacketSource,
    QuarantinedFile,
    RunSummary,
    WindowConflict,
    WindowQuery,
    WindowRows,
)
from sfapp.store.reference_choices import ReferenceChoices
from sfapp.store.references import settle
from sfapp.store.run_waits import stored_waits
from sfapp.store.samples import SampleFollower, SampleQuery
from sfapp.store.watch import watch


class Store:
    """An open store. Any number of threads may ask while one ingests.

    Attributes:
        roots: absolute paths of the packet folders and files.
        path: the DuckDB file, None in memory.
        note: what the operator should know of how the store was opened (rebuilt, kept in memory); empty
            where nothing is out of the ordinary.
    """

    def __init__(self, database: Database, roots: Sequence[Path]) -> None:
        """For ``Store.open``.

        Raises:
            StoreError: references chosen earlier cannot be read.
        """
        self.roots = tuple(roots)
        self.path = database.path
        self.note = database.note
        self._database = database
        self._chosen = ReferenceChoices.for_store(database.path)
        self._ingesting = threading.Lock()
        self._follower = SampleFollower(database, self.roots)
        self._operator_files = OperatorFiles()
        self._cells_are_stale = False

    @classmethod
    def open(cls, roots: Sequence[Path], db: Path | None = None, memory: bool = False) -> Store:
        """Open the store of these packet folders, making it where there is none. Reads no packet yet.

        Args:
            roots: folders of packets, or packet files.
            db: the store's file; ``.sfapp/store.duckdb`` beside the first root where None. Where nothing may
                be written there, the store is kept in memory and ``note`` says so.
            memory: keep it in memory in any case.

        Raises:
            StoreBusyError: another process, or this one, has it open; the message names it.
            StoreError: a root does not exist, or the file cannot be used.
        """
        absolute = [Path(root).expanduser().resolve() for root in roots]
        if not absolute:
            raise StoreError("name at least one folder of packets")
        for root in absolute:
            if not root.exists():
                raise StoreError(f"no such file or folder: {root}")
        if memory:
            database = opening.open_in_memory()
        elif db is not None:
            database = opening.open_file(Path(db).expanduser().resolve())
        else:
            database = opening.open_default(absolute[0])
        try:
            return cls(database, absolute)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Finish the store for others to read. May be called again."""
        if self._cells_are_stale:
            self._refresh_cells()
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- bringing it up to date -----------------------------------------------------------------

    def ingest(
        self,
        progress: Callable[[IngestProgress], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> IngestReport:
        """Bring the store in line with the packets; files that are as they were are not read again.

        Args:
            progress: called after every batch, from this thread.
            cancel: set it to stop after the batch in hand; the next ingest does the rest.

        Raises:
            StoreError: the store cannot be written. A bad packet is quarantined, never raised.
        """
        report = self._ingest(progress, cancel or threading.Event())
        self._follower.follow(look_everywhere=True)
        if self._cells_are_stale:
            self._refresh_cells()
        return report

    def watch(self, stop: threading.Event, on_change: Callable[[IngestReport], None]) -> None:
        """Ingest what arrives, until ``stop`` is set; returns promptly then. Blocks, so give it a thread.

        Args:
            on_change: called from this thread with every report of something that changed.
        """
        watch(self.roots, stop, lambda: self._ingest(None, stop), self.follow, on_change)

    def follow(self) -> int:
        """Read the samples that a running job has left since the last time; how many. ``ingest`` and
        ``watch`` do it too, and ``generation`` stays what it is: samples come every second.

        Raises:
            StoreError: the store cannot be written. Nothing in a file raises.
        """
        return self._follower.follow()

    def _ingest(
        self, progress: Callable[[IngestProgress], None] | None, cancel: threading.Event
    ) -> IngestReport:
        with self._ingesting:
            report = Ingest(self._database, self.roots, self._chosen, self._operator_files).run(
                progress, cancel
            )
            self._cells_are_stale |= report.changed
            return report

    def _refresh_cells(self) -> None:
        cells_view.refresh(self._database)
        self._cells_are_stale = False

    # ---- asking ---------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Grows with every change that a page could show. Starts at 0 with every opening."""
        return self._database.generation

    def runs(self) -> list[RunSummary]:
        """Every run, the one with the newest window first."""
        return queries.runs(self._database)

    def windows(self, query: WindowQuery | None = None) -> WindowRows:
        """One page of windows; see ``WindowQuery``.

        Raises:
            StoreError: a sort column or direction that does not exist, or a negative page.
        """
        return queries.windows(self._database, query or WindowQuery())

    def timeline(self, run: str | None = None) -> list[dict[str, Any]]:
        """Every window of a run, or of all, in order: ``run_id, window, started_at, step_time_ns, shares,
        label, severity, aim_stage, aim_rank, aim_hostname, culprit_kind, is_reference``."""
        return queries.timeline(self._database, run)

    def diagnosis(self, run: str, window: int) -> Diagnosis:
        """The stored diagnosis: all ranks, default gates, compared with the run's reference.

        Raises:
            WindowNotFoundError: no such window.
        """
        return queries.diagnosis(self._database, run, window)

    def diagnoses(self, run: str) -> list[Diagnosis]:
        """The stored diagnoses of all windows of a run, in order; as ``diagnosis`` gives each.

        Raises:
            WindowNotFoundError: no such run.
        """
        return queries.diagnoses(self._database, run)

    def window(self, run: str, window: int) -> Window:
        """The matrix of a window, read from its packets.

        Those set aside are read too, where they are as they were: that a rank reported other stages or steps
        is said of the window, though its rows are not in it.

        Raises:
            WindowNotFoundError: no such window.
            StoreError: its packets have gone or changed since they were ingested.
        """
        shown = [load_packet(source.path) for source in self.sources(run, window)]
        packets = [packet for packet in shown if isinstance(packet, Packet)]
        is_whole = len(packets) == len(shown)
        for aside in self.set_aside(run, window):
            packet = load_packet(aside.path)
            if isinstance(packet, Packet) and packet.sha256 == aside.sha256:
                packets.append(packet)
        for found in group(packets).windows if is_whole else ():
            if (found.window.run_id, found.window.number) == (run, window):
                return found.window
        raise StoreError(
            f"the packets of window {window} of run {run!r} have gone or changed since they were read; "
            "the next scan brings the store in line"
        )

    def operators(self, run: str, window: int) -> Operators | None:
        """The operator events of a window, read from the files beside its packets; None where there are none.

        Raises:
            WindowNotFoundError: no such window.
            PacketError: one of the files is damaged.
        """
        return read_packet_operators(source.path for source in self.sources(run, window))

    def operator_files(self, packets: Sequence[PacketSource]) -> tuple[str, ...]:
        """What tells the files of operator events beside a window's packets from what they were, as the last
        ingest saw them; none where there are none."""
        return self._operator_files.for_packets(packet.path for packet in packets)

    def neighbours(self, run: str, window: int) -> tuple[int | None, int | None]:
        """The numbers of the windows before and after one of the same run."""
        return queries.neighbours(self._database, run, window)

    def sources(self, run: str, window: int) -> list[PacketSource]:
        """The files that a window is made of.

        Raises:
            WindowNotFoundError: no such window.
        """
        return queries.sources(self._database, run, window)

    def set_aside(self, run: str, window: int) -> list[PacketSource]:
        """The files that claim a window and lost to those it is made of; see ``conflicts`` for why."""
        return queries.set_aside(self._database, run, window)

    def quarantine(self) -> list[QuarantinedFile]:
        """Every refused file, with its reason."""
        return queries.quarantine(self._database)

    def conflicts(self) -> list[WindowConflict]:
        """Every conflict: which files a window is made of and which were set aside."""
        return queries.conflicts(self._database)

    def newest_packet_at(self) -> datetime | None:
        """When the newest packet was written, by the clock of its file system."""
        return queries.newest_packet_at(self._database)

    def samples(self, query: SampleQuery) -> list[dict[str, Any]]:
        """Samples of nodes, GPUs, processes or the pace of ranks over time; see ``SampleQuery``.

        Raises:
            StoreError: a kind or subject that there is not, or no points.
        """
        return samples.series(self._database, query)

    def newest_samples(
        self,
        kind: type[Sample],
        run: str,
        until: datetime | None = None,
        since: datetime | None = None,
        node: int | None = None,
    ) -> list[dict[str, Any]]:
        """The newest sample of every node, GPU or rank of a run, or of one of its nodes, or what was it at a
        moment; ascending, and without those of which there is none between the two moments.

        Raises:
            StoreError: a kind that there is not.
        """
        return samples.newest(self._database, kind, run, until, since, node)

    def paces(
        self,
        run: str,
        since: datetime,
        until: datetime,
        node: int | None = None,
        known: samples.Paces | None = None,
    ) -> samples.Paces:
        """What ranks, or those of one node, said of their pace.

        Args:
            known: what was answered before of the same ranks for an earlier time: only the rest is looked up.
        """
        query = SampleQuery(PaceSample, run, node, since=since, until=until)
        return samples.paces(self._database, query, known)

    def live_runs(self) -> list[dict[str, Any]]:
        """Every run that was streamed, the one heard of last first: ``run_id``, ``sampled_at``, ``ranks``,
        ``nodes``, and ``left``, the ranks that said goodbye."""
        return samples.live_runs(self._database)

    # ---- references -----------------------------------------------------------------------------

    def reference(self, run: str) -> Reference | None:
        """What the windows of a run are compared with; None where none of them is healthy."""
        return queries.reference(self._database, run)

    def run_waits(self, run: str, recorded_stages: Sequence[str]) -> RunWaits:
        """What the wait fits of a run's windows with these stages found, for a window whose own finds nothing
        (``Measures.in_run``)."""
        return stored_waits(self._database, (run, tuple(recorded_stages)))

    def set_reference(self, run: str, window: int | None) -> None:
        """Compare a run's windows with this one from now on, or with the measured one where None.

        The choice is kept beside the store and outlives its rebuilding.

        Raises:
            WindowNotFoundError: the run has no such window.
            StoreError: the choice cannot be written down.
        """
        if window is not None:
            self.sources(run, window)
        self._chosen.set(run, window)
        with self._database.transaction() as cursor:
            settle(cursor, self._chosen, run)
