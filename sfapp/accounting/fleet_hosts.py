"""Which hosts have the late rank more often than expected by chance, over runs (accounting.md §23).

One bad host in many jobs looks like bad luck in each of them. A run is one trial, however many windows it
has, because its windows are not independent of each other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import lgamma

import numpy as np

from sfapp.accounting.associations import holm
from sfapp.accounting.late_ranks import Floats
from sfapp.model.fleet import FleetHost

MOST_RUNS = 20
"""Number of runs that a record lists."""


@dataclass(frozen=True, slots=True)
class NamedHost:
    """What a run's verdicts say about one host.

    Attributes:
        stages: number of windows by stage in which a rank of the host was the cause.
        first_at, last_at: start of the first and end of the last of these windows.
    """

    stages: Mapping[str, int]
    first_at: datetime | None = None
    last_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunHosts:
    """The hosts of one run.

    Attributes:
        named: hosts that had the late rank in a window that needs attention.
    """

    run_id: str
    hosts: tuple[str, ...]
    windows: int
    named: Mapping[str, NamedHost] = field(default_factory=dict)


def fleet_hosts(runs: Iterable[RunHosts]) -> tuple[FleetHost, ...]:
    """Return the record of every host that some run named, the most telling first.

    If a run names k of its n hosts, chance names each of them with probability k/n. The number of runs that
    name a host is compared with the sum of these independent trials, and the chance of at least as many is
    corrected for the number of hosts (Holm). Runs on one host do not distinguish hosts, and count only for
    ``runs`` and ``windows``.
    """
    of_host: dict[str, list[RunHosts]] = defaultdict(list)
    for run in runs:
        for host in run.hosts:
            of_host[host].append(run)
    tried = [(host, found, _chances(found)) for host, found in of_host.items()]
    # A host that no run named has chance 1, which counts for the correction and is not listed.
    corrected = holm([at_least(_named(host, found), chances) for host, found, chances in tried])
    records = [
        _record(host, found, chances, chance)
        for (host, found, chances), chance in zip(tried, corrected, strict=True)
        if any(host in run.named for run in found)
    ]
    return tuple(
        sorted(records, key=lambda one: (one.chance, one.expected_runs - one.named_runs, one.hostname))
    )


def _compared(run: RunHosts) -> bool:
    return bool(run.named) and len(run.hosts) > 1


def _named(host: str, runs: Sequence[RunHosts]) -> int:
    return sum(_compared(run) and host in run.named for run in runs)


def _chances(runs: Sequence[RunHosts]) -> Counter[float]:
    """Return how many runs name one of their hosts with each probability by chance."""
    return Counter(min(1.0, len(run.named) / len(run.hosts)) for run in runs if _compared(run))


def _record(host: str, runs: Sequence[RunHosts], chances: Counter[float], chance: float) -> FleetHost:
    named = [(run, run.named[host]) for run in runs if host in run.named]
    stages: Counter[str] = Counter()
    for _, found in named:
        stages.update(found.stages)
    started = [found.first_at for _, found in named if found.first_at is not None]
    ended = [found.last_at for _, found in named if found.last_at is not None]
    latest = sorted(named, key=lambda one: (one[1].last_at is None, one[1].last_at), reverse=True)
    return FleetHost(
        hostname=host,
        runs=len(runs),
        windows=sum(run.windows for run in runs),
        compared_runs=chances.total(),
        named_runs=_named(host, runs),
        expected_runs=sum(each * number for each, number in chances.items()),
        chance=chance,
        named_windows=stages.total(),
        stages=tuple(sorted(stages.items(), key=lambda one: (-one[1], one[0]))),
        first_at=min(started, default=None),
        last_at=max(ended, default=None),
        run_ids=tuple(run.run_id for run, _ in latest[:MOST_RUNS]),
    )


def at_least(found: int, trials: Mapping[float, int]) -> float:
    """Return the chance of at least so many successes in independent trials (Poisson binomial).

    Args:
        trials: number of trials by their probability of success.
    """
    if found <= 0:
        return 1.0
    mass = np.ones(1)
    for chance, number in trials.items():
        mass = np.convolve(mass, _binomial(chance, number))
    return float(min(1.0, mass[found:].sum()))


def _binomial(chance: float, number: int) -> Floats:
    """Return the probability of 0, 1, … ``number`` successes."""
    if chance >= 1.0:
        return np.asarray(np.eye(1, number + 1, number)[0], dtype=np.float64)
    count = np.arange(number + 1)
    of_number = np.array([lgamma(each + 1) for each in range(number + 1)])
    choose = of_number[-1] - of_number - of_number[::-1]
    return np.asarray(np.exp(choose + count * np.log(chance) + (number - count) * np.log1p(-chance)))
