"""Build the dependency graph of a window: what each event had to wait for (KAIR §III-B, Stage 3).

Nodes are the two points of each event, its start (2·e) and its end (2·e + 1). An edge says that one point
cannot precede another. Of several edges into a point, the one with the latest source is binding: the point
waited for it. Suffixes: E events, P points (P = 2·E), D edges.

A lane continues from step to step, so a rank that begins a step late is traced into the step before.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from sfapp.model import Operators
from sfapp.model.operators import AUTOGRAD, COLLECTIVE, RUNTIME
from sfapp.operators.collectives import Joins

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

STREAM_WAIT_NS = 10_000
"""Longest gap, ns, after which a kernel counts as waiting for a kernel on another stream.

Traces do not record which event a stream waits for, and a device continues within less than this time. The
rule applies only to kernels whose own stream and launch were ready earlier."""

_MAKES_COLLECTIVE = "c10d::"
"""Prefix of the calls by which torch starts a collective, on any backend."""


class Edge(IntEnum):
    """Reason why one point waits for another."""

    OWN = 0
    """An event's end waits for its own start."""
    PROGRAM = 1
    """A start waits for the end of the previous event on the same thread or stream."""
    ENCLOSING = 2
    """The first start inside an event waits for that event's start."""
    ENCLOSED = 3
    """An event's end waits for the end of the last event inside it."""
    LAUNCH = 4
    """A kernel's start waits for its launch, by correlation; a collective that runs on its own thread waits
    for the call that started it, by order."""
    AUTOGRAD = 5
    """A backward node's start waits for its forward operator's end, by sequence number."""
    ARRIVAL = 6
    """A collective's end waits for the last rank's arrival, by group and sequence."""
    DEVICE = 7
    """The end of a synchronising call waits for the device's last end before it."""
    STREAM = 8
    """A kernel's start waits for the end of a kernel on another stream (``STREAM_WAIT_NS``)."""


@dataclass(frozen=True, slots=True, eq=False)
class DependencyGraph:
    """The dependency graph of the events.

    Attributes:
        time_P: int64 ns [P].
        from_D, to_D: int64 [D], points.
        kind_D: int8 [D], an ``Edge``.
        before_P: int64 [P], the binding predecessor, -1 for none.
        kind_P: int8 [P], the binding edge's kind, -1 for none.
        own_ns_E: float64 ns [E], an event's own time: without enclosed events; for a collective, from the
            last arrival; for a synchronising call, from the device's end.
        opaque_E: bool [E], whether an event waits for something outside these events: a collective with
            missing ranks or inconsistent clocks, a synchronising call for a device that was not recorded.
    """

    time_P: Ints
    from_D: Ints
    to_D: Ints
    kind_D: npt.NDArray[np.int8]
    before_P: Ints
    kind_P: npt.NDArray[np.int8]
    own_ns_E: Floats
    opaque_E: npt.NDArray[np.bool_]


def dependency_graph(operators: Operators, joins: Joins) -> DependencyGraph:
    """Build the graph. Events outside any step take part, because they delay the next step."""
    events = np.arange(len(operators), dtype=np.int64)
    time_P = np.stack((operators.start_ns_E, operators.end_ns_E), axis=1).ravel()
    nesting = _nesting(operators)
    waits = _device_waits(operators)
    parts = [
        (Edge.OWN, 2 * events, 2 * events + 1),
        *nesting.edges,
        (Edge.LAUNCH, *_launches(operators)),
        (Edge.LAUNCH, *_handovers(operators)),
        (Edge.AUTOGRAD, *_backward(operators)),
        (Edge.ARRIVAL, 2 * joins.last_J[joins.join_M], 2 * joins.event_M + 1),
        (Edge.DEVICE, *waits),
    ]
    from_D = np.concatenate([part[1] for part in parts])
    to_D = np.concatenate([part[2] for part in parts])
    kind_D = np.concatenate([np.full(len(part[1]), part[0], np.int8) for part in parts])
    possible = time_P[from_D] <= time_P[to_D]
    from_D, to_D, kind_D = from_D[possible], to_D[possible], kind_D[possible]
    before_P, kind_P = _binding(time_P, from_D, to_D, kind_D)
    source, target = _stream_waits(operators, time_P, before_P)
    from_D, to_D = np.r_[from_D, source], np.r_[to_D, target]
    kind_D = np.r_[kind_D, np.full(len(source), Edge.STREAM, np.int8)]
    before_P[target], kind_P[target] = source, Edge.STREAM
    own = operators.duration_ns_E - nesting.inside_E
    joined = joins.event_M
    arrived = np.maximum(operators.start_ns_E[joins.last_J[joins.join_M]], operators.start_ns_E[joined])
    own[joined] = operators.end_ns_E[joined] - arrived
    waiting = waits[1] // 2
    ready = np.maximum(time_P[waits[0]], operators.start_ns_E[waiting])
    own[waiting] = operators.end_ns_E[waiting] - ready
    opaque_E = (operators.category_E == COLLECTIVE) | _waits_for_device(operators)
    opaque_E[joined[joins.conclusive_J[joins.join_M]]] = False
    opaque_E[waiting] = False
    own_ns_E = np.maximum(own, 0).astype(np.float64)
    return DependencyGraph(time_P, from_D, to_D, kind_D, before_P, kind_P, own_ns_E, opaque_E)


