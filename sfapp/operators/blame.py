"""Trace late operators back to their cause: stage 3 (KAIR §III-B, Backward Blame Attribution).

The lateness of a point of the graph is its time minus its cohort's median. Along the binding edges back from
a late point, lateness shrinks by what each operator and each edge added. The paper's rules are:

1.  An operator that itself took abnormally long is a cause.
2a. A late one's predecessor that took abnormally long is its cause.
2b. A predecessor that took the usual time but is late itself is traced further.
2c. If the predecessor was on time, the edge between the two is the cause.

Two additions keep noise from deciding. In rule 2a a predecessor ends the trace only if it explains at least
half of the lateness there, because then no other place can explain more; in rule 2c a late predecessor counts
as on time if it explains less than half. A cause must explain at least half of its victim's lateness,
otherwise the delay counts as spread out (``spread_ns``). Before that, an operator on the path can be the
cause by its own time, if this time is split into several parts between the events that it encloses and no
part is half of it.

Suffixes: E events, P points (2·E), F symptoms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sfapp.model import Operators
from sfapp.operators.causes import BEFORE, EDGE, EXTRA, OPERATOR, TRANSFER, Cause, CauseEvidence, ranked
from sfapp.operators.cohorts import MIN_COHORT, THRESHOLD, Cohorts, cohorts_of, deviation
from sfapp.operators.collectives import Collective, Joins, collectives, joins_of
from sfapp.operators.dependency_graph import DependencyGraph, Edge, dependency_graph

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

HALF = 0.5
"""Share of a lateness that a cause must explain: no other place can then explain more."""

_MAX_DOUBLINGS = 40
"""Each doubling doubles the length of every trace; a trace longer than 2^40 events is a cycle."""

WHY_ROBUST = (
    "median and MAD: one culprit has several victims, and more than one abnormal rank in ten widens the "
    "standard deviation beyond what 3 σ can find"
)


@dataclass(frozen=True, slots=True, eq=False)
class Blame:
    """Causes of the delays of one window.

    Attributes:
        causes: causes that delayed other events first, then by cost in time.
        collectives: arrival skew and transfer time of each collective.
        symptoms: number of events that started late or took long.
        unexplained: number of symptoms whose trace ends without a cause: at an event that waits for something
            outside these events.
        spread_ns: by rank, the largest lateness of which no single place explains half.
        clocks_agree: whether the ranks share a time axis; otherwise start times were not compared.
        why: the score that was used, with the reason.
        notes: limitations of the events.
    """

    causes: tuple[Cause, ...]
    collectives: tuple[Collective, ...]
    symptoms: int
    unexplained: int
    spread_ns: dict[int, float]
    clocks_agree: bool
    why: str
    notes: tuple[str, ...]


def blame(operators: Operators, cohorts: Cohorts | None = None) -> Blame:
    """Return the causes of late and slow operators, ranked.

    Start times of different ranks are compared, which needs a common time axis. If most collectives show that
    there is none, only durations are used and the notes state it.
    """
    cohorts = cohorts or cohorts_of(operators)
    joins = joins_of(operators)
    graph = dependency_graph(operators, joins)
    shared = _clocks_agree(joins)
    trace = _Trace.of(operators, cohorts, joins, graph, shared)
    event_F, point_F = trace.symptoms(shared)
    found = trace.causes_of(event_F, point_F)
    late_F = np.where(np.isnan(trace.late_P[2 * event_F]), 0.0, trace.late_P[2 * event_F])
    itself_F = point_F < 0
    known_F = itself_F | _accounts(found, late_F)
    # An operator can also explain a delay by several parts of its own time. This is less precise, so it comes
    # second.
    by_own = trace.by_own_time().causes_of(event_F, point_F)
    in_parts_F = ~known_F & _accounts(by_own, late_F)
    kind_F, place_F, delay_F = (np.where(in_parts_F, *either) for either in zip(by_own, found, strict=True))
    known_F |= in_parts_F
    spread: dict[int, float] = {}
    for event in event_F[(kind_F >= 0) & ~known_F].tolist():
        rank = operators.lane(event).rank
        spread[rank] = max(spread.get(rank, 0.0), float(trace.late_P[2 * event]))
    evidence = CauseEvidence(
        operators=operators,
        joins=joins,
        graph=graph,
        late_P=trace.late_P,
        prior_P=trace.prior_P,
        event_F=event_F[known_F],
        itself_F=itself_F[known_F],
        kind_F=kind_F[known_F],
        place_F=place_F[known_F],
        delay_F=delay_F[known_F],
    )
    return Blame(
        causes=ranked(evidence),
        collectives=collectives(operators, joins),
        symptoms=len(event_F),
        unexplained=int(np.count_nonzero(kind_F < 0)),
        spread_ns=spread,
        clocks_agree=shared,
        why=WHY_ROBUST,
        notes=_notes(operators, cohorts, joins, shared),
    )


def _accounts(found: tuple[Ints, Ints, Floats], late_F: Floats) -> Bools:
    """Return whether each symptom's cause (kind, place, delay) explains half of its lateness."""
    kind_F, _, delay_F = found
    accounts: Bools = (kind_F >= 0) & (delay_F >= HALF * late_F)
    return accounts


