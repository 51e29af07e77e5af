"""Keep the live state of an aggregator: each rank's newest rows, its silence, and what was lost.

It is for monitoring while the job runs; verdicts come from packets.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from sfapp.model.rank_table import RankIdentity
from sfapp.model.standstill import ProcessId, ProcessLook, ReportedPlace
from sfapp.packets.window_rows import FIRST_STAGE_COLUMN
from sfapp.stream.messages import StreamHello

Rows = npt.NDArray[np.int64]

KEPT_STEPS = 64
"""Largest number of newest steps kept per rank."""

StepCallback = Callable[[StreamHello, Rows], None]
"""Callback on the aggregator's thread, once for every step, with rows as in ``RankSnapshot.row_NC``."""

MOST_BYTES = 1 << 30
"""Largest size of the newest rows and stages of all ranks. Above it, ranks have fewer rows, or none."""

_NAME_BYTES = 64  # of a name in addition to its text
_MAX_PEERS = 1000
_MOST_COUNTED = 2**62  # a rank may claim as many in every message, and a sample holds 64 bits
OTHERS = "others"
"""Faults of further peers are counted together under this name."""


@dataclass(frozen=True, slots=True)
class RankSnapshot:
    """State of one rank at one moment.

    Attributes:
        stages: names of the rows' columns from the third on.
        row_NC: int64 [N, 2 + S], the newest steps: step number, wall ns, then the stages' ns.
        window: number of the open window, by the rank's count.
        silent_seconds: time since the last message.
        has_left: whether its recorder was closed.
        lost_steps: steps that a full send queue discarded for good.
        duplicates: steps that arrived twice; the second copy was dropped.
        idle_seconds: time since its newest step arrived; None before the first one.
        known_seconds: time since its process connected.
        place: where its training thread was at its newest heartbeat; None if that is not known.
        look: the newest result of looking at its process while it is silent; None if no process could.
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
    idle_seconds: float | None = None
    known_seconds: float = 0.0
    place: ReportedPlace | None = None
    look: ProcessLook | None = None


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """State of all ranks at one moment, ascending by run and rank, and the messages that were dropped.

    Attributes:
        faults: per peer (address) the number of dropped messages by kind: ``malformed``, ``oversized``,
            ``newer_version``.
        last_fault: per peer, the reason for the newest one; the newest of all peers comes last.
        messages: number of messages received.
    """

    ranks: tuple[RankSnapshot, ...]
    faults: Mapping[str, Mapping[str, int]]
    last_fault: Mapping[str, str]
    messages: int


class _RowRing:
    """Ring buffer of a rank's newest rows, allocated once because rows arrive one by one.

    Args:
        rows: number of rows that are kept.
    """

    def __init__(self, columns: int, rows: int = 0) -> None:
        self._row_KC = np.zeros((rows, columns), dtype=np.int64)
        self._added = 0

    def add(self, row_NC: Rows) -> None:
        """Add rows, overwriting the oldest."""
        size = len(self._row_KC)
        if not size:
            return
        kept = row_NC[-size:]
        first = (self._added + len(row_NC) - len(kept)) % size
        until_end = size - first
        self._row_KC[first : first + len(kept)] = kept[:until_end]
        self._row_KC[: max(0, len(kept) - until_end)] = kept[until_end:]
        self._added += len(row_NC)

    @property
    def columns(self) -> int:
        return self._row_KC.shape[1]

    def rows(self) -> Rows:
        """Return a copy, oldest row first."""
        size = len(self._row_KC)
        if self._added <= size:
            return self._row_KC[: self._added].copy()
        return np.roll(self._row_KC, -(self._added % size), axis=0)


@dataclass(slots=True, eq=False)
class _RankState:
    """State kept per rank; ``size`` is that of its stages and newest rows, in bytes."""

    hello: StreamHello
    received_at: float
    stages: tuple[str, ...] = ()
    window: int = 0
    newest: _RowRing = field(default_factory=lambda: _RowRing(FIRST_STAGE_COLUMN))
    size: int = 0
    role: str | None = None
    has_left: bool = False
    lost_steps: int = 0
    duplicates: int = 0
    stepped_at: float | None = None
    connected_at: float = 0.0
    coordinates: Mapping[str, int] = field(default_factory=dict)
    place: ReportedPlace | None = None
    look: ProcessLook | None = None


class RankStates:
    """Live state of all ranks. Written by the aggregator's thread; ``snapshot`` is safe on any thread.

    Args:
        clock: monotonic seconds.
        on_steps: called with the steps that are added.
    """

    def __init__(self, clock: Callable[[], float], on_steps: StepCallback | None = None) -> None:
        self._clock = clock
        self._on_steps = on_steps
        self._lock = threading.Lock()
        self._ranks: dict[tuple[str, int], _RankState] = {}
        self._size = 0
        self._faults: dict[str, Counter[str]] = {}
        self._last_fault: dict[str, str] = {}
        self.messages = 0

    def __len__(self) -> int:
        return len(self._ranks)

    def snapshot(self) -> LiveSnapshot:
        """Return the state at this moment."""
        with self._lock:
            states = [self._ranks[key] for key in sorted(self._ranks)]
            ranks = tuple(self._rank_snapshot(state) for state in states)
            faults = {peer: dict(counts) for peer, counts in self._faults.items()}
            return LiveSnapshot(ranks, faults, dict(self._last_fault), self.messages)

    def add_rank(self, hello: StreamHello) -> None:
        """Add a rank, or update its identity. A restarted process starts with empty state."""
        with self._lock:
            key, hello = (hello.run_id, hello.rank), _without_job(hello)
            state = self._ranks.get(key)
            if state is None or state.hello.incarnation != hello.incarnation:
                self._size -= 0 if state is None else state.size
                self._ranks[key] = _RankState(hello, self._clock(), connected_at=self._clock())
            else:
                state.hello = hello

    def touch(self, hello: StreamHello) -> None:
        """Record that a message of a rank has arrived."""
        state = self._ranks.get((hello.run_id, hello.rank))
        if state is not None and state.hello.incarnation == hello.incarnation:
            state.received_at = self._clock()

    def set_place(self, hello: StreamHello, place: ReportedPlace | None) -> None:
        """Record where a rank's training thread is. It reports, so no other process has to look at it."""
        with self._lock:
            if state := self._state(hello):
                state.place, state.look = place, None

    def silent_processes(self, seconds: float) -> dict[ProcessId, tuple[str, int]]:
        """Return run and rank of the processes without a message for ``seconds``, of ranks that have not
        left."""
        since = self._clock() - seconds
        with self._lock:
            return {
                state.place.process: key
                for key, state in self._ranks.items()
                if state.received_at < since
                and not state.has_left
                and state.place is not None
                and state.place.process is not None
            }

    def set_look(self, key: tuple[str, int], look: ProcessLook) -> None:
        """Record what was seen of the process of a silent rank."""
        with self._lock:
            state = self._ranks.get(key)
            if state is not None and state.place is not None and state.place.process == look.process:
                state.look = look

    def open_window(
        self,
        hello: StreamHello,
        window: int,
        stages: tuple[str, ...],
        role: str | None,
        coordinates: Mapping[str, int] | None = None,
    ) -> None:
        """Record that a rank began a window. Rows with other stages are dropped."""
        with self._lock:
            state = self._state(hello)
            if state is None:
                return
            if state.stages != stages:
                self._set_stages(state, stages)
            state.window, state.role = window, role
            state.coordinates = coordinates or {}

    def add_steps(self, hello: StreamHello, row_NC: Rows) -> None:
        """Add steps that a rank finished."""
        with self._lock:
            state = self._state(hello)
            if state is None:
                return
            if row_NC.shape[1] == state.newest.columns:  # otherwise its window began before this state
                state.newest.add(row_NC)
                state.stepped_at = self._clock()
        if self._on_steps is not None:
            self._on_steps(hello, row_NC)

    def count_steps(self, hello: StreamHello, *, lost: int = 0, duplicates: int = 0) -> None:
        """Count steps of a rank that were lost or arrived twice."""
        with self._lock:
            if state := self._state(hello):
                state.lost_steps = min(state.lost_steps + lost, _MOST_COUNTED)
                state.duplicates += duplicates

    def set_left(self, hello: StreamHello) -> None:
        """Record that a rank's recorder was closed."""
        with self._lock:
            if state := self._state(hello):
                state.has_left = True

    def remove_silent(self, seconds: float) -> set[str]:
        """Remove ranks without a message for ``seconds``, and return the runs of the others."""
        with self._lock:
            since = self._clock() - seconds
            self._ranks = {key: state for key, state in self._ranks.items() if state.received_at >= since}
            self._size = sum(state.size for state in self._ranks.values())
            return {run_id for run_id, _ in self._ranks}

    def remove_run(self, run_id: str, ranks: Iterable[int]) -> None:
        """Remove these ranks of a run."""
        with self._lock:
            for rank in ranks:
                state = self._ranks.pop((run_id, rank), None)
                self._size -= 0 if state is None else state.size

    def count_fault(self, peer: str, kind: str, reason: str) -> None:
        """Count a message of a peer that was dropped."""
        with self._lock:
            if peer not in self._faults and len(self._faults) >= _MAX_PEERS:
                peer = OTHERS
            self._faults.setdefault(peer, Counter())[kind] += 1
            self._last_fault.pop(peer, None)  # the newest of all comes last
            self._last_fault[peer] = reason[:300]

    def _state(self, hello: StreamHello) -> _RankState | None:
        """Return the state of a process; None if another one has taken its rank's place."""
        key = hello.run_id, hello.rank
        if key not in self._ranks:
            self._ranks[key] = _RankState(_without_job(hello), self._clock(), connected_at=self._clock())
        state = self._ranks[key]
        return state if state.hello.incarnation == hello.incarnation else None

    def _set_stages(self, state: _RankState, stages: tuple[str, ...]) -> None:
        """Set the stages of a rank's rows, without earlier rows; as many are kept as there is room for."""
        columns = FIRST_STAGE_COLUMN + len(stages)
        names = sum(map(len, stages)) + _NAME_BYTES * len(stages)
        self._size -= state.size
        left = MOST_BYTES - self._size - names
        rows = max(0, min(KEPT_STEPS, left // (8 * columns)))
        state.newest, state.stages = _RowRing(columns, rows), stages if left > 0 else ()
        state.size = 8 * columns * rows + names if left > 0 else 0
        self._size += state.size

    def _rank_snapshot(self, state: _RankState) -> RankSnapshot:
        hello = state.hello
        return RankSnapshot(
            run_id=hello.run_id,
            identity=RankIdentity(
                hello.rank, hello.local_rank, hello.node_rank, hello.hostname, state.role, state.coordinates
            ),
            world_size=hello.world_size,
            stages=state.stages,
            row_NC=state.newest.rows(),
            window=state.window,
            silent_seconds=max(0.0, self._clock() - state.received_at),
            has_left=state.has_left,
            lost_steps=state.lost_steps,
            duplicates=state.duplicates,
            idle_seconds=None if state.stepped_at is None else max(0.0, self._clock() - state.stepped_at),
            known_seconds=max(0.0, self._clock() - state.connected_at),
            place=state.place,
            look=state.look,
        )


def _without_job(hello: StreamHello) -> StreamHello:
    """Return a hello without the fields of any size, which are kept while the rank's stream is."""
    return msgspec.structs.replace(hello, attributes=UNSET, extra={})
