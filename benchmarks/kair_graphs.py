"""Generate jobs with one planted cause: a small simulator of hosts, streams and collectives.

Every step of every rank: load data; per layer a host operator launches a kernel on stream 7 and another on
stream 8 (a diamond that the next call joins), then pairs of ranks exchange on a third stream; at the end all
ranks reduce, the host waits for the device, and the optimizer runs. A late rank delays its pair, and the pair
delays all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sfapp.model import Lane, Operators
from sfapp.model.operators import COLLECTIVE, DATA, HOST, KERNEL, RUNTIME

US = 1_000
PLANTS = (
    "kernel",
    "side kernel",
    "host",
    "input",
    "gap",
    "late collective",
    "pair transfer",
    "transfer",
    "extra",
)
LANES = ("thread 1", "stream 7", "stream 8", "stream 20")
THREAD, MAIN, SIDE, COMM = range(len(LANES))


@dataclass(frozen=True, slots=True)
class Plant:
    """The fault in a generated job.

    Attributes:
        what: one of ``PLANTS``.
        delay_ns: its delay.
    """

    what: str
    rank: int
    step: int
    layer: int
    delay_ns: int


@dataclass(frozen=True, slots=True)
class Truth:
    """The expected cause."""

    kind: str
    name: str
    ranks: tuple[int, ...]
    nature: str


@dataclass(slots=True)
class _Job:
    """Ranks' clocks and events while they are generated."""

    ranks: int
    noise: float
    random: np.random.Generator
    free: np.ndarray = field(init=False)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    step: int = 0
    correlation: int = 0

    def __post_init__(self) -> None:
        self.free = np.zeros((len(LANES), self.ranks))

    def took(self, microseconds: float) -> np.ndarray:
        return microseconds * US * self.random.lognormal(0, self.noise, self.ranks)

    def add(self, name: str, category: int, lane: int, begin: Any, end: Any, **more: Any) -> None:
        self.rows.extend(
            (name, category, rank, lane, begin[rank], end[rank], self.step, more)
            for rank in range(self.ranks)
            if end[rank] >= begin[rank]
        )
        self.free[lane] = np.maximum(self.free[lane], end)


def job(
    ranks: int, steps: int, layers: int, plant: Plant, noise: float, seed: int
) -> tuple[Operators, Truth]:
    """Return the events of a job with one fault, and the fault."""
    made = _Job(ranks, noise, np.random.default_rng(seed))
    for step in range(steps):
        made.step = step
        _step(made, layers, plant if plant.step == step else None)
    return _operators(made), _truth(plant, ranks)


def _at(plant: Plant | None, what: str, layer: int | None, ranks: int) -> np.ndarray:
    delay = np.zeros(ranks)
    if plant is not None and plant.what == what and layer in (None, plant.layer):
        delay[plant.rank] = plant.delay_ns
    return delay


def _step(made: _Job, layers: int, plant: Plant | None) -> None:
    ranks = made.ranks
    begin = made.free[THREAD] + made.took(3)
    made.add("next_batch", DATA, THREAD, begin, begin + made.took(400) + _at(plant, "input", None, ranks))
    for layer in range(layers):
        _layer(made, layer, plant)
    kernel_done = made.free[:COMM].max(axis=0)
    _collective(made, "all_reduce", kernel_done, 900, ["world"] * ranks, made.step, plant, None)
    begin = made.free[THREAD] + made.took(2)
    end = np.maximum(begin, made.free.max(axis=0)) + made.took(5)
    made.add("cudaDeviceSynchronize", RUNTIME, THREAD, begin, end)
    begin = end + made.took(2)
    made.add("optimizer", HOST, THREAD, begin, begin + made.took(250))