@dataclass(frozen=True, slots=True, eq=False)
class _Trace:
    """Lateness of every point and the end of its trace.

    Attributes:
        late_P: lateness, float64 ns, NaN without a cohort; is_late_P: whether it is abnormal.
        slow_E: whether an event itself took abnormally long; slow_ns_E: by how much, at least 0.
        prior_P: the nearest preceding point with a cohort along the binding edges; -1 for none.
        extra_P: the longest event without a cohort between the two; -1 for none.
        added_P: lateness that was added since prior_P, ns.
        opaque_P: whether traces cannot continue past a point; stop_P: whether they end there.
        end_P: the point whose incoming stretch is the cause, -1 if the trace ends without one.
    """

    operators: Operators
    joins: Joins
    graph: DependencyGraph
    late_P: Floats
    is_late_P: Bools
    is_late_start_E: Bools
    slow_E: Bools
    slow_ns_E: Floats
    prior_P: Ints
    extra_P: Ints
    added_P: Floats
    opaque_P: Bools
    stop_P: Bools
    end_P: Ints

    @classmethod
    def of(
        cls, operators: Operators, cohorts: Cohorts, joins: Joins, graph: DependencyGraph, shared: bool
    ) -> _Trace:
        since_P = (graph.time_P - graph.time_P.min(initial=np.iinfo(np.int64).max)).astype(np.float64)
        start = deviation(since_P[0::2], cohorts, "robust")
        end = deviation(since_P[1::2], cohorts, "robust")
        late_P = np.stack((start.excess_E, end.excess_E), axis=1).ravel()
        is_late_P = np.stack((start.high_E, end.high_E), axis=1).ravel()
        slow_E, slow_ns_E = _slow(graph, cohorts, joins, shared)
        matched_P = np.repeat(cohorts.matched_E, 2)
        prior_P, extra_P = _prior(operators, graph, matched_P)
        owner_P = _owners(graph)
        prior_late = np.where(prior_P >= 0, late_P[prior_P], 0.0)
        added_P = late_P - np.maximum(prior_late, 0)
        mostly_here = added_P >= HALF * late_P
        usual = (owner_P >= 0) & ~slow_E[owner_P] & (extra_P < 0)
        prior_on_time = (prior_P < 0) | ~is_late_P[prior_P]
        # An event that waits for something unrecorded has no explanation: traces cannot continue past its
        # end.
        opaque_P = (owner_P >= 0) & graph.opaque_E[owner_P]
        stop_P = is_late_P & (opaque_P | prior_on_time | (mostly_here & ~usual))
        return cls(
            operators=operators,
            joins=joins,
            graph=graph,
            late_P=late_P,
            is_late_P=is_late_P,
            is_late_start_E=start.high_E,
            slow_E=slow_E,
            slow_ns_E=slow_ns_E,
            prior_P=prior_P,
            extra_P=extra_P,
            added_P=added_P,
            opaque_P=opaque_P,
            stop_P=stop_P,
            end_P=_explained(_follow(prior_P, stop_P), opaque_P),
        )

    def by_own_time(self) -> _Trace:
        """Return a copy in which traces also stop at events whose own time explains half of the lateness.

        The own time of such an event is split between the events that it encloses; no single part explains
        half.
        """
        own_P = self._own_excess()
        stop_P = self.stop_P | (self.is_late_P & (own_P >= HALF * self.late_P))
        return replace(
            self,
            added_P=np.fmax(self.added_P, own_P),
            stop_P=stop_P,
            end_P=_explained(_follow(self.prior_P, stop_P), self.opaque_P),
        )

    def _own_excess(self) -> Floats:
        """Return the lateness that own time adds at the ends of such events, float64 ns [P]."""
        enclosed = self.graph.kind_D == Edge.ENCLOSED
        inner, outer = self.graph.from_D[enclosed] // 2, self.graph.to_D[enclosed] // 2
        largest_E = np.zeros(len(self.slow_E))
        np.maximum.at(largest_E, outer, np.nan_to_num(self.added_P[2 * inner]))
        in_parts_E = self.slow_E & (largest_E < HALF * self.slow_ns_E)
        start_late_E, end_late_E = np.nan_to_num(self.late_P[0::2]), np.nan_to_num(self.late_P[1::2])
        within_E = np.maximum(end_late_E - np.maximum(start_late_E, 0), 0)
        own_P = np.zeros(len(self.late_P))
        own_P[1::2] = np.where(in_parts_E, np.minimum(self.slow_ns_E, within_E), 0.0)
        return own_P

    def symptoms(self, shared: bool) -> tuple[Ints, Ints]:
        """Return abnormal events and the point to trace each from; -1 if the event itself took long (rule
        1)."""
        late_E = self.is_late_start_E if shared else np.zeros_like(self.slow_E)
        event_F = np.flatnonzero(self.slow_E | late_E).astype(np.int64)
        return event_F, np.where(self.slow_E[event_F], -1, 2 * event_F)

    def causes_of(self, event_F: Ints, point_F: Ints) -> tuple[Ints, Ints, Floats]:
        """Return the cause of each symptom: its kind (-1 for none), its place and its cost in ns.

        The place is an event, for edges a point, for transfers a collective.
        """
        end_F = np.where(point_F < 0, -1, self.end_P[point_F])
        found = end_F >= 0
        owner_F = np.where(found, _owners(self.graph)[end_F], -1)
        kind_F = np.where(found, EDGE, -1)
        place_F = end_F.copy()
        itself = point_F < 0
        owner_F = np.where(itself, event_F, owner_F)
        by_owner = owner_F >= 0
        kind_F[by_owner], place_F[by_owner] = OPERATOR, owner_F[by_owner]
        before = found & ~itself & (self.prior_P[end_F] < 0)
        kind_F[before], place_F[before] = BEFORE, end_F[before] // 2
        extra = found & ~itself & (self.extra_P[end_F] >= 0)
        kind_F[extra], place_F[extra] = EXTRA, self.extra_P[end_F[extra]]
        join_F = np.where(by_owner, self.joins.join_E[owner_F], -1)
        transfer = by_owner & (join_F >= 0) & ~before & ~extra
        kind_F[transfer], place_F[transfer] = TRANSFER, join_F[transfer]
        delay_F = np.where(found, self.added_P[end_F], 0.0)
        delay_F[itself] = self.slow_ns_E[event_F[itself]]
        return kind_F, place_F, delay_F


