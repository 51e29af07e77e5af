"""Rank causes and describe each: what, where, how much, and the path to its latest victim."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfapp.model import CATEGORIES, Operators
from sfapp.model.operators import COLLECTIVE, COPY, DATA
from sfapp.operators.collectives import Joins
from sfapp.operators.dependency_graph import DependencyGraph, Edge

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

Kind = Literal["operator", "edge", "transfer", "extra", "before"]
Nature = Literal["compute", "communication", "input", "idle", "unknown"]

KINDS: tuple[Kind, ...] = ("operator", "edge", "transfer", "extra", "before")
OPERATOR, EDGE, TRANSFER, EXTRA, BEFORE = range(len(KINDS))

LONGEST_PATH = 64
"""Events kept of a path: the cause and the events nearest to the victim."""

PATHS = 50
"""Number of causes that carry their path; users rarely look at those below."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """One event between a cause and its victim.

    Attributes:
        late_ns: lateness against the cohort at the point on the path; NaN without a cohort.
        via: why it waited for the previous event, an ``Edge`` in lower case; empty for the first event.
    """

    event: int
    rank: int
    name: str
    category: str
    late_ns: float
    via: str


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause of delay, over all steps in which it occurred.

    Attributes:
        kind: ``operator``: it took abnormally long; ``edge``: it started late although its predecessor was on
            time; ``transfer``: a collective took long after all ranks had arrived; ``extra``: it has no
            counterpart on most other ranks; ``before``: the rank was already late at the first event.
        nature: ``compute``, ``communication``, ``input`` (data loading), ``idle`` (nothing recorded ran) or
            ``unknown``.
        rank: the rank of the operator; for a transfer the rank that arrived last.
        name: the operator; for an edge the operator that started late.
        event: position of the most expensive occurrence among the events.
        source, source_rank: for an edge, the operator that was on time; else None.
        delay_ns: total delay; worst_ns: the largest single delay.
        times: number of occurrences.
        steps: the steps in which it occurred, ascending.
        symptoms: number of late or slow events it caused, itself included.
        holds_up: whether anything waited for it: another event was late because of it, or it ended the rank's
            step. An operator that nothing waited for costs no time.
        path: events from the cause to the latest victim; empty beyond the first ``PATHS`` causes.
    """

    kind: Kind
    nature: Nature
    rank: int
    name: str
    event: int
    source: str | None
    source_rank: int | None
    delay_ns: float
    worst_ns: float
    times: int
    steps: tuple[int, ...]
    symptoms: int
    holds_up: bool
    path: tuple[PathStep, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CauseEvidence:
    """The F symptoms with their causes (``sfapp.operators.blame``).

    Attributes:
        event_F: the symptom; itself_F: whether it took long itself.
        kind_F: index into ``KINDS``; place_F: an event, for an edge a point, for a transfer a collective.
        delay_F: ns.
    """

    operators: Operators
    joins: Joins
    graph: DependencyGraph
    late_P: Floats
    prior_P: Ints
    event_F: Ints
    itself_F: npt.NDArray[np.bool_]
    kind_F: Ints
    place_F: Ints
    delay_F: Floats

    def subject(self, kind: int, place: int) -> int:
        """Return the event that a cause is named after."""
        if kind == EDGE:
            return place // 2
        return int(self.joins.last_J[place]) if kind == TRANSFER else place

    def source(self, kind: int, place: int) -> int | None:
        """Return the event that was on time, for an edge."""
        return int(self.prior_P[place]) // 2 if kind == EDGE else None


@dataclass(slots=True)
class _CauseBuilder:
    """A cause while its symptoms are being collected."""

    kind: int
    subject: int
    source: int | None
    delay_ns: float = 0.0
    worst_ns: float = 0.0
    times: int = 0
    symptoms: int = 0
    holds_up: bool = False
    victim: int = -1


def ranked(evidence: CauseEvidence) -> tuple[Cause, ...]:
    """Return each (kind, rank, names) once: causes that delayed other events first, then by cost in time."""
    operators = evidence.operators
    last_E = _ends_its_step(operators)
    found: dict[tuple[int, int, int, int], _CauseBuilder] = {}
    steps: defaultdict[tuple[int, int, int, int], set[int]] = defaultdict(set)
    pairs, group_F = np.unique(np.stack((evidence.kind_F, evidence.place_F)), axis=1, return_inverse=True)
    order = np.argsort(group_F.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(group_F.reshape(-1), minlength=pairs.shape[1]))
    for index, (kind, place) in enumerate(pairs.T.tolist()):
        members = order[(ends[index - 1] if index else 0) : ends[index]]
        subject, source = evidence.subject(kind, place), evidence.source(kind, place)
        key = (
            kind,
            operators.lane(subject).rank,
            int(operators.name_E[subject]),
            -1 if source is None else int(operators.name_E[source]),
        )
        cause = found.setdefault(key, _CauseBuilder(kind, subject, source))
        _add(cause, evidence, members, subject, bool(last_E[subject]))
        steps[key].add(int(operators.step_E[subject]))
    by_time = sorted(found, key=lambda key: (not found[key].holds_up, -found[key].delay_ns, key))
    return tuple(
        _cause(evidence, found[key], tuple(sorted(steps[key])), with_path=place < PATHS)
        for place, key in enumerate(by_time)
    )


def _add(cause: _CauseBuilder, evidence: CauseEvidence, members: Ints, subject: int, last: bool) -> None:
    """Add the symptoms of one place to its cause."""
    delay = float(evidence.delay_F[members].max())
    cause.delay_ns += delay
    cause.times += 1
    cause.symptoms += len(members)
    victims = members[~evidence.itself_F[members]]
    cause.holds_up |= len(victims) > 0 or last or cause.kind == TRANSFER
    if delay > cause.worst_ns:
        cause.worst_ns, cause.subject = delay, subject
        cause.source = evidence.source(cause.kind, int(evidence.place_F[members[0]]))
        late = evidence.late_P[2 * evidence.event_F[victims]]
        cause.victim = int(evidence.event_F[victims[int(late.argmax())]]) if len(victims) else subject


def _cause(evidence: CauseEvidence, found: _CauseBuilder, steps: tuple[int, ...], with_path: bool) -> Cause:
    operators = evidence.operators
    source = None if found.source is None else operators.lane(found.source).rank
    return Cause(
        kind=KINDS[found.kind],
        nature=_nature(operators, found),
        rank=operators.lane(found.subject).rank,
        name=operators.name(found.subject),
        event=found.subject,
        source=None if found.source is None else operators.name(found.source),
        source_rank=source,
        delay_ns=found.delay_ns,
        worst_ns=found.worst_ns,
        times=found.times,
        steps=steps,
        symptoms=found.symptoms,
        holds_up=found.holds_up,
        path=_path(evidence, found) if with_path else (),
    )


def _nature(operators: Operators, found: _CauseBuilder) -> Nature:
    categories = {int(operators.category_E[found.subject])}
    if found.source is not None:
        categories.add(int(operators.category_E[found.source]))
    if found.kind == BEFORE:
        return "unknown"
    if found.kind == TRANSFER or categories & {COLLECTIVE, COPY}:
        return "communication"
    if found.kind == EDGE:
        return "idle"
    return "input" if DATA in categories else "compute"


def _path(evidence: CauseEvidence, found: _CauseBuilder) -> tuple[PathStep, ...]:
    """Return the path from the cause's event (for an edge, the event that was on time) to its victim."""
    graph, operators = evidence.graph, evidence.operators
    first = found.subject if found.source is None else found.source
    point, seen = 2 * found.victim, [found.victim]
    points, vias = [point], [""]
    visited = {point}
    while seen[-1] != first:
        kind = int(graph.kind_P[point])
        point = int(graph.before_P[point])
        if point < 0 or point in visited:
            break
        visited.add(point)
        if point // 2 != seen[-1]:
            vias[-1] = Edge(kind).name.lower()
            seen.append(point // 2)
            points.append(point)
            vias.append("")
    path = [
        PathStep(
            event=event,
            rank=operators.lane(event).rank,
            name=operators.name(event),
            category=CATEGORIES[operators.category_E[event]],
            late_ns=float(evidence.late_P[at]),
            via=via,
        )
        for event, at, via in zip(reversed(seen), reversed(points), reversed(vias), strict=True)
    ]
    return tuple(path if len(path) <= LONGEST_PATH else [path[0], *path[1 - LONGEST_PATH :]])


def _ends_its_step(operators: Operators) -> npt.NDArray[np.bool_]:
    """Return whether each event is the last to end in its rank's step, bool [E]."""
    last_E = np.zeros(len(operators), np.bool_)
    if len(operators):
        order = np.lexsort((operators.end_ns_E, operators.step_E, operators.rank_E))
        step, rank = operators.step_E[order], operators.rank_E[order]
        last_E[order] = np.r_[(np.diff(step) != 0) | (np.diff(rank) != 0), True]
    return last_E
