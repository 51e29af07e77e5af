"""Where the ranks of a running job are, and which of them hold it when it stands still (docs/hangs.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from sfapp.model.manifest import MAX_WORLD_SIZE
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.model.stages import MAX_NAME_LENGTH

LEAST_SECONDS = 30.0
"""Default of the shortest time without a finished step after which a job stands still."""

STANDSTILL_STEPS = 10
"""Number of usual step times without a finished step after which a job stands still."""

MAX_GROUP_RANKS = 256
"""Number of ranks up to which the members of a call's group are reported."""

REPEAT_SECONDS = 30.0
"""Seconds after which an aggregator writes an unchanged standstill again."""

MAX_GROUPS = 64
"""Largest number of groups of ranks in a roll-call; the smallest ones are left out."""

MAX_LOOKS = 64
"""Largest number of processes that one message requests or describes."""

_Name = Annotated[str, Meta(max_length=MAX_NAME_LENGTH)]
_Count = Annotated[int, Meta(ge=0, le=2**62)]
_Rank = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Seconds = Annotated[float, Meta(ge=0, le=1e10)]  # more than `still_ns` can say


class ProcessId(Struct, frozen=True):
    """A process, such that another one on the same machine can look at it.

    Attributes:
        pid: its number. started: when it started, in ticks since the machine started: numbers are reused.
        host: machine, PID namespace and user. Only a process with the same ones can look at it.
    """

    pid: _Count
    started: _Count
    host: Annotated[str, Meta(max_length=64)]


class ProcessLook(Struct, frozen=True):
    """What another process has found in ``/proc`` about a process.

    Attributes:
        state: letter of the kernel for its main thread (``R``, ``S``, ``D``, ``T``, ``Z``, …); empty if the
            process does not exist.
        ticks: CPU time so far, in ticks of the kernel.
    """

    process: ProcessId
    state: Annotated[str, Meta(max_length=1)]
    ticks: _Count = 0


