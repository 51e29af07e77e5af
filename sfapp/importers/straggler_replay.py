"""Replay a pipeline-parallel job with other operation durations: what-if analysis.

The method is that of StragglerAnalysis ("Understanding Stragglers in Large Model Training Using What-if
Analysis", §3). An operation starts when its dependencies have ended, a transfer when those of all its members
have. In the ideal job every operation takes the typical duration of its type; slowdowns are relative to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sfapp.errors import TraceError
from sfapp.importers.straggler_operations import Floats, Operation, OperationTable, by_operation

FORWARD, BACKWARD = "forward-compute", "backward-compute"
GATHER, SCATTER, CLIP = "params-all-gather", "grads-reduce-scatter", "optimizer-clip-main-grad"
NORM, EMBEDDING, OPTIMIZER, COLLECT = (
    "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce",
    "optimizer",
    "gc",
)
SENDS = ("forward-send", "forward-recv", "backward-send", "backward-recv")
OVER_REPLICAS = (GATHER, SCATTER, CLIP)
TRANSFERS = (*SENDS, GATHER, SCATTER, NORM, EMBEDDING, CLIP)
KNOWN = (FORWARD, BACKWARD, OPTIMIZER, COLLECT, *TRANSFERS)

_CLOCK_SLACK_S = 1e-2
"""A transfer that ends this long before its last member starts shows a clock error: it counts as 0 s."""


@dataclass(slots=True, eq=False)
class ReplayGraph:
    """Dependencies of each operation (program order and data), and the members of each transfer."""

    waits_for: dict[Operation, list[Operation]]
    members: dict[Operation, tuple[Operation, ...]] = field(default_factory=dict)

    def join(self, operations: Sequence[Operation]) -> None:
        """Mark operations as members of one transfer."""
        for operation in operations:
            self.members[operation] = tuple(operations)

    def chain(self, operations: Sequence[Operation]) -> None:
        """Make each operation wait for the previous one."""
        for earlier, later in pairwise(operations):
            self.waits_for[later].append(earlier)


@dataclass(frozen=True, slots=True, eq=False)
class TraceWhatIf:
    """Slowdowns relative to a job without stragglers.

    Attributes:
        step_s: mean recorded step time.
        replayed_s: mean replayed step time, without time outside operations.
        ideal_s: mean replayed step time without stragglers.
        by_type, by_stage, by_replica: slowdown with recorded durations for the operations of one type,
            pipeline stage or data-parallel rank, and typical durations for all others.
    """

    step_s: float
    replayed_s: float
    ideal_s: float
    by_type: dict[str, float]
    by_stage: dict[int, float]
    by_replica: dict[int, float]

    @property
    def slowdown(self) -> float:
        """Return the slowdown of the whole job."""
        return self.replayed_s / self.ideal_s


def what_if(table: OperationTable) -> TraceWhatIf:
    """Compute the slowdowns of a job with one model chunk per stage and without gradient overlap.

    Raises:
        TraceError: an operation is unknown, or the operations are inconsistent.
    """
    start, graph = _transfers(table)
    end = by_operation(table, table["start_ts"] + table["duration"])
    own = {key: _own(key, start, end, graph) for key in start}
    typical = {kind: _typical(kind, own) for kind in {key[0] for key in own}}
    ideal = {key: np.full_like(values, typical[key[0]]) for key, values in own.items()}
    begin_N = np.min([values.min(axis=1) for values in start.values()], axis=0)
    end_N = np.max([values.max(axis=1) for values in end.values()], axis=0)
    ideal_s = replay(graph, ideal)

    def slowdown(place: int, value: str | int) -> float:
        chosen = {key: own[key] if key[place] == value else ideal[key] for key in own}
        return replay(graph, chosen) / ideal_s

    def of_replica(replica: int) -> float:
        mine = np.arange(next(iter(own.values())).shape[1]) == replica
        return replay(graph, {key: np.where(mine, own[key], ideal[key]) for key in own}) / ideal_s

    stages = sorted({key[2] for key in own})
    return TraceWhatIf(
        step_s=float((end_N - begin_N).mean()),
        replayed_s=replay(graph, own),
        ideal_s=ideal_s,
        by_type={kind: slowdown(0, kind) for kind in sorted(typical)},
        by_stage={stage: slowdown(2, stage) for stage in stages},
        by_replica={replica: of_replica(replica) for replica in range(next(iter(own.values())).shape[1])},
    )


def waits_of_rows(table: OperationTable) -> Floats:
    """Return how long each operation waits for the last member of its transfer to start, s, at most its
    duration; 0 for others. The rest of a transfer's duration is the transfer itself.

    Raises:
        TraceError: as ``what_if``.
    """
    start, graph = _transfers(table)
    rows = by_operation(table, np.arange(len(table["rank"])))
    wait = np.zeros(len(table["rank"]))
    for key in graph.members:
        wait[rows[key].astype(np.int64)] = _last_start(key, start, graph) - start[key]
    return np.clip(wait, 0, table["duration"])


def _transfers(table: OperationTable) -> tuple[dict[Operation, Floats], ReplayGraph]:
    """Return when each operation starts, s, and the dependencies between them."""
    unknown = sorted(set(table.optypes) - set(KNOWN))
    if unknown:
        raise TraceError(f"unknown dependencies of operations {', '.join(unknown)}")
    start = by_operation(table, table["start_ts"])
    return start, replay_graph(start)


def _last_start(key: Operation, start: dict[Operation, Floats], graph: ReplayGraph) -> Floats:
    """Return when the last member of a transfer starts, s."""
    late: Floats = np.maximum.reduce([start[member] for member in graph.members[key]])
    if key[0] in OVER_REPLICAS:
        late = np.broadcast_to(late.max(axis=1, keepdims=True), late.shape)
    return late


def _own(
    key: Operation, start: dict[Operation, Floats], end: dict[Operation, Floats], graph: ReplayGraph
) -> Floats:
    """Return an operation's own duration; a transfer counts from the start of its last member."""
    if key not in graph.members:
        return end[key] - start[key]
    took = end[key] - _last_start(key, start, graph)
    return np.where(took <= -_CLOCK_SLACK_S, 0, took)


