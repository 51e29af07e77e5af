"""Whether groups of runs differ in step time or lost time, with intervals (accounting.md §23).

Runs are the trials, however many windows they have, because windows of one run are not independent.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean, median, variance

from sfapp.accounting.noise import student_t_quantile
from sfapp.model.trends import LEVEL, Difference, TrendGroup

_LEAST_RUNS = 2
"""Runs of one kind that each side of a comparison needs."""

_LEAST_PAIRS = 5
"""Runs on both sides from which only these are compared, if they are also half of a group's runs: a few long
runs do not show what was new for the others."""


@dataclass(frozen=True, slots=True)
class RunPart:
    """The windows of one run that have one value of the field.

    Attributes:
        kind: what comparable runs have in common.
        value: the value; None for those that are not shown.
        rank_hours, lost_hours: of all ranks.
        healthy_ns, healthy_steps: time and number of the steps in healthy windows.
        first_at, last_at: start of the first and of the last window.
    """

    run_id: str
    kind: Hashable
    value: str | None
    windows: int
    rank_hours: float
    lost_hours: float
    healthy_ns: float
    healthy_steps: int
    first_at: datetime | None = None
    last_at: datetime | None = None


Cells = Mapping[Hashable, Mapping[str, float]]
"""A measure by kind and run."""


def trend_groups(parts: Iterable[RunPart], *, in_order: bool) -> tuple[TrendGroup, ...]:
    """Return the groups with a value, ascending by their first window, each compared with others.

    Args:
        in_order: values are ordered, as days are: each is compared with the smaller ones, and parts without a
            value are smaller than all. Otherwise each is compared with all others.
    """
    by_value: dict[str | None, list[RunPart]] = defaultdict(list)
    for part in parts:
        by_value[part.value].append(part)
    shown = sorted(value for value in by_value if value is not None)
    tails = (1.0 - LEVEL) / 2.0 / max(1, len(shown) - (in_order and None not in by_value))
    groups = []
    for value in shown:
        others = [
            part
            for other, found in by_value.items()
            if other != value and (not in_order or other is None or other < value)
            for part in found
        ]
        groups.append(_group(value, by_value[value], others, tails))
    return tuple(groups if in_order else sorted(groups, key=_began))


def _began(group: TrendGroup) -> tuple[bool, float, str]:
    return group.first_at is None, group.first_at.timestamp() if group.first_at else 0.0, group.value


def _group(value: str, mine: Sequence[RunPart], others: Sequence[RunPart], tails: float) -> TrendGroup:
    steps = _cells(mine, _log_step)
    step = _difference(steps, _cells(others, _log_step), tails)
    started = [part.first_at for part in mine if part.first_at is not None]
    ended = [part.last_at for part in mine if part.last_at is not None]
    paces = [math.exp(each) for of_kind in steps.values() for each in of_kind.values()]
    return TrendGroup(
        value=value,
        runs=len({part.run_id for part in mine}),
        windows=sum(part.windows for part in mine),
        first_at=min(started, default=None),
        last_at=max(ended, default=None),
        step_ns=median(paces) if paces else None,
        rank_hours=sum(part.rank_hours for part in mine),
        lost_hours=sum(part.lost_hours for part in mine),
        step=None if step is None else _as_fractions(step),
        lost=_difference(_cells(mine, _lost_share), _cells(others, _lost_share), tails),
    )


def _as_fractions(logs: Difference) -> Difference:
    estimate, low, high = (
        math.expm1(min(each, 700.0)) for each in (logs.estimate, logs.low, logs.high)
    )  # beyond that, floats overflow
    return Difference(estimate, low, high, logs.runs, logs.other_runs, logs.same_runs)


def _log_step(parts: Sequence[RunPart]) -> float | None:
    steps = sum(part.healthy_steps for part in parts)
    ns = sum(part.healthy_ns for part in parts)
    return math.log(ns / steps) if steps and ns > 0.0 else None


def _lost_share(parts: Sequence[RunPart]) -> float | None:
    hours = sum(part.rank_hours for part in parts)
    return sum(part.lost_hours for part in parts) / hours if hours > 0.0 else None


def _cells(parts: Iterable[RunPart], measure: Callable[[Sequence[RunPart]], float | None]) -> Cells:
    found: dict[tuple[Hashable, str], list[RunPart]] = defaultdict(list)
    for part in parts:
        found[part.kind, part.run_id].append(part)
    cells: dict[Hashable, dict[str, float]] = defaultdict(dict)
    for (kind, run_id), of_run in found.items():
        value = measure(of_run)
        if value is not None:
            cells[kind][run_id] = value
    return cells


def _difference(mine: Cells, others: Cells, tails: float) -> Difference | None:
    """Return the difference of means with a t-interval, or None with too few runs.

    If enough runs are on both sides, at least half of the group, it is the mean of their own differences.
    Otherwise it is the mean over the kinds of the differences of means, weighted by the number of runs, with
    the degrees of freedom of Welch and Satterthwaite: runs of a group vary independently, and by other
    amounts than those of another.
    """
    pairs = {
        (kind, run_id): value - others[kind][run_id]
        for kind, of_kind in mine.items()
        for run_id, value in of_kind.items()
        if run_id in others.get(kind, {})
    }
    if len(pairs) >= max(_LEAST_PAIRS, sum(map(len, mine.values())) / 2.0):
        values = list(pairs.values())
        reach = _reach([(variance(values) / len(values), len(values) - 1)], tails)
        runs = len({run_id for _, run_id in pairs})
        return _interval(fmean(values), reach, runs, runs, same_runs=True)
    kinds = [
        (list(mine[kind].values()), list(others[kind].values()))
        for kind in mine
        if min(len(mine[kind]), len(others.get(kind, {}))) >= _LEAST_RUNS
    ]
    if not kinds:
        return None
    weights = [len(here) * len(there) / (len(here) + len(there)) for here, there in kinds]
    estimate, parts = 0.0, []
    for weight, (here, there) in zip(weights, kinds, strict=True):
        portion = weight / sum(weights)
        estimate += portion * (fmean(here) - fmean(there))
        parts += [(portion**2 * variance(side) / len(side), len(side) - 1) for side in (here, there)]
    runs, other_runs = (sum(len(sides[side]) for sides in kinds) for side in (0, 1))
    return _interval(estimate, _reach(parts, tails), runs, other_runs, same_runs=False)


def _reach(parts: Sequence[tuple[float, int]], tails: float) -> float:
    """Return half the width of an interval, from independent variances with their degrees of freedom."""
    total = sum(each for each, _ in parts)
    if total <= 0.0:
        return 0.0
    # As shares of the total, whose squares cannot underflow.
    df = 1.0 / sum((each / total) ** 2 / free for each, free in parts)
    return math.sqrt(total) * student_t_quantile(tails, df)


def _interval(estimate: float, reach: float, runs: int, other_runs: int, *, same_runs: bool) -> Difference:
    return Difference(estimate, estimate - reach, estimate + reach, runs, other_runs, same_runs)