class ReportedPlace(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Where the training thread of a rank is, as its heartbeat reports it.

    Attributes:
        step: number of the current step; between steps, of the next one.
        stage: the stage; empty between two stages of a step, None outside a step.
        still_ns: for how long it has been there.
        call: the call of torch.distributed in which it is, if such calls are followed; else empty.
        group: name of the call's group; empty for the group of all ranks, or if not known.
        group_ranks: its global ranks; empty if not known or too many.
        is_working: whether the process used CPU time on the training thread, or storage, in the last second.
        process: the process; None where the system does not describe it.
    """

    step: _Count
    stage: _Name | None = None
    still_ns: _Count = 0
    call: _Name = ""
    group: _Name = ""
    group_ranks: Annotated[tuple[_Rank, ...], Meta(max_length=MAX_GROUP_RANKS)] = ()
    is_working: bool = False
    process: ProcessId | None = None


@dataclass(frozen=True, slots=True)
class TrainingPlace:
    """Where the training thread is, read by another thread of its process.

    Attributes:
        step, stage, call, group, group_ranks: as in ``ReportedPlace``.
        since_ns: when it got there, by ``time.perf_counter_ns``; None if that is not recorded.
        mark: a value that differs once the thread has moved.
        thread: ``threading.get_ident`` of the training thread.
    """

    step: int
    stage: str | None
    since_ns: int | None
    mark: object
    thread: int
    call: str = ""
    group: str = ""
    group_ranks: tuple[int, ...] = ()


PlaceSource = Callable[[], TrainingPlace | None]
"""Function that returns where the training thread is, on any thread; None if that is not known."""

RankState = Literal[
    "collective",
    "stage",
    "dead",
    "stopped",
    "kernel",
    "lock",
    "silent",
    "silent_node",
    "absent",
    "left",
]

RANK_STATES: Mapping[RankState, str] = {
    "collective": "It reports, and is in a call of torch.distributed.",
    "stage": "It reports, and is in no call of torch.distributed that the recorder knows.",
    "dead": "Its process does not exist any more.",
    "stopped": "Its process is stopped by a signal or a debugger.",
    "kernel": "It sends nothing, and its process waits in the kernel, for a disk or a driver.",
    "lock": "It sends nothing although its process runs: a thread holds the interpreter lock, or its "
    "connection is cut.",
    "silent": "It sends nothing: dead, stopped, holding the interpreter lock, or cut off.",
    "silent_node": "No rank of its node sends anything: the node or its network has failed.",
    "absent": "It has never reported.",
    "left": "Its recorder was closed.",
}
"""Every state of a rank with its meaning."""

if set(RANK_STATES) != set(get_args(RankState)):
    raise AssertionError("RankState and RANK_STATES differ")

_REPORTING: frozenset[RankState] = frozenset({"collective", "stage"})

StandstillKind = Literal["rank", "mismatch", "deadlock", "together"]
"""Kinds of standstills.

``rank``: ranks wait for ranks that wait for none. ``mismatch``: ranks of one group are in different calls.
``deadlock``: ranks wait for each other in calls of different groups. ``together``: all ranks are at the same
place, and none can be named.
"""

Certainty = Literal["shown", "likely", "possible"]
CERTAINTIES: tuple[Certainty, ...] = ("shown", "likely", "possible")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPosition:
    """What an aggregator knows of one rank at one moment.

    Attributes:
        place: from its newest heartbeat; None if that had none, as that of an older sfapp.
        silent_s: seconds since its last message.
        look: the newest result of looking at its process; None if no other process could.
        pipeline_stage: its coordinate ``pp`` in the parallel layout, or its role; None without one.
        newest_step: the newest step that it has finished; None before the first one.
    """

    rank: int
    node_rank: int
    place: ReportedPlace | None
    silent_s: float
    has_left: bool = False
    look: ProcessLook | None = None
    pipeline_stage: str | int | None = None
    newest_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPositions:
    """What an aggregator knows of all ranks of a job.

    Attributes:
        world_size: number of ranks of the job.
        ranks: the ranks that have reported.
        stages: the stages in order.
        newest_step: the newest step that any rank has finished; None before the first one.
        idle_s: seconds since any rank finished a step or, before the first one, since ranks reported.
        usual_step_s: the usual time of a step; 0 if not known.
        steps: number of finished steps that are known, at most some ten.
    """

    world_size: int
    ranks: tuple[RankPosition, ...]
    stages: tuple[str, ...]
    newest_step: int | None
    idle_s: float
    usual_step_s: float = 0.0
    steps: int = 0


class RankGroup(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Ranks in the same state at the same place.

    Attributes:
        spans: first and last rank of each stretch of ranks, ascending.
        holds: whether they hold the job.
        step, stage, call, group: as in ``ReportedPlace``; step and stage are the last known ones.
        has_place: whether the place is known.
        still_s: for how long the first of them has been there, or has not reported.
    """

    spans: Annotated[tuple[tuple[_Rank, _Rank], ...], Meta(min_length=1, max_length=2**16)]
    state: RankState
    holds: bool = False
    has_place: bool = True
    step: _Count = 0
    stage: _Name | None = None
    call: _Name = ""
    group: _Name = ""
    still_s: _Seconds = 0.0

    def __post_init__(self) -> None:
        if any(last < first for first, last in self.spans):
            raise ValueError("a stretch of ranks ends before it begins")

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks, ascending."""
        return tuple(rank for first, last in self.spans for rank in range(first, last + 1))

    @property
    def size(self) -> int:
        """Number of ranks."""
        return sum(last - first + 1 for first, last in self.spans)


def spans_of(ranks: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return the first and last rank of each stretch of ranks."""
    found: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if found and rank == found[-1][1] + 1:
            found[-1] = found[-1][0], rank
        else:
            found.append((rank, rank))
    return tuple(found)


class RollCall(Struct, frozen=True, kw_only=True):
    """Who has arrived at the place where a job stands still, and who has not.

    Attributes:
        kind: how the ranks that hold the job are found.
        certainty: ``shown``: observed on the rank, or all others wait for it in a call that it is not in;
            ``likely``: it is at another place than most; ``possible``: one of several that cannot be
            distinguished.
        step: the step that no rank has finished.
        idle_s: seconds since any rank finished a step. limit_s: the limit that was exceeded.
        groups: all ranks, those that hold the job first, then the largest group; at most ``MAX_GROUPS``.
    """

    kind: StandstillKind
    certainty: Certainty
    step: _Count
    idle_s: _Seconds
    limit_s: _Seconds
    world_size: Annotated[int, Meta(ge=0, le=MAX_WORLD_SIZE)]
    groups: Annotated[tuple[RankGroup, ...], Meta(min_length=1, max_length=MAX_GROUPS)]

    def __post_init__(self) -> None:
        if sum(group.size for group in self.groups) > MAX_WORLD_SIZE:  # A few bytes can claim billions.
            raise ValueError(f"the groups have more than {MAX_WORLD_SIZE:,} ranks")

    @property
    def holders(self) -> tuple[int, ...]:
        """Ranks that hold the job, ascending; empty if none can be named."""
        return tuple(sorted(rank for group in self.held_by for rank in group.ranks))

    @property
    def held_by(self) -> tuple[RankGroup, ...]:
        """The groups that hold the job."""
        return tuple(group for group in self.groups if group.holds)

    @property
    def waiting(self) -> RankGroup | None:
        """The largest group of reporting ranks that wait, or None."""
        waiting = (group for group in self.groups if not group.holds and group.state in _REPORTING)
        return next(waiting, None)

    def after(self, seconds: float) -> RollCall:
        """Return it some seconds later, if nothing has changed meanwhile."""
        groups = tuple(
            msgspec.structs.replace(group, still_s=round(group.still_s + seconds, 1)) for group in self.groups
        )
        return msgspec.structs.replace(self, idle_s=round(self.idle_s + seconds, 1), groups=groups)


_DECODER = msgspec.json.Decoder(RollCall)


def parse_roll_call(text: str) -> RollCall | None:
    """Return the roll-call in JSON; None if the text holds none, which may be damaged."""
    try:
        return _DECODER.decode(text)
    except UNREADABLE_JSON:
        return None