def _typical(kind: str, own: dict[Operation, Floats]) -> float:
    """Return the typical duration over steps, stages and replicas: median for transfers, mean for
    computation."""
    values = np.concatenate([values.ravel() for key, values in own.items() if key[0] == kind])
    return float(np.median(values) if kind in TRANSFERS else values.mean())


def replay(graph: ReplayGraph, own: dict[Operation, npt.NDArray[np.float64]]) -> float:
    """Return the mean step time, s, with these durations, up to the end of the last optimizer.

    Raises:
        TraceError: the dependencies form a cycle.
    """
    end: dict[Operation, Floats] = {}
    for group in _in_order(graph, own):
        waits = [end[before] for member in group for before in graph.waits_for[member]]
        begin = np.maximum.reduce(waits) if waits else np.zeros_like(own[group[0]])
        if group[0][0] in OVER_REPLICAS:
            begin = np.broadcast_to(begin.max(axis=1, keepdims=True), begin.shape)
        for member in group:
            end[member] = begin + own[member]
    return float(
        np.max([values.max(axis=1) for key, values in end.items() if key[0] == OPTIMIZER], axis=0).mean()
    )


def _in_order(graph: ReplayGraph, own: dict[Operation, Floats]) -> list[tuple[Operation, ...]]:
    """Return operations in dependency order, with the members of a transfer together."""
    groups = {key: graph.members.get(key, (key,)) for key in own}
    left = {group: sum(len(graph.waits_for[member]) for member in group) for group in groups.values()}
    followers: dict[Operation, list[Operation]] = {key: [] for key in own}
    for later, waits in graph.waits_for.items():
        for earlier in waits:
            followers[earlier].append(later)
    ready = [group for group, count in left.items() if not count]
    order = []
    while ready:
        group = ready.pop()
        order.append(group)
        for later in (later for member in group for later in followers[member]):
            left[groups[later]] -= 1
            if not left[groups[later]]:
                ready.append(groups[later])
    if len(order) != len(left):
        raise TraceError("the dependencies form a cycle: this pipeline schedule is not supported")
    return order


