"""Match the same operator across ranks and score how far each event deviates from the others.

The cohort of an event is the same instance on the other ranks: same step, category and name, host or device,
and occurrence within the step. Ranks with different roles (pipeline stages, for example) do different work,
so events are compared within a role. Suffixes: E events, K instances, R ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sfapp.model import Operators

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Score = Literal["z", "robust"]

Roles = Mapping[int, str | None]
"""The role of each rank; ranks without an entry share one role."""

THRESHOLD = 3.0
"""|z| above this is abnormal (KAIR §III-B, Stage 2: the 3-sigma rule)."""

MIN_COHORT = 3
"""Smallest cohort: of two ranks that differ, neither can be called abnormal."""

MAD_TO_SIGMA = 1.4826
"""1/Φ⁻¹(3/4): scales the median absolute deviation to the standard deviation of a normal distribution."""

RESOLUTION_NS = 1_000.0
"""Smallest spread, ns: ranks' clocks agree to about a microsecond (KAIR §III-A, Feature 4)."""


@dataclass(frozen=True, slots=True, eq=False)
class Cohorts:
    """Instances that at least three ranks share.

    Attributes:
        instance_E: int64 [E], -1 for an event without a cohort: too few ranks have it, or its rank runs it a
            different number of times per step than most ranks, so that occurrences cannot be matched.
        size: number of instances, K.
        comparable_ranks: number of comparable ranks: all ranks, or those of the largest role.
    """

    instance_E: Ints
    size: int
    comparable_ranks: int

    @property
    def matched_E(self) -> Bools:
        """Return which events have a cohort, bool [E]."""
        return self.instance_E >= 0


@dataclass(frozen=True, slots=True, eq=False)
class Deviation:
    """Deviation of values from their cohorts' centres.

    Attributes:
        excess_E: float64 [E], value minus centre, NaN without a cohort.
        score_E: float64 [E], excess over spread, NaN without a cohort.
    """

    excess_E: Floats
    score_E: Floats

    @property
    def high_E(self) -> Bools:
        """Return which events are abnormally late or long, bool [E]."""
        return self.score_E > THRESHOLD


def roles_of(ranks: Sequence[int], roles: Roles | None) -> Ints:
    """Return the number of each rank's role, int64 [R]."""
    names = [(roles or {}).get(rank) for rank in ranks]
    known = list(dict.fromkeys(names))
    return np.asarray([known.index(name) for name in names], np.int64)


def cohorts_of(operators: Operators, roles: Roles | None = None) -> Cohorts:
    """Match the events of all ranks; events outside any step have no cohort."""
    events = len(operators)
    rank_E = operators.rank_E
    role_R = roles_of(operators.ranks, roles)
    role_E = role_R[np.searchsorted(np.asarray(operators.ranks, np.int64), rank_E)]
    kind_E = codes_of(operators.step_E, operators.category_E, operators.is_device_E, operators.name_E, role_E)
    order = np.lexsort((np.arange(events), rank_E, kind_E))
    kind, rank = kind_E[order], rank_E[order]
    begins = np.flatnonzero(np.r_[True, (np.diff(kind) != 0) | (np.diff(rank) != 0)]) if events else order
    lengths = np.diff(np.r_[begins, events])
    run = np.repeat(np.arange(len(begins)), lengths)
    occurrence = np.arange(events) - begins[run]
    usual = _usual_length(kind[begins], lengths)
    matched = (lengths == usual)[run] & (operators.step_E[order] >= 0)
    instance_E = np.full(events, -1, np.int64)
    found = codes_of(kind[matched], occurrence[matched])
    members = np.bincount(found)
    renumbered = np.where(members >= MIN_COHORT, np.cumsum(members >= MIN_COHORT) - 1, -1)
    instance_E[order[matched]] = renumbered[found] if len(found) else found
    comparable_ranks = int(np.bincount(role_R).max(initial=0))
    return Cohorts(instance_E, int((members >= MIN_COHORT).sum()), comparable_ranks)


def deviation(value_E: Floats, cohorts: Cohorts, score: Score) -> Deviation:
    """Score each value against its cohort, by mean and standard deviation or by median and MAD."""
    matched = cohorts.matched_E & ~np.isnan(value_E)
    instance, value = cohorts.instance_E[matched], value_E[matched]
    centre_K, spread_K = (_moments if score == "z" else robust_centres)(value, instance, cohorts.size)
    excess_E = np.full(len(value_E), np.nan)
    score_E = np.full(len(value_E), np.nan)
    excess_E[matched] = value - centre_K[instance]
    score_E[matched] = excess_E[matched] / np.maximum(spread_K, RESOLUTION_NS)[instance]
    return Deviation(excess_E, score_E)


def median_of_groups(value: Floats, group: Ints, size: int) -> Floats:
    """Return the median of each group, float64 [size]; NaN for an empty group."""
    order = np.lexsort((value, group))
    ordered = value[order]
    count = np.bincount(group, minlength=size)
    begin = np.cumsum(count) - count
    median = np.full(size, np.nan)
    full = count > 0
    low, high = (begin + (count - 1) // 2)[full], (begin + count // 2)[full]
    median[full] = (ordered[low] + ordered[high]) / 2
    return median


def robust_centres(value: Floats, group: Ints, size: int) -> tuple[Floats, Floats]:
    """Return each group's median and its median absolute deviation, scaled to a standard deviation."""
    centre = median_of_groups(value, group, size)
    return centre, MAD_TO_SIGMA * median_of_groups(np.abs(value - centre[group]), group, size)


def _moments(value: Floats, group: Ints, size: int) -> tuple[Floats, Floats]:
    """Return each group's mean and sample standard deviation."""
    count = np.maximum(np.bincount(group, minlength=size), 1)
    mean = np.bincount(group, value, size) / count
    squares = np.bincount(group, (value - mean[group]) ** 2, size)
    return mean, np.sqrt(squares / np.maximum(count - 1, 1))


def codes_of(*columns: npt.NDArray[Any]) -> Ints:
    """Return one number for each distinct row of these columns."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        distinct, inverse = np.unique(column, return_inverse=True)
        _, code = np.unique(code * max(len(distinct), 1) + inverse.reshape(-1), return_inverse=True)
        code = code.reshape(-1)
    return code


def _usual_length(kind_U: Ints, length_U: Ints) -> Ints:
    """Return, for each run of a kind on a rank, the most common run length over ranks (the shorter in a
    tie)."""
    if not len(kind_U):
        return length_U
    pairs, ranks = np.unique(np.stack((kind_U, length_U)), axis=1, return_counts=True)
    order = np.lexsort((pairs[1], -ranks, pairs[0]))
    kinds, first = np.unique(pairs[0][order], return_index=True)
    usual = pairs[1][order][first]
    return np.asarray(usual[np.searchsorted(kinds, kind_U)], np.int64)
