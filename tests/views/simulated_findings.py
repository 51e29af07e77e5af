"""What KAIR finds in made-up jobs, one for each thing that can be wrong or missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial

import numpy as np

from benchmarks.kair_graphs import PLANTS, US, Plant
from benchmarks.kair_graphs import job as planted_job
from sfapp.model import Diagnosis, Lane, Operators, Window
from sfapp.operators import Findings, RankSimilarity, examine, examine_stages, ks_distances
from tests.operators.lanes import event, operators
from tests.views import simulated_windows as jobs

RANKS = 8
CULPRIT = 5
STEP = 1
DELAY_MS = 4
HARM = "<img src=x onerror=alert(1)> %{x} $e^x$"


def planted(what: str, ranks: int = RANKS, layers: int = 2) -> Operators:
    """Three steps, one thing wrong in the second of them, on rank 5."""
    plant = Plant(what, CULPRIT, STEP, 0, DELAY_MS * 1_000 * US)
    return planted_job(ranks, 3, layers, plant, 0.01, 7)[0]


def hostile() -> Operators:
    """Operators, lanes and groups named like markup, templates and TeX."""
    made = planted("kernel")
    return replace(
        made,
        names=tuple(f"{HARM} {name}" for name in made.names),
        lanes=tuple(Lane(lane.rank, f"{HARM} {lane.name}", lane.is_device) for lane in made.lanes),
        groups=tuple(f"{HARM} {group}" for group in made.groups),
    )


def healthy(ranks: int) -> Operators:
    """Nothing wrong, and no jitter that chance could make something of."""
    return planted_job(ranks, 3, 2, Plant("kernel", 0, 0, 0, 0), 0.0, 3)[0]


def clocks_differ() -> Operators:
    """Each rank's clock is two seconds ahead of the one before."""
    made = planted("host")
    ahead = 2_000_000_000 * made.rank_E
    return replace(made, start_ns_E=made.start_ns_E + ahead, end_ns_E=made.end_ns_E + ahead)


def outside_steps() -> Operators:
    made = planted("input")
    return replace(made, step_E=np.full(len(made), -1))


ALL: Mapping[str, Callable[[], Operators]] = {
    **{what: partial(planted, what) for what in PLANTS},
    "nothing wrong": lambda: healthy(RANKS),
    "hostile": hostile,
    "one rank": lambda: healthy(1),
    "two ranks": lambda: healthy(2),
    "clocks differ": clocks_differ,
    "outside steps": outside_steps,
    "no events": lambda: operators([]),
}


@cache
def found(kind: str) -> Findings:
    """What is found in one of ``ALL``, or in the stages of a window."""
    if kind == "stages":
        return examine_stages(window(), ("model.backward_cpu_wall",))
    return examine(ALL[kind]())


KINDS = (*ALL, "stages")


def window() -> Window:
    """A window of which only the packet is there: rank 2 is late in data."""
    return jobs.data_tail()


@cache
def diagnosis() -> Diagnosis:
    """A verdict to go with them: it aims at data on rank 2."""
    return jobs.look(window())[1]


def of_many_ranks(ranks: int, odd: int) -> Findings:
    """Findings with timing patterns of many ranks, one of which completes everything late."""
    random = np.random.default_rng(1)
    count_RT = random.poisson(2.0, (ranks, 60)).astype(np.int64)
    count_RT[odd] = 0
    count_RT[odd, 50:] = 12
    distance_RR = ks_distances(count_RT)
    score_R = distance_RR.sum(axis=1) / (ranks - 1)
    similarity = RankSimilarity(tuple(range(ranks)), 1_000_000, "as asked", count_RT, distance_RR, score_R)
    return replace(found("input"), similarity=similarity)


def of_many_events(events: int) -> Findings:
    """One step of three ranks with so many events on each, one inside the other four deep."""
    rows = []
    for rank in range(3):
        slow = 500.0 if rank == 1 else 0.0
        rows.append(event(rank, "thread 1", "step", 0, events + slow, category="stage"))
        rows.append(event(rank, "thread 1", "work", 0, events * 0.25 + slow))
        for place in range(0, events, 2):
            at = place + (slow if place > events * 0.25 else 0.0)
            rows.append(event(rank, "thread 1", f"outer {place % 7}", at, at + 1.6))
            rows.append(event(rank, "thread 1", f"inner {place % 5}", at + 0.2, at + 1.2))
    return examine(operators(rows))