def _slow(graph: DependencyGraph, cohorts: Cohorts, joins: Joins, shared: bool) -> tuple[Bools, Floats]:
    """Return which events took abnormally long, and by how many ns.

    A collective's transfer counts once, on the rank that arrived last.
    """
    own = deviation(graph.own_ns_E, cohorts, "robust")
    slow_E, slow_ns_E = own.high_E & ~graph.opaque_E, np.nan_to_num(own.excess_E)
    members = joins.event_M
    across_M, across_ns_M = slow_E[members], slow_ns_E[members]
    slow_E[members] = False
    if shared and len(joins):
        # Against other groups in the same step (its members), or against other steps.
        by_members = np.zeros(len(joins))
        np.maximum.at(by_members, joins.join_M, np.where(across_M, across_ns_M, 0.0))
        by_steps = np.where(joins.score_J > THRESHOLD, joins.excess_J, 0.0)
        slow_J = np.maximum(by_members, by_steps) * joins.conclusive_J
        slow_E[joins.last_J] = slow_J > 0
        slow_ns_E[members] = slow_J[joins.join_M]
    return slow_E, np.maximum(slow_ns_E, 0.0)


def _owners(graph: DependencyGraph) -> Ints:
    """Return the event that contains the stretch before each point; -1 between two events."""
    owner_P = np.full(len(graph.time_P), -1, np.int64)
    owner_P[1::2] = np.arange(len(graph.time_P) // 2)
    enclosing = graph.kind_P == Edge.ENCLOSING
    owner_P[enclosing] = graph.before_P[enclosing] // 2
    return owner_P


def _prior(operators: Operators, graph: DependencyGraph, matched_P: Bools) -> tuple[Ints, Ints]:
    """Return the nearest preceding point with a cohort, and the longest event passed on the way."""
    length_E = np.r_[np.where(operators.step_E >= 0, operators.duration_ns_E, -1), -1]
    free_P = np.r_[~matched_P, False]  # one more, so that index -1 leads nowhere
    prior_P = np.r_[graph.before_P, -1]
    extra_P = np.full(len(prior_P), -1, np.int64)
    for _ in range(_MAX_DOUBLINGS):
        going = np.flatnonzero(free_P[prior_P])
        if not len(going):
            break
        passed = prior_P[going]
        longest = extra_P[going]
        for event in (passed // 2, extra_P[passed]):
            longest = np.where(length_E[event] > length_E[longest], event, longest)
        prior_P[going], extra_P[going] = prior_P[passed], longest
    prior_P[free_P[prior_P]] = -1
    return prior_P[:-1], extra_P[:-1]


def _follow(prior_P: Ints, stop_P: Bools) -> Ints:
    """Return the first point at which each point's trace stops, -1 if it never stops."""
    end_P = np.where(stop_P, np.arange(len(prior_P)), prior_P)
    done = np.r_[stop_P, True]
    for _ in range(_MAX_DOUBLINGS):
        further = np.r_[end_P, -1]
        if done[end_P].all():
            break
        end_P = np.where(done[end_P], end_P, further[end_P])
    return np.where(done[end_P], end_P, -1)


def _explained(end_P: Ints, opaque_P: Bools) -> Ints:
    return np.where((end_P >= 0) & opaque_P[end_P], -1, end_P)


def _clocks_agree(joins: Joins) -> bool:
    """Return whether, in most collectives, no rank left before all ranks had arrived."""
    several_J = joins.ranks_J >= 2
    return not several_J.any() or bool(joins.joined_J[several_J].mean() > HALF)


def _notes(operators: Operators, cohorts: Cohorts, joins: Joins, shared: bool) -> tuple[str, ...]:
    notes = []
    ranks = len(operators.ranks)
    if cohorts.comparable_ranks < MIN_COHORT:
        comparable = cohorts.comparable_ranks
        few = "" if comparable == ranks else f", of which at most {comparable} play the same role"
        notes.append(
            f"{ranks} ranks{few}: at least {MIN_COHORT} are needed to "
            "tell which one differs, so no cause is named"
        )
    if not shared:
        left = int(np.count_nonzero(~joins.joined_J & (joins.ranks_J >= 2)))
        notes.append(
            f"in {left} of {len(joins)} collectives a rank left before another arrived: the ranks' clocks "
            "differ, so durations are compared, but not start times"
        )
    unmatched = int(np.count_nonzero(~cohorts.matched_E))
    if unmatched and cohorts.comparable_ranks >= MIN_COHORT:
        notes.append(
            f"{unmatched:,} of {len(operators):,} events have no counterpart on at least two other ranks"
        )
    if ranks > 1 and not len(joins):
        notes.append(
            "no collective ties the ranks together: waiting for other ranks cannot be distinguished from work"
        )
    return tuple(notes)
