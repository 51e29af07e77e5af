"""The app's one gateway to the store and the accounting, and the thread that keeps the store up to date.

Reading blocks (files, SQL, the matrix): pages call these methods through ``asyncio.to_thread``. Only
``judge_cached`` is quick enough for the event loop: moving a gate never touches the matrix again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from nicegui import Event

from sfapp.accounting import Measures, judge, measure, reference_of
from sfapp.app.cache import Cache
from sfapp.app.examples import ExampleStore
from sfapp.app.ledger import Ledger
from sfapp.errors import WindowError, WindowNotFoundError
from sfapp.incidents import IncidentLog
from sfapp.model import ALL_RANKS, Diagnosis, Operators, Reference, Window
from sfapp.model.examples import EXAMPLES, Example
from sfapp.model.view import ViewState, WindowKey
from sfapp.operators import events_of
from sfapp.store import IngestReport, PacketSource, Progress, RunSummary, Store, WindowPage, WindowQuery
from sfapp.views.findings import Examined, Read, Tell, examined

CACHE_BYTES = 1 << 30
"""Memory kept for windows and their measures, so that controls answer at once."""

FINDINGS_BYTES = 1 << 29
"""Memory kept for operator events and what came of them."""

PROGRESS_PAUSE = 2.0
"""Seconds between what open pages see of a long first ingest."""


@dataclass(frozen=True, slots=True)
class Source:
    """A window as it now lies in its files: the same key with other content is another source.

    Attributes:
        content: what its packets hold.
        operators: which files of operator events lie beside them, and how they stand.
    """

    key: WindowKey
    content: tuple[str, ...]
    operators: tuple[str, ...]
    packets: tuple[PacketSource, ...] = field(compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """All that a window page shows: the window of all ranks, measures of the chosen group, the verdict."""

    source: Source
    window: Window
    measures: Measures
    reference: Reference | None
    diagnosis: Diagnosis

    @property
    def examined_key(self) -> Hashable:
        """What ``Workspace.examined`` depends on. Where ranks wait for each other matters to stages only:
        operator events say it themselves."""
        waits = () if self.source.operators else self.diagnosis.wait_stages
        return self.source, self.diagnosis.group, waits


@dataclass(frozen=True, slots=True)
class Status:
    """What the store's thread is doing.

    Attributes:
        kind: ``reading`` (first ingest), ``live`` (watching), ``stopped`` (cancelled), ``failed``.
        progress: of the first ingest, None before it reported.
        newest: when the newest packet was written, UTC.
        message: why it failed.
    """

    kind: Literal["reading", "live", "stopped", "failed"]
    progress: Progress | None = None
    newest: datetime | None = None
    message: str = ""

    @property
    def age_seconds(self) -> float | None:
        """How old the newest packet is."""
        return None if self.newest is None else max(0.0, (datetime.now(UTC) - self.newest).total_seconds())


class Workspace:
    """One store, its cached measures, and what happens to it while pages are open.

    Attributes:
        store: of the operator's packets, for queries across runs; ``store_of`` knows the examples too.
        paths: where packets are looked for.
        changed: fired in the event loop after the store changed, with the report.
        incidents: the log of notes and incidents beside the first of the paths; ``ledger`` follows it.
    """

    def __init__(self, store: Store, paths: Sequence[Path]) -> None:
        self.store = store
        self.paths = tuple(paths)
        self.changed: Event[IngestReport] = Event()
        self.incidents = IncidentLog.beside(self.paths[0])
        self.ledger = Ledger(self.incidents)
        self.ingest_seconds = 0.0
        self._announced = time.monotonic()
        self._status = Status("reading", newest=store.newest_packet_at())
        self._windows: Cache[Window] = Cache(CACHE_BYTES // 2, _window_bytes)
        self._measures: Cache[Measures] = Cache(CACHE_BYTES // 2, lambda found: _window_bytes(found.window))
        self._examined: Cache[Examined] = Cache(FINDINGS_BYTES, lambda found: found.nbytes)
        self._examiner = ThreadPoolExecutor(1, "sfapp-kair")
        self._examples = ExampleStore()
        self._cancel = threading.Event()
        self._stop = threading.Event()
        self._thread = ThreadPoolExecutor(1, "sfapp-store")
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- keeping up to date ---------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to ingest, then to watch, beside the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.submit(self._keep_up).add_done_callback(self._note_end)
        self.ledger.start()

    def cancel_ingest(self) -> None:
        """Stop the first ingest; what is in the store stays, the next start goes on from there."""
        self._cancel.set()

    def stop(self) -> None:
        """Tell the store's thread to end."""
        self._cancel.set()
        self._stop.set()
        self.ledger.stop()

    def close(self) -> None:
        """Wait for the store's thread."""
        self.stop()
        self._thread.shutdown(wait=True)
        self._examiner.shutdown(wait=True, cancel_futures=True)
        self._examples.close()

    def status(self) -> Status:
        """What the store's thread is doing now."""
        return self._status

    def _keep_up(self) -> None:
        began = time.monotonic()
        report = self.store.ingest(progress=self._note_progress, cancel=self._cancel)
        self.ingest_seconds = time.monotonic() - began
        cancelled = self._cancel.is_set()
        self._status = Status("stopped" if cancelled else "live", None, self.store.newest_packet_at())
        self._announce(report)
        if not cancelled:
            self.store.watch(self._stop, self._note_change)

    def _note_progress(self, progress: Progress) -> None:
        self._status = Status("reading", progress, self._status.newest)
        if time.monotonic() - self._announced >= PROGRESS_PAUSE:
            self._announce(IngestReport())

    def _note_change(self, report: IngestReport) -> None:
        self._status = Status("live", None, self.store.newest_packet_at())
        self._announce(report)

    def _announce(self, report: IngestReport) -> None:
        self._announced = time.monotonic()
        if self._loop is not None and not self._stop.is_set():
            self._loop.call_soon_threadsafe(self.changed.emit, report)

    def _note_end(self, ended: Future[None]) -> None:
        error = ended.exception()
        if error is not None:
            self._status = Status("failed", None, self._status.newest, str(error) or type(error).__name__)

    # --- runs and windows ------------------------------------------------------------------------------

    def store_of(self, run_id: str) -> Store:
        """The store that has a run: the operator's own, or that of the examples where only it does."""
        if run_id not in EXAMPLES or self.store.windows(WindowQuery(run=run_id, limit=0)).total:
            return self.store
        return self._examples.opened()

    def example(self, run_id: str) -> Example | None:
        """The built-in example that is shown under a run's name."""
        return EXAMPLES.get(run_id) if self.store_of(run_id) is not self.store else None

    def run(self, run_id: str) -> RunSummary:
        """One run at a glance.

        Raises:
            WindowNotFoundError: no such run in the store.
        """
        for summary in self.store_of(run_id).runs():
            if summary.run_id == run_id:
                return summary
        raise WindowNotFoundError(f"no run {run_id!r} in the store")

    def set_reference(self, run_id: str, window: int | None) -> None:
        """Compare a run with this window from now on (with the measured one where None), and tell the pages.

        Raises:
            StoreError: there is no such window, or the choice cannot be kept.
        """
        self.store_of(run_id).set_reference(run_id, window)
        self._announce(IngestReport())

    def timeline(self, run_id: str | None) -> list[dict[str, Any]]:
        """The windows of a run, or of all, in order, as ``figures.window_timeline`` draws them."""
        store = self.store if run_id is None else self.store_of(run_id)
        return [{**row, "culprit": row["culprit_kind"]} for row in store.timeline(run_id)]

    def windows(self, query: WindowQuery) -> WindowPage:
        """One page of windows; an example only where its run is asked for.

        Raises:
            StoreError: a sort column or direction that does not exist, or a negative page.
        """
        return (self.store if query.run is None else self.store_of(query.run)).windows(query)

    def neighbours(self, key: WindowKey) -> tuple[int | None, int | None]:
        """The numbers of the windows before and after one of the same run."""
        return self.store_of(key.run_id).neighbours(key.run_id, key.window)

    def reference(self, run_id: str) -> Reference | None:
        """What the windows of a run are compared with; None where none of them is healthy."""
        return self.store_of(run_id).reference(run_id)

    # --- one window -----------------------------------------------------------------------------------

    def has(self, key: WindowKey) -> bool:
        """Whether the store has this window."""
        try:
            return bool(self.store_of(key.run_id).sources(key.run_id, key.window))
        except WindowNotFoundError:
            return False

    def source(self, key: WindowKey) -> Source:
        """The window as it now lies in its files.

        Raises:
            WindowNotFoundError: no such window in the store.
        """
        store = self.store_of(key.run_id)
        found = store.sources(key.run_id, key.window)
        aside = store.set_aside(key.run_id, key.window)
        content = tuple(packet.sha256 for packet in (*found, *aside))
        return Source(key, content, store.operator_files(found), tuple(found))

    def window(self, source: Source) -> Window:
        """The window with all its ranks."""
        run_id, number = source.key.run_id, source.key.window
        return self._windows.get(source) or self._windows.put(
            source, self.store_of(run_id).window(run_id, number)
        )

    def judge(self, source: Source, view: ViewState) -> Judged:
        """The verdict under a view's gates, baseline, group and reference; walks the matrix where it must.

        Raises:
            WindowNotFoundError: the window or the group is gone.
            WindowError: the baseline is ``reference`` and there is none.
        """
        reference = self._reference(source.key, view)
        name = _measures_key(source, view, reference)
        measures = self._measures.get(name)
        window = self.window(source)
        if measures is None:
            if view.baseline == "reference" and reference is None:
                raise WindowError("this run has no healthy window to take as a baseline; pick one")
            measures = self._measures.put(
                name, measure(window.of_group(view.group), view.baseline, reference)
            )
        return self._judged(source, window, self._in_run(name, measures), reference, view)

    def judge_cached(self, current: Judged, view: ViewState) -> Judged:
        """The verdict under other gates or the other frontier; the matrix is not touched."""
        return self._judged(current.source, current.window, current.measures, current.reference, view)

    def _in_run(self, name: Hashable, measures: Measures) -> Measures:
        """With what the windows of its run say of where ranks wait now: they come and go.

        Args:
            name: which measures of the cache these are.
        """
        window = measures.window
        known = measures.in_run(self.store_of(window.run_id).run_waits(window.run_id, window.stages))
        return known if known is measures else self._measures.put(name, known)

    def _judged(
        self,
        source: Source,
        window: Window,
        measures: Measures,
        reference: Reference | None,
        view: ViewState,
    ) -> Judged:
        diagnosis = judge(measures, view.gates, view.frontier, reference)
        return Judged(source, window, measures, reference, diagnosis)

    # --- from stages down to operators ----------------------------------------------------------------

    def examined(self, judged: Judged, tell: Tell = lambda said: None) -> Future[Examined]:
        """What KAIR says of the ranks that were judged. It takes memory and seconds, so one window at a time,
        on a thread of its own.

        Args:
            tell: called from that thread with what is being done.
        """
        return self._examiner.submit(self._examine, judged, tell)

    def examined_cached(self, judged: Judged) -> Examined | None:
        """The same at once, where it was asked for not long ago."""
        return self._examined.get(judged.examined_key)

    def _examine(self, judged: Judged, tell: Tell) -> Examined:
        name = judged.examined_key
        found = self._examined.get(name)
        if found is not None:
            return found
        read = self._reader(judged.source.key)
        window, waits = judged.measures.window, judged.diagnosis.wait_stages
        return self._examined.put(name, examined(name, read, window, waits, tell))

    def events(self, judged: Judged) -> tuple[Operators, str]:
        """The operator events of the ranks that were judged, else their stages, with what those cannot tell.

        Raises:
            PacketError: a file of operator events is damaged.
            WindowError: there are none, and the window's stages cannot stand in for them.
        """
        return events_of(self._reader(judged.source.key)(), judged.measures.window)

    def _reader(self, key: WindowKey) -> Read:
        return lambda: self.store_of(key.run_id).operators(key.run_id, key.window)

    def _reference(self, key: WindowKey, view: ViewState) -> Reference | None:
        """The healthy window as this view needs it: the picked one, or the run's; cut to the same group."""
        stored = self.reference(key.run_id)
        if view.reference is None and stored is None:
            return None
        plain = view.reference is None and view.group == ALL_RANKS and view.baseline != "reference"
        if plain:
            return stored
        picked = view.reference or WindowKey(stored.run_id, stored.window)  # type: ignore[union-attr]
        source = self.source(picked)
        name = (source, view.group, "cohort_median", None)
        measures = self._measures.get(name)
        if measures is None:
            window = self.window(source)
            if view.group not in window.groups:
                return None
            measures = self._measures.put(name, measure(window.of_group(view.group)))
        return reference_of(self._in_run(name, measures))


def _measures_key(source: Source, view: ViewState, reference: Reference | None) -> Hashable:
    against = None
    if view.baseline == "reference" and reference is not None:
        against = (reference.run_id, reference.window)
    return source, view.group, view.baseline, against


def _window_bytes(window: Window) -> int:
    return 2 * int(window.duration_SNR.nbytes)
