"""What an aggregator knows now: every rank's newest rows, how long it has been silent, what was lost.

For looking at while the job runs; verdicts come from packets.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sfapp.model.window import RankIdentity
from sfapp.packets.window_rows import FIRST_STAGE_COLUMN
from sfapp.stream.messages import Hello

Rows = npt.NDArray[np.int64]

KEPT_STEPS = 64
"""Newest steps kept of each rank."""

StepSink = Callable[[Hello, Rows], None]
"""Told of every step once, on the aggregator's thread: whose they are, and rows as in ``RankNow.row_NC``."""

_MOST_PEERS = 1000
OTHERS = "others"
"""What faults are counted under once very many peers have sent some."""


@dataclass(frozen=True, slots=True)
class RankNow:
    """One rank at this moment.

    Attributes:
        stages: names of the rows' columns from the third on.
        row_NC: int64 [N, 2 + S], the newest steps: step number, wall ns, then the stages' ns.
        window: number of the window under way, as the rank counts.
        silent_seconds: since anything was heard of it.
        has_left: whether it said goodbye.
        lost_steps: discarded by a full spool, for good.
        duplicates: steps that came again and were dropped.
    """

    run_id: str
    identity: RankIdentity
    world_size: int
    stages: tuple[str, ...]
    row_NC: Rows
    window: int
    silent_seconds: float
    has_left: bool
    lost_steps: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class Now:
    """All ranks at this moment, ascending by run and rank, and what peers sent that could not be used.

    Attributes:
        faults: per peer (address) how many messages were dropped, by kind: ``malformed``, ``oversized``,
            ``newer_version``, ``legacy``.
        last_fault: per peer, what the newest of them was; the newest of all comes last.
        messages: taken so far.
    """

    ranks: tuple[RankNow, ...]
    faults: Mapping[str, Mapping[str, int]]
    last_fault: Mapping[str, str]
    messages: int


class _Newest:
    """A rank's newest rows, in memory that is there from the beginning: rows come one by one, and are looked
    at all together."""

    def __init__(self, columns: int) -> None:
        self._row_KC = np.zeros((KEPT_STEPS, columns), dtype=np.int64)
        self._added = 0

    def add(self, row_NC: Rows) -> None:
        """Some more, in place of the oldest."""
        kept = row_NC[-KEPT_STEPS:]
        first = (self._added + len(row_NC) - len(kept)) % KEPT_STEPS
        until_end = KEPT_STEPS - first
        self._row_KC[first : first + len(kept)] = kept[:until_end]
        self._row_KC[: max(0, len(kept) - until_end)] = kept[until_end:]
        self._added += len(row_NC)

    @property
    def columns(self) -> int:
        return self._row_KC.shape[1]

    def rows(self) -> Rows:
        """A copy, the oldest first."""
        if self._added <= KEPT_STEPS:
            return self._row_KC[: self._added].copy()
        return np.roll(self._row_KC, -(self._added % KEPT_STEPS), axis=0)


@dataclass(slots=True, eq=False)
class _Track:
    """What is kept of one rank."""

    hello: Hello
    heard_at: float
    stages: tuple[str, ...] = ()
    window: int = 0
    newest: _Newest = field(default_factory=lambda: _Newest(FIRST_STAGE_COLUMN))
    role: str | None = None
    has_left: bool = False
    lost_steps: int = 0
    duplicates: int = 0


class Live:
    """Written by the aggregator's thread, read by any.

    Args:
        clock: monotonic seconds.
        on_steps: told of the steps that are added.
    """

    def __init__(self, clock: Callable[[], float], on_steps: StepSink | None = None) -> None:
        self._clock = clock
        self._on_steps = on_steps
        self._lock = threading.Lock()
        self._tracks: dict[tuple[str, int], _Track] = {}
        self._faults: dict[str, Counter[str]] = {}
        self._last_fault: dict[str, str] = {}
        self.messages = 0

    def now(self) -> Now:
        """Everything at this moment."""
        with self._lock:
            tracks = [self._tracks[key] for key in sorted(self._tracks)]
            ranks = tuple(self._rank(track) for track in tracks)
            faults = {peer: dict(counts) for peer, counts in self._faults.items()}
            return Now(ranks, faults, dict(self._last_fault), self.messages)

    def greet(self, hello: Hello) -> None:
        """A rank said who it is."""
        with self._lock:
            key = hello.run_id, hello.rank
            track = self._tracks.get(key)
            if track is None or track.hello.incarnation != hello.incarnation:
                self._tracks[key] = _Track(hello, self._clock())
            else:
                track.hello = hello

    def heard(self, hello: Hello) -> None:
        """Anything came from a rank."""
        track = self._tracks.get((hello.run_id, hello.rank))
        if track is not None:
            track.heard_at = self._clock()

    def open(self, hello: Hello, window: int, stages: tuple[str, ...], role: str | None) -> None:
        """A rank began a window; rows of other stages are not kept beside its."""
        with self._lock:
            track = self._track(hello)
            if track.stages != stages:
                track.newest = _Newest(FIRST_STAGE_COLUMN + len(stages))
            track.window, track.stages, track.role = window, stages, role

    def add(self, hello: Hello, row_NC: Rows) -> None:
        """A rank finished steps."""
        with self._lock:
            newest = self._track(hello).newest
            if row_NC.shape[1] == newest.columns:  # not those of a process that was replaced meanwhile
                newest.add(row_NC)
        if self._on_steps is not None:
            self._on_steps(hello, row_NC)

    def count(self, hello: Hello, *, lost: int = 0, duplicates: int = 0) -> None:
        """Steps of a rank were lost, or came again."""
        with self._lock:
            track = self._track(hello)
            track.lost_steps += lost
            track.duplicates += duplicates

    def leave(self, hello: Hello) -> None:
        """A rank said goodbye."""
        with self._lock:
            self._track(hello).has_left = True

    def forget(self, seconds: float) -> set[str]:
        """Let go of ranks of which nothing was heard for so long; the runs of those that are left."""
        with self._lock:
            since = self._clock() - seconds
            self._tracks = {key: track for key, track in self._tracks.items() if track.heard_at >= since}
            return {run_id for run_id, _ in self._tracks}

    def fault(self, peer: str, kind: str, what: str) -> None:
        """A peer sent something that was dropped."""
        with self._lock:
            if peer not in self._faults and len(self._faults) >= _MOST_PEERS:
                peer = OTHERS
            self._faults.setdefault(peer, Counter())[kind] += 1
            self._last_fault.pop(peer, None)  # the newest of all comes last
            self._last_fault[peer] = what[:300]

    def _track(self, hello: Hello) -> _Track:
        key = hello.run_id, hello.rank
        if key not in self._tracks:
            self._tracks[key] = _Track(hello, self._clock())
        return self._tracks[key]

    def _rank(self, track: _Track) -> RankNow:
        hello = track.hello
        return RankNow(
            run_id=hello.run_id,
            identity=RankIdentity(hello.rank, hello.local_rank, hello.node_rank, hello.hostname, track.role),
            world_size=hello.world_size,
            stages=track.stages,
            row_NC=track.newest.rows(),
            window=track.window,
            silent_seconds=max(0.0, self._clock() - track.heard_at),
            has_left=track.has_left,
            lost_steps=track.lost_steps,
            duplicates=track.duplicates,
        )