def _binding(
    time_P: Ints, from_D: Ints, to_D: Ints, kind_D: npt.NDArray[np.int8]
) -> tuple[Ints, npt.NDArray[np.int8]]:
    """Return each point's latest predecessor; between equal times the edge kind with the higher number."""
    before_P = np.full(len(time_P), -1, np.int64)
    kind_P = np.full(len(time_P), -1, np.int8)
    order = np.lexsort((kind_D, time_P[from_D], to_D))
    last = np.flatnonzero(np.r_[np.diff(to_D[order]) != 0, len(order) > 0])
    binding = order[last]
    before_P[to_D[binding]] = from_D[binding]
    kind_P[to_D[binding]] = kind_D[binding]
    return before_P, kind_P


Edges = tuple[Edge, Ints, Ints]


@dataclass(frozen=True, slots=True, eq=False)
class _Nesting:
    edges: tuple[Edges, ...]
    inside_E: Ints


def _nesting(operators: Operators) -> _Nesting:
    """Return the program order and nesting of every lane, and the time enclosed in each event."""
    order = np.lexsort((-operators.end_ns_E, operators.start_ns_E, operators.lane_E))
    start, end = operators.start_ns_E[order].tolist(), operators.end_ns_E[order].tolist()
    lane, events = operators.lane_E[order].tolist(), order.tolist()
    inside = [0] * len(events)
    pairs: dict[Edge, tuple[list[int], list[int]]] = {
        kind: ([], []) for kind in (Edge.PROGRAM, Edge.ENCLOSING, Edge.ENCLOSED)
    }
    open_: list[int] = []  # positions of the events that enclose the current one
    inner: list[int] = []  # the last position inside each of them; the first entry is for the lane itself
    for place, event in enumerate(events):
        if place == 0 or lane[place] != lane[place - 1]:
            open_, inner = [], [-1]
        # Close events that have ended, or that end too early to enclose this one.
        while open_ and (end[open_[-1]] <= start[place] or end[open_[-1]] < end[place]):
            open_.pop()
            inner.pop()
        before = inner[-1]
        if before >= 0:
            overlaps = end[before] > start[place]
            link, source = Edge.PROGRAM, 2 * events[before] + (0 if overlaps else 1)
        elif open_:
            link, source = Edge.ENCLOSING, 2 * events[open_[-1]]
        else:
            link, source = Edge.PROGRAM, -1
        if source >= 0:
            pairs[link][0].append(source)
            pairs[link][1].append(2 * event)
        if open_:
            done = start[place] if before < 0 else max(start[place], end[before])
            inside[events[open_[-1]]] += end[place] - done
            pairs[Edge.ENCLOSED][0].append(2 * event + 1)
            pairs[Edge.ENCLOSED][1].append(2 * events[open_[-1]] + 1)
        inner[-1] = place
        open_.append(place)
        inner.append(-1)
    edges = tuple((kind, np.asarray(a, np.int64), np.asarray(b, np.int64)) for kind, (a, b) in pairs.items())
    return _Nesting(edges, np.asarray(inside, np.int64))


def _launches(operators: Operators) -> tuple[Ints, Ints]:
    """Return edges from each launch to its device event.

    A kernel may start before its launch returns; it then waited for the start of the call.
    """
    device = operators.is_device_E
    has = operators.correlation_E >= 0
    calls = np.flatnonzero(has & ~device & (operators.category_E == RUNTIME))
    kernels = np.flatnonzero(has & device)
    call, kernel = _paired(operators, operators.correlation_E, calls, kernels)
    return _call_of(operators, call, kernel), 2 * kernel


