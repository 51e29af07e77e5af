"""Read, measure and judge windows of a store under a view, with caches.

``verdicts`` measures and judges; ``packet_windows`` reads windows from files.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sfapp.accounting import Measures, RunWaits, WindowSpread, pooled_reference, reference_of
from sfapp.model import ALL_RANKS, Diagnosis, Reference, Window
from sfapp.model.view import ViewState, WindowKey
from sfapp.service.memory_cache import MemoryCache
from sfapp.service.verdicts import judge_measures, measure_window

if TYPE_CHECKING:
    from sfapp.store import PacketSource, Store

CACHE_BYTES = 1 << 30
"""Memory for windows and their measures, so that controls respond without reading packets again."""


MOST_RUNNING = 8
"""Number of runs whose newest window is kept for their live pages."""


@dataclass(frozen=True, slots=True)
class WindowSource:
    """The files of a window; another content under the same key is another source.

    Attributes:
        content: SHA-256 of its packets, unused ones included.
        operators: the state of the operator-event files next to them.
    """

    key: WindowKey
    content: tuple[str, ...]
    operators: tuple[str, ...]
    packets: tuple[PacketSource, ...] = field(compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class JudgedWindow:
    """A window of all ranks, the measures of the requested group, and the verdict on that group.

    Attributes:
        reference: the healthy window with which it is compared, reduced to the same group; None without one.
    """

    source: WindowSource
    window: Window
    measures: Measures
    reference: Reference | None
    diagnosis: Diagnosis

    @property
    def examined_key(self) -> Hashable:
        """The key of the operator findings. The wait stages matter only if stages replace operator events,
        which record waiting themselves."""
        waits = () if self.source.operators else self.diagnosis.wait_stages
        return self.source, self.diagnosis.group, waits


class WindowJudge:
    """Judge of the windows of stores, which caches windows and measures. Safe to use from several threads."""

    def __init__(
        self,
        store_of: Callable[[str], Store],
        *,
        cache_bytes: int = CACHE_BYTES,
        measures_reference: bool = False,
    ) -> None:
        """Start with empty caches.

        Args:
            store_of: returns the store that holds a run.
            measures_reference: measure the reference window even if the view needs only its stored part, so
                that its stage medians are always available.
        """
        self._store_of = store_of
        self._measures_reference = measures_reference
        self._windows: MemoryCache[Window] = MemoryCache(cache_bytes // 2, lambda window: 2 * window.nbytes)
        self._newest: MemoryCache[tuple[WindowSource, Window]] = MemoryCache(MOST_RUNNING, lambda _: 1)
        self._measures: MemoryCache[Measures] = MemoryCache(
            cache_bytes // 2, lambda measures: 2 * measures.window.nbytes
        )

    def source(self, key: WindowKey) -> WindowSource:
        """Return the stored files of the window.

        Raises:
            WindowNotFoundError: no such window in the store.
        """
        store = self._store_of(key.run_id)
        packets, set_aside = store.packet_files(key.run_id, key.window)
        content = tuple(packet.sha256 for packet in (*packets, *set_aside))
        return WindowSource(key, content, store.operator_files(packets), tuple(packets))

    def window(self, source: WindowSource) -> Window:
        """Return the window with all its ranks.

        Raises:
            WindowNotFoundError: it is gone.
            StoreError: its packets have changed since they were ingested.
        """
        run_id, number = source.key.run_id, source.key.window
        return self._windows.get(source) or self._windows.put(
            source, self._store_of(run_id).window(run_id, number)
        )

    def newest_window(self, source: WindowSource) -> Window:
        """Return a window as ``window`` does. It is kept until that of a later window of its run, so that a
        page of a running job takes no memory for windows that it no longer shows.

        Raises:
            WindowNotFoundError: it is gone.
            StoreError: its packets have changed since they were ingested.
        """
        run_id, number = source.key.run_id, source.key.window
        known = self._newest.get(run_id)
        if known is None or known[0] != source:
            window = self._windows.get(source) or self._store_of(run_id).window(run_id, number)
            known = self._newest.put(run_id, (source, window))
        return known[1]

    def judge(self, source: WindowSource, view: ViewState) -> JudgedWindow:
        """Judge under a view's gates, baseline, group and reference; reads the matrix if necessary.

        Raises:
            WindowNotFoundError: the window, its group or the chosen reference does not exist.
            WindowError: the baseline is ``reference`` and there is none.
        """
        window = self.window(source)
        reference = self._reference(source.key, view)
        key = _measures_key(source, view, reference)
        measures = self._measures.get(key)
        if measures is None:
            measures = self._measures.put(
                key, measure_window(window, view, reference, self._run_waits(window))
            )
        else:
            measures = self._with_run_waits(key, measures)
        diagnosis = judge_measures(measures, view, reference)
        return JudgedWindow(source, window, measures, reference, diagnosis)

    @staticmethod
    def rejudge(current: JudgedWindow, view: ViewState) -> JudgedWindow:
        """Judge under other gates or the other frontier; fast enough for the event loop."""
        diagnosis = judge_measures(current.measures, view, current.reference)
        return JudgedWindow(current.source, current.window, current.measures, current.reference, diagnosis)

    def _run_waits(self, window: Window) -> RunWaits:
        return self._store_of(window.run_id).run_waits(window.run_id, window.stages)

    def _with_run_waits(self, key: Hashable, measures: Measures) -> Measures:
        """Return cached measures with the waits that the present windows of the run show."""
        current = measures.in_run(self._run_waits(measures.window))
        return current if current is measures else self._measures.put(key, current)

    def _reference(self, key: WindowKey, view: ViewState) -> Reference | None:
        """Return the healthy windows for a view: the chosen one or the run's, reduced to the same group; None
        if the run has none or they lack the group."""
        if view.reference is not None:
            return self._measured_reference(view.reference, view.group)
        stored = self._store_of(key.run_id).reference(key.run_id)
        if stored is None:
            return None
        if view.group != ALL_RANKS:
            parts = [
                self._measured_reference(WindowKey(stored.run_id, window), view.group)
                for window in stored.windows
            ]
            known = [part for part in parts if part is not None]
            spread = WindowSpread(stored.between_ns, stored.between_windows)
            return pooled_reference(known, spread=spread) if known else None
        if not (self._measures_reference or view.baseline == "reference"):
            return stored
        measured = self._measured_reference(WindowKey(stored.run_id, stored.window), ALL_RANKS)
        return None if measured is None else replace(stored, stage_median_ns=measured.stage_median_ns)

    def _measured_reference(self, key: WindowKey, group: str) -> Reference | None:
        """Return the contribution of one window to a reference; None if it lacks the group."""
        source = self.source(key)
        measures_key = (source, group, "cohort_median", None)
        measures = self._measures.get(measures_key)
        if measures is None:
            window = self.window(source)
            if group not in window.groups:
                return None
            measures = self._measures.put(
                measures_key, measure_window(window, ViewState(group=group), None, None)
            )
        return reference_of(self._with_run_waits(measures_key, measures))


def _measures_key(source: WindowSource, view: ViewState, reference: Reference | None) -> Hashable:
    against = None
    if view.baseline == "reference" and reference is not None:
        against = (reference.run_id, reference.window)
    return source, view.group, view.baseline, against
