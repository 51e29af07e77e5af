"""One store with the queries of all surfaces, and the thread that keeps the store up to date.

Reading blocks (files, SQL, the matrix), so pages call these methods through ``asyncio.to_thread``. Only
``rejudge`` is fast enough for the event loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal

from sfapp.accounting import WhatIf
from sfapp.errors import WindowNotFoundError
from sfapp.model import Fix, Operators, Reference, Window
from sfapp.model.examples import EXAMPLES, Example
from sfapp.model.fleet import Fleet
from sfapp.model.problems import Problem
from sfapp.model.trends import BY_DAY, Trends
from sfapp.model.view import ViewState, WindowKey
from sfapp.operators import events_of
from sfapp.service.examples import ExampleStore
from sfapp.service.fleet import fleet_of
from sfapp.service.incidents import IncidentService, incident_log_of
from sfapp.service.judging import JudgedWindow, WindowJudge, WindowSource
from sfapp.service.live_rolling import RollingFeed, RollingView
from sfapp.service.memory_cache import MemoryCache, StoreCache
from sfapp.service.onsets import EpisodeLocator
from sfapp.service.problems import ENDS, StoredProblems
from sfapp.service.store_activity import StoreStatus
from sfapp.service.store_faults import StoreFaults
from sfapp.service.streaming_runs import StreamingRuns
from sfapp.service.subscribers import Subscribers
from sfapp.service.trends import trends_of
from sfapp.service.what_if import StepPredictor
from sfapp.service.window_overview import WindowsOverview, windows_overview
from sfapp.storage import StoragePath, local_paths
from sfapp.store import IngestProgress, IngestReport, RunSummary, Store, WindowCounts, WindowQuery, WindowRows
from sfapp.views.operator_findings import Examined, Read, ReportProgress, examined

FINDINGS_BYTES = 1 << 29
"""Memory for operator events and their findings."""

PROGRESS_PAUSE = 2.0
"""Seconds between the notifications of a long first ingest."""

RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 60.0
"""Seconds until the store is written again after a failure, doubled each time."""


class Workspace:
    """One store, its cached measures and findings, its notes and incidents, and the thread that ingests.

    Attributes:
        store: of the user's packets, for queries across runs; ``store_of`` also finds the examples.
        paths: folders and files of packets.
        folders: those on this machine, next to which running jobs leave samples and requests.
        streaming: the runs that are being streamed.
        changed: notified in the event loop after the store changed, with the report.
        incident_log: the log of notes and incidents of the first of the paths.
        incident_service: follows that log.
    """

    def __init__(self, store: Store, paths: Sequence[StoragePath]) -> None:
        self.store = store
        self.paths = tuple(paths)
        self.folders = tuple(local_paths(paths))
        self.streaming = StreamingRuns(store)
        self.changed: Subscribers[IngestReport] = Subscribers()
        self.incident_log = incident_log_of(self.paths[0], store.path)
        self.incident_service = IncidentService(self.incident_log)
        self.ingest_seconds = 0.0
        self._notified_at = time.monotonic()
        self._status = StoreStatus("reading", newest=store.newest_packet_at())
        self._judge = WindowJudge(self.store_of)
        self._problems = StoredProblems(self.store_of, EpisodeLocator(self._judge))
        self._fleet: StoreCache[Fleet] = StoreCache(store)
        self._trends: StoreCache[Trends] = StoreCache(store)
        self._runs: StoreCache[list[RunSummary]] = StoreCache(store)
        self._overviews: StoreCache[WindowsOverview] = StoreCache(store, most=8)
        self._predictor = StepPredictor()
        self._rolling = RollingFeed(store, self.folders)
        self._findings: MemoryCache[Examined] = MemoryCache(FINDINGS_BYTES, lambda found: found.nbytes)
        self._examiner = ThreadPoolExecutor(1, "sfapp-operators")
        self._steps = ThreadPoolExecutor(1, "sfapp-steps")
        self._examples = ExampleStore()
        self._cancel = threading.Event()
        self._stop = threading.Event()
        self._thread = ThreadPoolExecutor(1, "sfapp-store")
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- keeping up to date ---------------------------------------------------------------------------

    def start(self) -> None:
        """Ingest, then watch for new packets, on a separate thread."""
        self._loop = asyncio.get_running_loop()
        self._thread.submit(self._keep_up_to_date)
        self.incident_service.start()

    def cancel_ingest(self) -> None:
        """Stop the first ingest; the store keeps what was read, and the next start continues there."""
        self._cancel.set()

    def stop(self) -> None:
        """Signal the store's thread to end."""
        self._cancel.set()
        self._stop.set()
        self.incident_service.stop()

    def close(self) -> None:
        """Stop, and wait for the threads to end."""
        self.stop()
        self._thread.shutdown(wait=True)
        for thread in (self._examiner, self._steps):
            thread.shutdown(wait=True, cancel_futures=True)
        self._examples.close()

    def status(self) -> StoreStatus:
        """Return the present activity of the store's thread."""
        return self._status

    def _keep_up_to_date(self) -> None:
        """Ingest and watch until stopped; begin anew after a failure, on a full disk for example."""
        pause, faults = RETRY_SECONDS, StoreFaults()
        has_failed = is_damaged = False
        while True:
            began = time.monotonic()
            try:
                if has_failed:
                    self.store.recover(is_damaged)
                self._ingest_and_watch()
                return
            except Exception as error:  # noqa: BLE001  # Else pages would show old windows until a restart.
                self._status, has_failed = self._failed(error), True
                is_damaged = faults.is_damage(error)
            if time.monotonic() - began > LONGEST_RETRY_SECONDS:  # It worked for a while.
                pause = RETRY_SECONDS
            if self._stop.wait(pause):
                return
            pause = min(2 * pause, LONGEST_RETRY_SECONDS)

    def _ingest_and_watch(self) -> None:
        began = time.monotonic()
        report = self.store.ingest(progress=self._on_progress, cancel=self._cancel)
        self.ingest_seconds = time.monotonic() - began
        cancelled = self._cancel.is_set()
        self._status = self._watching("stopped" if cancelled else "live")
        self._notify(report)
        if not cancelled:
            self.store.watch(self._stop, self._on_change)

    def _on_progress(self, progress: IngestProgress) -> None:
        self._status = StoreStatus("reading", progress, self._status.newest)
        if time.monotonic() - self._notified_at >= PROGRESS_PAUSE:
            self._notify(IngestReport())

    def _on_change(self, report: IngestReport) -> None:
        self._status = self._watching("live")
        self._notify(report)

    def _watching(self, kind: Literal["live", "stopped"]) -> StoreStatus:
        faults = self.store.root_faults
        is_blind = len(faults) == len(self.paths)
        ended = [run.newest_ended_at for run in self.store.runs() if run.newest_ended_at is not None]
        newest, recorded = self.store.newest_packet_at(), max(ended, default=None)
        return StoreStatus("failed" if is_blind else kind, None, newest, "; ".join(faults), recorded)

    def _notify(self, report: IngestReport) -> None:
        self._notified_at = time.monotonic()
        self.problems(locates=False)  # so that no page waits for it
        if self._loop is not None and not self._stop.is_set():
            self._loop.call_soon_threadsafe(self.changed.notify, report)

    def _failed(self, error: Exception) -> StoreStatus:
        return StoreStatus("failed", None, self._status.newest, str(error) or type(error).__name__)

    # --- runs and windows ------------------------------------------------------------------------------

    def store_of(self, run_id: str | None) -> Store:
        """Return the store that has a run: the user's, or that of the examples if only it has the run.

        Args:
            run_id: None for all runs of the user's store.
        """
        if run_id not in EXAMPLES or self.store.windows(WindowQuery(run=run_id, limit=0)).total:
            return self.store
        return self._examples.open()

    def example(self, run_id: str) -> Example | None:
        """Return the built-in example that is shown under a run's name."""
        return EXAMPLES.get(run_id) if self.store_of(run_id) is not self.store else None

    def run(self, run_id: str) -> RunSummary:
        """Return the summary of one run.

        Raises:
            WindowNotFoundError: no such run in the store.
        """
        for summary in self.store_of(run_id).runs():
            if summary.run_id == run_id:
                return summary
        raise WindowNotFoundError(f"no run {run_id!r} in the store")

    def set_reference(self, run_id: str, window: int | None) -> None:
        """Compare a run with this window from now on (with the measured one if None), and notify.

        Raises:
            StoreError: there is no such window, or the choice cannot be kept.
        """
        self.store_of(run_id).set_reference(run_id, window)
        self._notify(IngestReport())

    def timeline(
        self, query: WindowQuery, latest: int | None = None, *, is_sorted: bool = False
    ) -> list[dict[str, Any]]:
        """Return the windows that match a query, or the ``latest`` of these, by run and window, as
        ``figures.window_timeline`` draws them.

        Args:
            is_sorted: in the order of the query instead.
        """
        return self.store_of(query.run).timeline(query, latest, is_sorted=is_sorted)

    def window_counts(self, run_id: str | None) -> WindowCounts:
        """Return how many windows there are of a run or of all, and the worst."""
        return self.store_of(run_id).window_counts(run_id)

    def windows_overview(self, run_id: str | None) -> WindowsOverview:
        """Return runs, counts and the latest windows of a run or of all; cached until the store changes."""
        found = self._overviews.get(run_id, lambda: windows_overview(self, run_id))
        return replace(found, reading=self.status().kind == "reading")

    def runs(self) -> list[RunSummary]:
        """Return every run of the user's store, the one with the newest window first; cached likewise."""
        return self._runs.get(None, self.store.runs)

    def windows(self, query: WindowQuery) -> WindowRows:
        """Return one page of windows; windows of an example only if its run is requested.

        Raises:
            StoreError: a sort column or direction that does not exist, or a negative page.
        """
        return self.store_of(query.run).windows(query)

    def window_parts(self, query: WindowQuery) -> Iterator[list[dict[str, Any]]]:
        """Return the rows of all windows that match, a part at a time; see ``Store.window_parts``."""
        return self.store_of(query.run).window_parts(query)

    def reference(self, run_id: str) -> Reference | None:
        """Return the reference of a run's windows; None if none of them is healthy."""
        return self.store_of(run_id).reference(run_id)

    def rolling(self, run_id: str, steps: int) -> RollingView | None:
        """Return the verdict on the last steps of a running job; None if none are streamed here."""
        return self._rolling.view(run_id, steps)

    def problems(self, run_id: str | None = None, locates: bool = True) -> list[Problem]:
        """Return the problems of a run, or of all runs of the user's store: missing data first, then by
        rank-hours lost.

        Args:
            locates: whether packets are read for the steps at which they began and ended.
        """
        runs = self.store.troubled_runs() if run_id is None else [run_id]
        return self._problems.of_runs(runs, locates)

    def fleet(self) -> Fleet:
        """Return what all runs of the user's store show together; cached until the store changes."""
        return self._fleet.get(None, lambda: fleet_of(self.store))

    def trends(self, by: str = BY_DAY) -> Trends:
        """Return whether runs became slower, by a field; cached until the store changes."""
        return self._trends.get(by, lambda: trends_of(self.store, by))

    def locate_problems(self) -> Future[list[Problem]]:
        """Find the steps at which the problems of all runs began and ended, from the packets of their first
        and last episodes. On a separate thread, one request at a time: the next finds what this one read."""
        runs = self.store.troubled_runs
        return self._steps.submit(lambda: self._problems.of_runs(runs(), locates=True, each=ENDS))

    def problems_of_window(self, key: WindowKey) -> list[Problem]:
        """Return the problems that a window belongs to. Reads packets."""
        return self._problems.of_window(key.run_id, key.window)

    def problem(self, problem_id: str, run_id: str | None = None) -> Problem:
        """Return one problem, with the steps at which it began and ended. Reads packets.

        Args:
            run_id: its run, if that is not in the user's store.

        Raises:
            WindowNotFoundError: there is none.
        """
        return self._problems.named(problem_id, self.store.troubled_runs() if run_id is None else [run_id])

    # --- one window -----------------------------------------------------------------------------------

    def has(self, key: WindowKey) -> bool:
        """Return whether the store has this window."""
        try:
            return bool(self.store_of(key.run_id).sources(key.run_id, key.window))
        except WindowNotFoundError:
            return False

    def source(self, key: WindowKey) -> WindowSource:
        """Return the stored files of the window.

        Raises:
            WindowNotFoundError: no such window in the store.
        """
        return self._judge.source(key)

    def window(self, source: WindowSource) -> Window:
        """Return the window with all its ranks.

        Raises:
            WindowNotFoundError: it is gone.
        """
        return self._judge.window(source)

    def newest_window(self, source: WindowSource) -> Window:
        """Return a window as ``window`` does, and keep it in memory until that of a later window of its run.

        Raises:
            WindowNotFoundError: it is gone.
        """
        return self._judge.newest_window(source)

    def judge(self, source: WindowSource, view: ViewState) -> JudgedWindow:
        """Judge a window under a view's gates, baseline, group and reference; reads the matrix if necessary.

        Raises:
            WindowNotFoundError: the window, its group or the chosen reference does not exist.
            WindowError: the baseline is ``reference`` and there is no reference.
        """
        return self._judge.judge(source, view)

    def rejudge(self, current: JudgedWindow, view: ViewState) -> JudgedWindow:
        """Judge the same measures under other gates or the other frontier."""
        return self._judge.rejudge(current, view)

    def what_if(self, judged: JudgedWindow, fix: Fix) -> WhatIf:
        """Return the step time after a fix; replays the window unless the result is cached.

        Raises:
            WindowNotFoundError: the judged group has no such stage, rank or node.
        """
        return self._predictor.predict(judged, fix)

    def known_what_if(self, judged: JudgedWindow, fix: Fix) -> WhatIf | None:
        """Return the same if it is cached, else None."""
        return self._predictor.known(judged, fix)

    # --- from stages down to operators ----------------------------------------------------------------

    def examine(self, judged: JudgedWindow, report: ReportProgress = lambda _: None) -> Future[Examined]:
        """Find the operator behind a verdict, on a separate thread: one window at a time, because it needs
        memory and takes seconds.

        Args:
            report: called from that thread with the current activity, in words.
        """
        return self._examiner.submit(self._examine, judged, report)

    def cached_findings(self, judged: JudgedWindow) -> Examined | None:
        """Return the findings if they are cached, else None."""
        return self._findings.get(judged.examined_key)

    def _examine(self, judged: JudgedWindow, report: ReportProgress) -> Examined:
        key = judged.examined_key
        found = self._findings.get(key)
        if found is not None:
            return found
        read = self._operator_reader(judged.source.key)
        window, waits = judged.measures.window, judged.diagnosis.wait_stages
        return self._findings.put(key, examined(key, read, window, waits, report))

    def events(self, judged: JudgedWindow, ranks: Collection[int] = ()) -> tuple[Operators, str]:
        """Return the operator events of the judged ranks, else their stages with a note on their limitations.

        Args:
            ranks: whose stages to convert; all of the judged ranks where there are none.

        Raises:
            PacketError: a file of operator events is damaged.
            WindowError: there are none, and the window's stages cannot replace them.
        """
        return events_of(self._operator_reader(judged.source.key)(), judged.measures.window, ranks)

    def _operator_reader(self, key: WindowKey) -> Read:
        return lambda: self.store_of(key.run_id).operators(key.run_id, key.window)
