"""Problems of runs, for every surface (accounting.md §18)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from sfapp.accounting.problems import MOST_LOCATED, by_cost, problems_of
from sfapp.errors import DamagedStoreError, WindowNotFoundError
from sfapp.incidents import IncidentState
from sfapp.model import Diagnosis, Window
from sfapp.model.onsets import Episode
from sfapp.model.parse import parse_time
from sfapp.model.problems import (
    Problem,
    ProblemMark,
    ProblemStatus,
    TimedDiagnosis,
    needs_attention,
    problem_status,
)
from sfapp.model.view import WindowKey
from sfapp.service.memory_cache import MemoryCache
from sfapp.service.onsets import EpisodeLocator, located_by
from sfapp.service.standstills import standstills

if TYPE_CHECKING:
    from sfapp.store import Store
    from sfapp.store.verdict_rows import EncodedVerdict, Key

MOST_WINDOWS = 2_000
"""Maximum number of windows of a run that are searched for problems: the latest that need attention,
lack ranks, or are next to one that needs attention."""

ENDS = 2
"""Number of episodes of a problem that show where it began and ended: the first and the last."""

_READ_TOGETHER = 10_000
"""Maximum number of verdicts, of several runs, that are read and kept at a time."""

_LOCATED_AT_ONCE = 64
"""Maximum number of runs whose packets are read at the same time."""

_CACHED_RUNS = 5_000
_CACHED_VERDICT_BYTES = 1 << 28
"""Text of verdicts that is kept: about 20,000 of them."""


@dataclass(frozen=True, slots=True)
class ListedProblem:
    """A problem with the decisions of users.

    Attributes:
        is_stale: whether it had not ended when recording stopped, at the time of the list.
    """

    problem: Problem
    status: ProblemStatus
    mark: ProblemMark | None = None
    is_stale: bool = False

    @property
    def needs_attention(self) -> bool:
        """Whether it needs attention, that is, is neither muted nor fixed."""
        return needs_attention(self.status)

    def document(self) -> dict[str, Any]:
        """Return it as plain data for JSON, times as RFC 3339."""
        return {
            **msgspec.to_builtins(self.problem),
            "status": self.status,
            "mark": msgspec.to_builtins(self.mark),
        }


def listed(
    problems: Iterable[Problem], state: IncidentState | None = None, now: datetime | None = None
) -> list[ListedProblem]:
    """Return problems with their status, in the same order."""
    moment = now or datetime.now(UTC)
    found = []
    for problem in problems:
        mark = None if state is None else state.mark(problem)
        status = problem_status(problem, mark, moment)
        found.append(ListedProblem(problem, status, mark, problem.is_stale(moment)))
    return found


def episodes_in(problems: Iterable[Problem]) -> list[Episode]:
    """Return the episodes of some problems, the earliest first."""
    every = [episode for problem in problems for episode in problem.episodes]
    return sorted(every, key=lambda one: (one.run_id, one.first_window, -one.effect))


def problems_of_windows(windows: Sequence[Window], diagnoses: Sequence[Diagnosis]) -> list[Problem]:
    """Return the problems of the runs of some windows, the costliest first.

    Args:
        diagnoses: of these windows, sorted by run and window.
    """
    by_key = {WindowKey(window.run_id, window.number): window for window in windows}

    def read(run_id: str, number: int) -> Window:
        return by_key[WindowKey(run_id, number)]

    found: list[Problem] = []
    for run_id, group in groupby(diagnoses, key=lambda diagnosis: diagnosis.run_id):
        verdicts = [_timed(diagnosis, read(run_id, diagnosis.window)) for diagnosis in group]
        numbers = [one.diagnosis.window for one in verdicts]
        found += problems_of(
            _telling(verdicts),
            numbers,
            located_by(partial(read, run_id)),
            lambda one: read(one.run_id, one.window).ranks,
        )
    return by_cost(found)


def _telling(verdicts: Sequence[TimedDiagnosis]) -> list[TimedDiagnosis]:
    """Return the verdicts from which a run's problems are derived: those of ``Store.telling_windows``."""
    slow = [False, *(one.diagnosis.needs_attention for one in verdicts), False]
    found = [
        one for place, one in enumerate(verdicts) if any(slow[place : place + 3]) or one.diagnosis.lacks_data
    ]
    return found[-MOST_WINDOWS:]


