"""Match collectives across ranks: which rank arrived last, and how long the transfer took.

Suffixes: E events, J collectives (one for each group and sequence), M their members (one event a rank).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfapp.model import Operators
from sfapp.operators.cohorts import MIN_COHORT, RESOLUTION_NS, THRESHOLD, codes_of, robust_centres

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CollectiveVerdict = Literal["transfer", "skew", "mixed", "inconclusive"]

DOMINANT = 2 / 3
"""Share from which skew or transfer is named: at least twice the other. Anything closer is mixed."""


@dataclass(frozen=True, slots=True, eq=False)
class Joins:
    """Every (group, sequence) with one event per participating rank: its kernel, if there is one.

    Attributes:
        event_M: int64 [M], positions among the operators, collective by collective.
        join_M: int64 [M], index of the collective, 0…J−1.
        join_E: int64 [E], the collective that an event belongs to, -1 for none.
        last_J: int64 [J], the event of the last rank to arrive.
        ranks_J: int64 [J], number of participating ranks.
        expected_J: int64 [J], number of ranks of its group in these events.
        skew_J: int64 ns [J], last arrival minus first.
        transfer_J: int64 ns [J], last end minus last arrival, at least 0.
        joined_J: bool [J], whether no rank left before all had arrived.
        excess_J: float64 ns [J], transfer minus its baseline; NaN without one.
        score_J: float64 [J], the excess in units of its spread.
    """

    event_M: Ints
    join_M: Ints
    join_E: Ints
    last_J: Ints
    ranks_J: Ints
    expected_J: Ints
    skew_J: Ints
    transfer_J: Ints
    joined_J: npt.NDArray[np.bool_]
    excess_J: Floats
    score_J: Floats

    def __len__(self) -> int:
        return len(self.last_J)

    @property
    def conclusive_J(self) -> npt.NDArray[np.bool_]:
        """Return whether all ranks of the group are present with consistent clocks, bool [J]."""
        whole: npt.NDArray[np.bool_] = (self.ranks_J >= 2) & (self.ranks_J == self.expected_J)
        return whole & self.joined_J


@dataclass(frozen=True, slots=True)
class Collective:
    """Time of one collective, split into arrival skew and transfer.

    Attributes:
        last_rank: the rank that arrived last.
        skew_ns: time from the first arrival to the last.
        transfer_ns: from the last arrival to the last end.
        verdict: ``transfer`` or ``skew`` if one is at least twice the other, else ``mixed``; ``inconclusive``
            if the events do not decide.
        why: why it is inconclusive; empty otherwise.
        slow_ns: transfer time above that of the same collective in other steps and groups; 0 if within the
            spread, or with too few others to compare with.
    """

    name: str
    group: str
    sequence: int
    step: int
    ranks: int
    last_rank: int
    skew_ns: int
    transfer_ns: int
    verdict: CollectiveVerdict
    why: str
    slow_ns: float


def joins_of(operators: Operators) -> Joins:
    """Match the events of each collective by (group, sequence)."""
    events = np.flatnonzero((operators.group_E >= 0) & (operators.sequence_E >= 0))
    rank_E, length_E, device_E = operators.rank_E, operators.duration_ns_E, operators.is_device_E
    group, sequence = operators.group_E[events].astype(np.int64), operators.sequence_E[events]
    # Keep one event per rank: the kernel rather than the call that enqueued it, else the longest.
    order = np.lexsort((-length_E[events], ~device_E[events], rank_E[events], sequence, group))
    events, group, sequence = events[order], group[order], sequence[order]
    first = np.ones(len(events), np.bool_)
    same = (np.diff(group) == 0) & (np.diff(sequence) == 0) & (np.diff(rank_E[events]) == 0)
    first[1:] = ~same
    event_M = events[first].astype(np.int64)
    join_M = codes_of(operators.group_E[event_M], operators.sequence_E[event_M])
    count = int(join_M.max(initial=-1)) + 1
    join_E = np.full(len(operators), -1, np.int64)
    join_E[event_M] = join_M
    start_M, end_M = operators.start_ns_E[event_M], operators.end_ns_E[event_M]
    first_start, last_start = _reduce(start_M, join_M, count)
    first_end, last_end = _reduce(end_M, join_M, count)
    by_arrival = np.lexsort((start_M, join_M))
    ranks_J = np.bincount(join_M, minlength=count).astype(np.int64)
    last_J = event_M[by_arrival[np.cumsum(ranks_J) - 1]] if count else event_M
    members = np.unique(np.stack((operators.group_E[event_M], rank_E[event_M])), axis=1)
    size_G = np.bincount(members[0].astype(np.int64), minlength=len(operators.groups)).astype(np.int64)
    transfer_J = np.maximum(last_end - last_start, 0)
    excess_J, score_J = _against_others(operators, last_J, transfer_J, ranks_J)
    return Joins(
        event_M=event_M,
        join_M=join_M,
        join_E=join_E,
        last_J=last_J,
        ranks_J=ranks_J,
        expected_J=size_G[operators.group_E[last_J]] if count else ranks_J,
        skew_J=last_start - first_start,
        transfer_J=transfer_J,
        joined_J=first_end >= last_start,
        excess_J=excess_J,
        score_J=score_J,
    )


def collectives(operators: Operators, joins: Joins | None = None) -> tuple[Collective, ...]:
    """Return arrival skew and transfer of every collective, in order of time."""
    joins = joins or joins_of(operators)
    order = np.argsort(operators.start_ns_E[joins.last_J], kind="stable")
    return tuple(_collective(operators, joins, int(join)) for join in order)


def _collective(operators: Operators, joins: Joins, join: int) -> Collective:
    last = int(joins.last_J[join])
    verdict, why = _verdict(joins, join)
    slow = joins.score_J[join] > THRESHOLD and verdict != "inconclusive"
    return Collective(
        name=operators.name(last),
        group=operators.groups[int(operators.group_E[last])],
        sequence=int(operators.sequence_E[last]),
        step=int(operators.step_E[last]),
        ranks=int(joins.ranks_J[join]),
        last_rank=operators.lane(last).rank,
        skew_ns=int(joins.skew_J[join]),
        transfer_ns=int(joins.transfer_J[join]),
        verdict=verdict,
        why=why,
        slow_ns=float(joins.excess_J[join]) if slow else 0.0,
    )


def _verdict(joins: Joins, join: int) -> tuple[CollectiveVerdict, str]:
    ranks, expected = int(joins.ranks_J[join]), int(joins.expected_J[join])
    skew, transfer = int(joins.skew_J[join]), int(joins.transfer_J[join])
    if ranks < 2:
        return "inconclusive", "only one rank's event is recorded"
    if ranks < expected:
        return "inconclusive", f"only {ranks} of its group's {expected} ranks are recorded"
    if not joins.joined_J[join]:
        return (
            "inconclusive",
            "a rank left before another arrived: clocks differ, or it does not wait for other ranks",
        )
    if skew + transfer < 2 * RESOLUTION_NS:
        return "inconclusive", "shorter than the accuracy of the clocks, 1 µs"
    share = skew / (skew + transfer)
    if share >= DOMINANT:
        return "skew", ""
    return ("transfer", "") if share <= 1 - DOMINANT else ("mixed", "")


def _against_others(
    operators: Operators, last_J: Ints, transfer_J: Ints, ranks_J: Ints
) -> tuple[Floats, Floats]:
    """Score transfers against the same collective in other steps and groups.

    The same collective has the same name, group size and position in the step. Its own ranks all see the same
    transfer, so they are no cohort.
    """
    if not len(last_J):
        return np.empty(0), np.empty(0)
    step, group = operators.step_E[last_J], operators.group_E[last_J].astype(np.int64)
    kind = codes_of(step, group, operators.name_E[last_J])
    order = np.lexsort((operators.sequence_E[last_J], kind))
    begins = np.flatnonzero(np.r_[True, np.diff(kind[order]) != 0])
    place = np.empty(len(last_J), np.int64)
    place[order] = np.arange(len(order)) - np.repeat(begins, np.diff(np.r_[begins, len(order)]))
    cohort = codes_of(operators.name_E[last_J], ranks_J, place)
    transfer = transfer_J.astype(np.float64)
    centre, spread = robust_centres(transfer, cohort, int(cohort.max()) + 1)
    excess = transfer - centre[cohort]
    excess[(np.bincount(cohort)[cohort] < MIN_COHORT) | (step < 0)] = np.nan
    return excess, excess / np.maximum(spread, RESOLUTION_NS)[cohort]


def _reduce(value_M: Ints, join_M: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the minimum and maximum over each collective's members."""
    least = np.full(count, np.iinfo(np.int64).max)
    most = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(least, join_M, value_M)
    np.maximum.at(most, join_M, value_M)
    return least, most
