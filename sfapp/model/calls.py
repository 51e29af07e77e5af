"""The calls of process groups that each rank of a standing job has made, from its Flight Recorder dump."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ROOTED = frozenset(("broadcast", "reduce", "gather", "scatter", "_broadcast_oop", "_reduce_oop"))
"""Collectives with a root, which can complete on one rank before another rank calls them."""


@dataclass(frozen=True, slots=True)
class CallGroup:
    """A process group.

    Attributes:
        name: torch's name of the group, often a number.
        description: the program's name of it (``TENSOR_MODEL_PARALLEL_GROUP``); may be empty.
        ranks: global ranks, in the order of their ranks within the group.
        listed: whether a dump lists the ranks; otherwise they are those that called it.
    """

    name: str
    description: str
    ranks: tuple[int, ...]
    listed: bool = True


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that a rank has made and that has not completed on it.

    Attributes:
        group: position of the group in ``JobCalls.groups``.
        sequence: the group's sequence number of collectives, or of sends and receives.
        kind: ``all_reduce``, ``send``, ``recv`` and so on, without the backend.
        peer: global rank of the other side of a send or receive; None for a collective.
        started: whether the device has started it; False if the dump does not record starts.
        signature: element counts and types, which must be equal on all ranks for the call to complete, as
            must the kind; empty if ranks may differ.
        before: the highest sequence number of each group, by description, when this was called; only for the
            first pending collective of each group.
    """

    group: int
    sequence: int
    kind: str
    peer: int | None = None
    started: bool = False
    signature: str = ""
    before: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RankCalls:
    """The calls of one rank.

    Attributes:
        entries: number of entries in its dump.
        pending: calls that have not completed, in the order of the calls.
        called: by group, the highest sequence number of a collective that it called; no item if unknown.
        completed: by group, the highest sequence number of a collective that completed on it.
    """

    rank: int
    entries: int
    pending: tuple[PendingCall, ...] = ()
    called: Mapping[int, int] = field(default_factory=dict)
    completed: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobCalls:
    """The calls of one job.

    Attributes:
        groups: process groups with more than one rank.
        ranks: by rank; ranks without a dump are absent.
        world: all ranks that the dumps name, sorted.
    """

    groups: tuple[CallGroup, ...]
    ranks: Mapping[int, RankCalls]
    world: tuple[int, ...]