def replay_graph(start: dict[Operation, Floats]) -> ReplayGraph:
    """Return the dependencies within a step, from the order in which replica 0 ran its first step.

    Raises:
        TraceError: an operation that every stage needs is absent.
    """
    graph = ReplayGraph({key: [] for key in start})
    last = max(key[2] for key in start)
    for stage in range(last + 1):
        computes = sorted(
            (key for key in start if key[2] == stage and key[0] in (FORWARD, BACKWARD)),
            key=lambda key: (float(start[key][0, 0]), key[1]),
        )
        ending = [(COLLECT, 0, stage), (NORM, 0, stage), (CLIP, 0, stage), (OPTIMIZER, 0, stage)]
        absent = [key[0] for key in ending if key not in start]
        if absent or not computes:
            raise TraceError(f"stage {stage} has no {', '.join(absent) or FORWARD}")
        graph.chain(computes)
        _pass_on(graph, stage, computes)
        _over_replicas(graph, start, stage, computes, last)
    for stage in range(last):
        for key in start:
            if key[0] == "forward-send" and key[2] == stage:
                _pair(graph, key, ("forward-recv", key[1], stage + 1))
            if key[0] == "backward-recv" and key[2] == stage:
                _pair(graph, key, ("backward-send", key[1], stage + 1))
    graph.join([key for key in ((EMBEDDING, 0, 0), (EMBEDDING, 0, last)) if key in start][: 1 + bool(last)])
    graph.join([(CLIP, 0, stage) for stage in range(last + 1)])
    return graph


def _pair(graph: ReplayGraph, one: Operation, other: Operation) -> None:
    if other not in graph.waits_for:
        raise TraceError(f"{one[0]} {one[1]} of stage {one[2]} has no matching {other[0]}")
    graph.join([one, other])


def _pass_on(graph: ReplayGraph, stage: int, computes: Sequence[Operation]) -> None:
    """Add the dependencies of sends and receives.

    A send waits for its computation and a computation for its receive. A receive is posted when the previous
    computation of its kind has ended. Each kind of send is a stream.
    """
    for way in ("forward", "backward"):
        count = sum(key[0] == f"{way}-compute" for key in computes)
        for number in range(count):
            compute = (f"{way}-compute", number, stage)
            send, receive = (f"{way}-send", number, stage), (f"{way}-recv", number, stage)
            if send in graph.waits_for:
                graph.waits_for[send].append(compute)
            if receive in graph.waits_for:
                graph.waits_for[compute].append(receive)
                if number:
                    graph.waits_for[receive].append((f"{way}-compute", number - 1, stage))
            if number:
                for each in (send, receive):
                    if each in graph.waits_for:
                        graph.waits_for[each].append((each[0], number - 1, stage))
    first = next((place for place, key in enumerate(computes) if key[0] == BACKWARD), 0)
    if first >= 2:
        for kind in ("backward-recv", "backward-send"):
            if (kind, 0, stage) in graph.waits_for:
                graph.waits_for[kind, 0, stage].append(computes[first - 2])


def _over_replicas(
    graph: ReplayGraph, start: dict[Operation, Floats], stage: int, computes: Sequence[Operation], last: int
) -> None:
    """Add parameters before the first computation; gradients, clipping and optimizer after the last."""
    gathers = sorted(key for key in start if key[0] == GATHER and key[2] == stage)
    scatters = sorted(key for key in start if key[0] == SCATTER and key[2] == stage)
    for key in (*gathers, *scatters):
        graph.join([key])
    graph.chain(gathers)
    if gathers:
        graph.waits_for[computes[0]].append(gathers[-1])
    embedding = [(EMBEDDING, 0, stage)] if stage in (0, last) and (EMBEDDING, 0, stage) in start else []
    ending = [(CLIP, 0, stage), (OPTIMIZER, 0, stage)]
    graph.chain([computes[-1], (COLLECT, 0, stage), (NORM, 0, stage), *embedding, *scatters, *ending])
