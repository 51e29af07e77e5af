"""Where in a run its effects began and ended: its episodes, for every surface (accounting.md §17)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress

from sfapp.accounting.episodes import EpisodeWindows, episodes_of
from sfapp.accounting.onset import located
from sfapp.errors import SfappError, WindowNotFoundError
from sfapp.model import Diagnosis, Window
from sfapp.model.onsets import Episode
from sfapp.model.view import WindowKey
from sfapp.service.judging import WindowJudge, WindowSource
from sfapp.service.memory_cache import MemoryCache
from sfapp.store import Store

MOST_LOCATED = 20
"""Episodes of a run, the latest ones, of which windows are read; of the others whole windows are given."""

MOST_WINDOWS = 2_000
"""Windows of a stored run in which episodes are sought: the latest that need attention or are next to one."""

_CACHED_EPISODES = 10_000
_CACHED_RUNS = 200

ReadWindow = Callable[[int], Window]
"""Returns a window of the run by its number; raises ``SfappError`` where it cannot be read."""


def run_episodes(diagnoses: Sequence[Diagnosis], read: ReadWindow) -> list[Episode]:
    """Return the episodes of one run, the earliest first.

    A window that cannot be read widens the intervals beside it and nothing else.

    Args:
        diagnoses: of its windows in order, under the same gates. read: at most four windows of an episode.
    """
    return _latest_located(diagnoses, located_by(read))


def located_by(read: ReadWindow) -> Callable[[EpisodeWindows], Episode]:
    """Return what tells where an episode began and ended; it reads at most four windows."""
    return lambda found: _located(found, _read(found, read))


def window_episodes(diagnoses: Sequence[Diagnosis], window: int, read: ReadWindow) -> list[Episode]:
    """Return those of the episodes of one run that a window belongs to; see ``run_episodes``."""
    return [located_by(read)(found) for found in _with_window(diagnoses, window)]


def _with_window(diagnoses: Sequence[Diagnosis], window: int) -> list[EpisodeWindows]:
    return [one for one in episodes_of(diagnoses) if any(seen.window == window for seen in one.seen)]


def _latest_located(
    diagnoses: Sequence[Diagnosis], locate: Callable[[EpisodeWindows], Episode]
) -> list[Episode]:
    found = episodes_of(diagnoses)
    early = len(found) - MOST_LOCATED
    return [locate(one) if place >= early else one.episode() for place, one in enumerate(found)]


def _read(found: EpisodeWindows, read: ReadWindow) -> dict[int, Window]:
    windows = {}
    for edge in found.edges:
        with suppress(SfappError):
            windows[edge.window] = read(edge.window)
    return windows


def _located(found: EpisodeWindows, windows: Mapping[int, Window]) -> Episode:
    try:
        return located(found, windows)
    except SfappError:  # The packets hold other stages or ranks than the verdict says.
        return found.episode()


class StoredEpisodes:
    """The episodes of stored runs: all ranks, default thresholds. Cached by the content of their windows."""

    def __init__(self, store_of: Callable[[str], Store], judge: WindowJudge) -> None:
        """Start with an empty cache.

        Args:
            store_of: returns the store that holds a run. judge: reads and keeps windows.
        """
        self._store_of = store_of
        self._judge = judge
        self._runs: MemoryCache[list[Episode]] = MemoryCache(_CACHED_RUNS, lambda _: 1)
        self._episodes: MemoryCache[Episode] = MemoryCache(_CACHED_EPISODES, lambda _: 1)

    def of_run(self, run_id: str) -> list[Episode]:
        """Return the episodes of a run, the earliest first; none without such a run. Reads packets."""
        store = self._store_of(run_id)
        key = (run_id, id(store), store.generation)
        known = self._runs.get(key)
        if known is not None:
            return known
        return self._runs.put(key, _latest_located(_telling(store, run_id), self.locate))

    def of_window(self, run_id: str, window: int) -> list[Episode]:
        """Return those that a window belongs to; none without such a window."""
        diagnoses = _telling(self._store_of(run_id), run_id)
        return [self.locate(found) for found in _with_window(diagnoses, window)]

    def locate(self, found: EpisodeWindows) -> Episode:
        """Return an episode with the steps that it began and ended at. Reads at most four packets."""
        sources: dict[int, WindowSource] = {}
        for edge in found.edges:
            with suppress(SfappError):
                sources[edge.window] = self._judge.source(WindowKey(edge.run_id, edge.window))
        key = (_depends_on(found), tuple(sources.values()))
        known = self._episodes.get(key)
        if known is not None:
            return known
        windows = _read(found, lambda number: self._window(sources, number))
        episode = _located(found, windows)
        # A packet that cannot be read now may be back later with the same content.
        return self._episodes.put(key, episode) if len(windows) == len(found.edges) else episode

    def _window(self, sources: dict[int, WindowSource], number: int) -> Window:
        if number not in sources:
            raise WindowNotFoundError(f"window {number} is no longer in the store")
        return self._judge.window(sources[number])


def _telling(store: Store, run_id: str) -> list[Diagnosis]:
    return [one.diagnosis for one in store.telling_verdicts(run_id, MOST_WINDOWS)]


def _depends_on(found: EpisodeWindows) -> Hashable:
    """Return what an episode depends on beside the content of the windows that are read for it."""
    reference = found.first.reference
    return (
        found.first.run_id,
        tuple(one.window for one in found.seen),
        found.findings,
        found.ranks,
        tuple((edge.window, edge.sync_boundary, edge.first_step, edge.last_step) for edge in found.edges),
        None if reference is None else (reference.run_id, reference.windows, reference.step_time_ns),
    )