def _timed(diagnosis: Diagnosis, window: Window) -> TimedDiagnosis:
    manifest = window.manifest
    return TimedDiagnosis(diagnosis, parse_time(manifest.started_at), parse_time(manifest.ended_at))


@dataclass(frozen=True, slots=True)
class _RunFacts:
    """That from which a run's problems are derived.

    Attributes:
        verdicts: on its telling windows, ascending. numbers: of all its windows, ascending.
        standstills: as problems.
    """

    run_id: str
    verdicts: list[EncodedVerdict]
    numbers: list[int]
    standstills: list[Problem]


def _portions(run_ids: Sequence[str], telling: Mapping[str, Sized]) -> Iterator[list[str]]:
    """Yield runs in portions whose verdicts are read together, at most about ``_READ_TOGETHER`` of them."""
    portion: list[str] = []
    size = 0
    for run_id in run_ids:
        added = len(telling.get(run_id, ()))
        if portion and size + added > _READ_TOGETHER:
            yield portion
            portion, size = [], 0
        portion.append(run_id)
        size += added
    if portion:
        yield portion


class StoredProblems:
    """The problems of stored runs: all ranks, default thresholds. Cached until the store changes."""

    def __init__(self, store_of: Callable[[str], Store], locator: EpisodeLocator) -> None:
        """Start with an empty cache.

        Args:
            store_of: returns the store that holds a run. locator: finds where problems began and ended.
        """
        self._store_of = store_of
        self._locator = locator
        self._runs: MemoryCache[tuple[int, list[Problem]]] = MemoryCache(_CACHED_RUNS, lambda _: 1)
        self._verdicts: MemoryCache[tuple[int, EncodedVerdict]] = MemoryCache(
            _CACHED_VERDICT_BYTES, lambda known: len(known[1].text)
        )
        self._deriving, self._reading = threading.Lock(), threading.Lock()
        self._locating = tuple(threading.Lock() for _ in range(_LOCATED_AT_ONCE))

    def of_run(self, run_id: str, locates: bool = True, each: int = MOST_LOCATED) -> list[Problem]:
        """Return the problems of a run, as ``of_runs`` does."""
        return self.of_runs([run_id], locates, each)

    def of_window(self, run_id: str, window: int) -> list[Problem]:
        """Return the problems that a window belongs to; none without such a window. Reads their packets."""
        return self._located(run_id, lambda one: window in one.windows)

    def of_runs(
        self, run_ids: Iterable[str], locates: bool = False, each: int = MOST_LOCATED
    ) -> list[Problem]:
        """Return the problems of some runs: standstills that last first, then missing data, then by
        rank-hours lost.

        Args:
            locates: whether packets are read for the steps at which episodes began and ended, and for what
                late ranks share; otherwise steps are known to the nearest window only, which is fast.
            each: maximum number of episodes of one problem for which they are read: ``ENDS`` or
                ``MOST_LOCATED``.
        """
        asked = each if locates else 0
        found, missing = self._known_of(((run_id, self._store_of(run_id)) for run_id in run_ids), asked)
        if missing:
            # Not by the page and by the thread that follows the packets at the same time. Packets are slow:
            # where they are read, others wait for one run only.
            with nullcontext() if locates else self._deriving:
                more, missing = self._known_of(missing, asked)
                found += more + self._derived(missing, asked)
        return by_cost(found)

    def _known_of(
        self, runs: Iterable[tuple[str, Store]], asked: int
    ) -> tuple[list[Problem], list[tuple[str, Store]]]:
        """Return the cached problems of some runs of stores, and the runs of which there are none."""
        found: list[Problem] = []
        missing: list[tuple[str, Store]] = []
        for run_id, store in runs:
            known = self._known(store, run_id, asked)
            if known is None:
                missing.append((run_id, store))
            else:
                found += known
        return found, missing

    def _derived(self, runs: Iterable[tuple[str, Store]], asked: int) -> list[Problem]:
        """Derive and cache the problems of some runs."""
        by_store: dict[int, tuple[Store, list[str]]] = {}
        for run_id, store in runs:
            by_store.setdefault(id(store), (store, []))[1].append(run_id)
        found: list[Problem] = []
        for store, of_store in by_store.values():
            generation = store.generation
            for facts in self._facts(store, of_store):
                with self._turn_of(facts.run_id) if asked else nullcontext():
                    problems = self._known(store, facts.run_id, asked)  # Another request may have found them.
                    if problems is None:
                        problems = self._problems(facts, asked > 0, each=asked)
                        self._runs.put((facts.run_id, id(store), asked), (generation, problems))
                found += problems
        return found

    def _turn_of(self, run_id: str) -> threading.Lock:
        """Return the lock for reading the packets of a run, which it may share with others."""
        return self._locating[hash(run_id) % len(self._locating)]

    def _known(self, store: Store, run_id: str, asked: int) -> list[Problem] | None:
        for located in (MOST_LOCATED, ENDS, 0):
            known = self._runs.get((run_id, id(store), located)) if located >= asked else None
            if known is not None and known[0] == store.generation:
                return known[1]
        return None

    def _located(self, run_id: str, is_wanted: Callable[[Problem], bool]) -> list[Problem]:
        (facts,) = self._facts(self._store_of(run_id), [run_id])
        return by_cost(self._problems(facts, True, is_wanted))

    def _problems(
        self,
        facts: _RunFacts,
        locates: bool,
        is_wanted: Callable[[Problem], bool] = lambda problem: True,
        each: int = MOST_LOCATED,
    ) -> list[Problem]:
        locator = self._locator if locates else None
        try:
            verdicts = [verdict.decode() for verdict in facts.verdicts]
        except DamagedStoreError:
            self._verdicts.clear()  # The store is built again, where those without damage have the same hash.
            raise
        found = problems_of(
            verdicts,
            facts.numbers,
            None if locator is None else locator.locate,
            None if locator is None else locator.ranks_of,
            is_wanted,
            each,
        )
        return [*filter(is_wanted, facts.standstills), *found]

    def _facts(self, store: Store, run_ids: Sequence[str]) -> Iterator[_RunFacts]:
        """Yield the facts of some runs of a store, in order.

        The store is asked for many runs at a time: each question takes some milliseconds, and a fleet has
        hundreds of runs with problems.
        """
        telling = store.telling_windows(run_ids, MOST_WINDOWS)
        numbers = store.window_numbers(run_ids)
        stood_still = store.runs_that_stood_still()
        for portion in _portions(run_ids, telling):
            verdicts = self._verdicts_on(store, {run: telling.get(run, {}) for run in portion})
            for run_id in portion:
                still = standstills(store, run_id) if run_id in stood_still else []
                yield _RunFacts(
                    run_id, verdicts[run_id], numbers.get(run_id, []), [one.problem() for one in still]
                )

    def _verdicts_on(
        self, store: Store, telling: Mapping[str, Mapping[int, int]]
    ) -> dict[str, list[EncodedVerdict]]:
        """Return verdicts by run. Unchanged ones are not read again, because a running job adds windows one
        by one.

        Args:
            telling: windows by run, each with a hash of its verdict.
        """
        with self._reading:  # Not by the page and by the thread that follows the packets at the same time.
            kept: dict[Key, EncodedVerdict | None] = {}
            for run_id, windows in telling.items():
                for number, verdict_hash in windows.items():
                    known = self._verdicts.get((id(store), run_id, number))
                    is_current = known is not None and known[0] == verdict_hash
                    kept[run_id, number] = known[1] if known is not None and is_current else None
            for one in store.verdicts([key for key, verdict in kept.items() if verdict is None]):
                kept[one.key] = one
                run_id, number = one.key
                self._verdicts.put((id(store), run_id, number), (telling[run_id][number], one))
        found: dict[str, list[EncodedVerdict]] = {run_id: [] for run_id in telling}
        for (run_id, _), verdict in kept.items():
            if verdict is not None:
                found[run_id].append(verdict)
        return found

    def named(self, problem_id: str, run_ids: Iterable[str]) -> Problem:
        """Return the problem with this id, or with this id among its other ids.

        Raises:
            WindowNotFoundError: there is none.
        """
        every = self.of_runs(run_ids)
        matches = [one for one in every if one.id == problem_id]
        matches += [one for one in every if problem_id in one.other_ids]
        if matches:
            run_id, found_id = matches[0].run_id, matches[0].id
            found = self._located(run_id, lambda one: one.id == found_id)
            if found:  # Its windows may have changed since the first look.
                return found[0]
        raise WindowNotFoundError(
            f"there is no problem {problem_id!r}: its windows may have been removed, or judged again"
        )