def _layer(made: _Job, layer: int, plant: Plant | None) -> None:
    """Add one host operator, its two kernels, and the following exchange of the pair."""
    ranks = made.ranks
    begin = made.free[THREAD] + made.took(2) + _at(plant, "gap", layer, ranks)
    if plant is not None and plant.what == "extra" and plant.layer == layer:
        end = begin + made.took(1) + _at(plant, "extra", layer, ranks)
        only = np.full(ranks, -1.0)
        only[plant.rank] = end[plant.rank]
        made.add("gc.collect", HOST, THREAD, begin, only)
        begin = np.where(np.arange(ranks) == plant.rank, end, begin) + made.took(2)
    launch = begin + made.took(10) + _at(plant, "host", layer, ranks)
    launched = launch + made.took(6)
    made.add(f"layer {layer}", HOST, THREAD, begin, launched + made.took(5) + made.took(6))
    after_pair = made.free[COMM].copy()
    for lane, name, length, what in ((MAIN, "gemm", 700, "kernel"), (SIDE, "norm", 650, "side kernel")):
        made.correlation += 1
        call = launch if lane == MAIN else launched + 1 * US
        returned = call + made.took(3)
        made.add("cudaLaunchKernel", RUNTIME, THREAD, call, returned, correlation=made.correlation)
        start = np.maximum.reduce([returned, made.free[lane], made.free[MAIN], after_pair]) + made.took(2)
        end = start + made.took(length) + _at(plant, what, layer, ranks)
        made.add(f"{name} {layer}", KERNEL, lane, start, end, correlation=made.correlation)
    ready = np.maximum(made.free[MAIN], made.free[SIDE])
    pairs = [f"pair {rank // 2}" for rank in range(ranks)]
    sequence = made.step * 10_000 + layer
    _collective(made, f"exchange {layer}", ready, 120, pairs, sequence, plant, layer)


def _collective(
    made: _Job,
    name: str,
    ready: Any,
    length: float,
    groups: list[str],
    sequence: int,
    plant: Plant | None,
    layer: int | None,
) -> None:
    """Add a collective: every rank arrives when it is ready, and all ranks of a group leave together."""
    ranks = made.ranks
    paired = layer is not None
    made.correlation += 1
    call = made.free[THREAD] + made.took(1)
    made.add("cudaLaunchKernel", RUNTIME, THREAD, call, call + made.took(4), correlation=made.correlation)
    ready = np.maximum(ready, made.free[THREAD])
    start = np.maximum(ready, made.free[COMM]) + made.took(2)
    if paired:
        start = start + _at(plant, "late collective", layer, ranks)
    transfer = made.took(length) + _at(plant, "pair transfer" if paired else "transfer", layer, ranks)
    end = np.empty(ranks)
    for group in set(groups):
        members = [rank for rank in range(ranks) if groups[rank] == group]
        end[members] = start[members].max() + transfer[members].max()
    for rank in range(ranks):
        place = np.arange(ranks) == rank
        only = np.where(place, end, -1.0)
        begin = np.where(place, start, 0.0)
        more = {"group": groups[rank], "sequence": sequence, "correlation": made.correlation}
        made.add(name, COLLECTIVE, COMM, begin, only, **more)


def _operators(made: _Job) -> Operators:
    name, category, rank, lane, begin, end, step, more = zip(*made.rows, strict=True)
    names = tuple(dict.fromkeys(name))
    groups = tuple(dict.fromkeys(each["group"] for each in more if "group" in each))
    given: Mapping[str, Any] = {
        key: [each.get(key, -1) for each in more] for key in ("correlation", "sequence")
    }
    return Operators.of(
        names=names,
        name_E=[names.index(each) for each in name],
        category_E=category,
        lanes=[Lane(rank, lane, "stream" in lane) for rank in range(made.ranks) for lane in LANES],
        lane_E=np.asarray(rank) * len(LANES) + np.asarray(lane),
        start_ns_E=np.asarray(begin).astype(np.int64),
        end_ns_E=np.asarray(end).astype(np.int64),
        step_E=step,
        correlation_E=given["correlation"],
        groups=groups,
        group_E=[groups.index(each["group"]) if "group" in each else -1 for each in more],
        sequence_E=given["sequence"],
    )


def _truth(plant: Plant, ranks: int) -> Truth:
    pair = (plant.rank // 2 * 2, plant.rank // 2 * 2 + 1)
    alone = (plant.rank,)
    return {
        "kernel": Truth("operator", f"gemm {plant.layer}", alone, "compute"),
        "side kernel": Truth("operator", f"norm {plant.layer}", alone, "compute"),
        "host": Truth("operator", f"layer {plant.layer}", alone, "compute"),
        "input": Truth("operator", "next_batch", alone, "input"),
        "gap": Truth("edge", f"layer {plant.layer}", alone, "idle"),
        "late collective": Truth("edge", f"exchange {plant.layer}", alone, "communication"),
        "pair transfer": Truth("transfer", f"exchange {plant.layer}", pair, "communication"),
        "transfer": Truth("transfer", "all_reduce", tuple(range(ranks)), "communication"),
        "extra": Truth("extra", "gc.collect", alone, "compute"),
    }[plant.what]