def _handovers(operators: Operators) -> tuple[Ints, Ints]:
    """Return edges from each call (``c10d::…``) to the collective that another thread runs, as with Gloo.

    Only their order connects the two. They are matched from the last one back, because the call of the first
    collective may precede these events.
    """
    makes = np.asarray([name.startswith(_MAKES_COLLECTIVE) for name in operators.names] or [False], np.bool_)
    is_call_E = makes[operators.name_E] & ~operators.is_device_E
    calls_here = np.unique(operators.lane_E[is_call_E])
    handed_E = (operators.category_E == COLLECTIVE) & ~operators.is_device_E & ~is_call_E
    handed_E &= ~np.isin(operators.lane_E, calls_here)
    events = np.flatnonzero(is_call_E | handed_E)
    order = events[np.lexsort((handed_E[events], operators.start_ns_E[events], operators.rank_E[events]))]
    rank, is_call = operators.rank_E[order].tolist(), is_call_E[order].tolist()
    pairs: list[tuple[int, int]] = []
    waiting: deque[int] = deque()
    for place in range(len(order) - 1, -1, -1):
        if waiting and rank[place] != rank[waiting[0]]:
            waiting.clear()
        if not is_call[place]:
            waiting.append(place)
        elif waiting:
            pairs.append((place, waiting.popleft()))
    call, collective = order[np.asarray(pairs, np.int64).reshape(-1, 2)].T
    return _call_of(operators, call, collective), 2 * collective


def _call_of(operators: Operators, call: Ints, made: Ints) -> Ints:
    """Return the point of each call that the launched event waited for."""
    returned = operators.end_ns_E[call] <= operators.start_ns_E[made]
    return 2 * call + returned


def _backward(operators: Operators) -> tuple[Ints, Ints]:
    """Return edges from the outermost forward operator to its node of the backward pass."""
    has = (operators.sequence_number_E >= 0) & ~operators.is_device_E
    nodes = operators.category_E == AUTOGRAD
    forward, backward = _paired(
        operators, operators.sequence_number_E, np.flatnonzero(has & ~nodes), np.flatnonzero(has & nodes)
    )
    return 2 * forward + 1, 2 * backward


def _paired(operators: Operators, number_E: Ints, sources: Ints, targets: Ints) -> tuple[Ints, Ints]:
    """Match each target with the first source of the same rank and number."""
    if not len(sources) or not len(targets):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rank_E = operators.rank_E
    both = np.r_[sources, targets]
    _, key = np.unique(np.stack((rank_E[both], number_E[both])), axis=1, return_inverse=True)
    key = key.reshape(-1)
    source_key, target_key = key[: len(sources)], key[len(sources) :]
    known, first = np.unique(source_key, return_index=True)  # events ascend, so the first is the earliest
    at = np.minimum(np.searchsorted(known, target_key), len(known) - 1)
    found = known[at] == target_key
    return sources[first[at[found]]].astype(np.int64), targets[found].astype(np.int64)


def _device_waits(operators: Operators) -> tuple[Ints, Ints]:
    """Return edges to the end of each synchronising call from the device's last end before it."""
    calls = np.flatnonzero(_waits_for_device(operators))
    return _latest_end(operators, np.flatnonzero(operators.is_device_E), calls, operators.end_ns_E)


def _waits_for_device(operators: Operators) -> npt.NDArray[np.bool_]:
    """Return whether each event is a call that waits for a device; all vendors' runtimes name it so."""
    waits = np.asarray(["synchronize" in name.lower() for name in operators.names] or [False], np.bool_)
    calls: npt.NDArray[np.bool_] = operators.category_E == RUNTIME
    return calls & waits[operators.name_E]


def _stream_waits(operators: Operators, time_P: Ints, before_P: Ints) -> tuple[Ints, Ints]:
    """Return edges from ends on other streams to device starts that no other edge explains."""
    device = np.flatnonzero(operators.is_device_E)
    before = before_P[2 * device]
    idle = (before < 0) | (time_P[2 * device] - time_P[before] > STREAM_WAIT_NS)
    end, start = _latest_end(operators, device, device[idle], operators.start_ns_E)
    end_event, event = end // 2, start // 2
    near = operators.start_ns_E[event] - operators.end_ns_E[end_event] <= STREAM_WAIT_NS
    near &= operators.lane_E[event] != operators.lane_E[end_event]
    return end[near], 2 * event[near]


def _latest_end(operators: Operators, sources: Ints, targets: Ints, time_E: Ints) -> tuple[Ints, Ints]:
    """Return, for each target, its rank's source with the latest end not after the target's time.

    The result is a pair of points: the source's end and the target's end.
    """
    rank_E = operators.rank_E
    found: list[tuple[Ints, Ints]] = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for rank in np.unique(rank_E[targets]):
        mine = sources[rank_E[sources] == rank]
        wanted = targets[rank_E[targets] == rank]
        mine = mine[np.argsort(operators.end_ns_E[mine], kind="stable")]
        at = np.searchsorted(operators.end_ns_E[mine], time_E[wanted], side="right") - 1
        known = at >= 0
        found.append((2 * mine[at[known]] + 1, 2 * wanted[known] + 1))
    return np.concatenate([pair[0] for pair in found]), np.concatenate([pair[1] for pair in found])
