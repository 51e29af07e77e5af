"""Find where in a run an effect began and ended, from the packets at its edges (accounting.md §17)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress

from sfapp.accounting.episodes import EpisodeWindows
from sfapp.accounting.onset import located
from sfapp.errors import SfappError, WindowNotFoundError
from sfapp.model import Diagnosis, RankTable, Window
from sfapp.model.onsets import Episode
from sfapp.model.view import WindowKey
from sfapp.service.judging import WindowJudge, WindowSource
from sfapp.service.memory_cache import MemoryCache

_CACHED_EPISODES = 10_000

ReadWindow = Callable[[int], Window]
"""Function that returns a window of the run by its number; raises ``SfappError`` if it cannot be read."""


def located_by(read: ReadWindow) -> Callable[[EpisodeWindows], Episode]:
    """Return a function that finds where an episode began and ended; it reads at most four windows."""
    return lambda found: _located(found, _read(found, read))


def _read(found: EpisodeWindows, read: ReadWindow) -> dict[int, Window]:
    windows = {}
    for edge in found.edges:
        with suppress(SfappError):
            windows[edge.window] = read(edge.window)
    return windows


def _located(found: EpisodeWindows, windows: Mapping[int, Window]) -> Episode:
    try:
        return located(found, windows)
    except SfappError:  # The packets have other stages or ranks than the verdict.
        return found.episode()


class EpisodeLocator:
    """Locator of the beginnings and ends of episodes of stored runs, cached by the content of their
    windows."""

    def __init__(self, judge: WindowJudge) -> None:
        """Start with an empty cache; ``judge`` reads and keeps windows."""
        self._judge = judge
        self._episodes: MemoryCache[Episode] = MemoryCache(_CACHED_EPISODES, lambda _: 1)

    def locate(self, found: EpisodeWindows) -> Episode:
        """Return an episode with the steps at which it began and ended. Reads at most four packets."""
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
        # A packet that cannot be read now may be readable later with the same content.
        return self._episodes.put(key, episode) if len(windows) == len(found.edges) else episode

    def ranks_of(self, diagnosis: Diagnosis) -> RankTable | None:
        """Return the ranks of the window of a verdict; None if its packet cannot be read."""
        try:
            key = WindowKey(diagnosis.run_id, diagnosis.window)
            return self._judge.window(self._judge.source(key)).ranks
        except SfappError:
            return None

    def _window(self, sources: dict[int, WindowSource], number: int) -> Window:
        if number not in sources:
            raise WindowNotFoundError(f"window {number} is no longer in the store")
        return self._judge.window(sources[number])


def _depends_on(found: EpisodeWindows) -> Hashable:
    """Return the key of an episode, without the content of the windows that are read for it."""
    reference = found.first.reference
    return (
        found.first.run_id,
        tuple(one.window for one in found.seen),
        found.findings,
        found.ranks,
        tuple((edge.window, edge.sync_boundary, edge.first_step, edge.last_step) for edge in found.edges),
        None if reference is None else (reference.run_id, reference.windows, reference.step_time_ns),
    )
