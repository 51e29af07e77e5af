"""A rank's operator events, and which collective of one rank is which of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sfapp.model.operators import CATEGORIES, Lane, Operators
from sfapp.traces.building import IntArray
from sfapp.traces.kineto.columns import ANNOTATION, COPY, HOST, KERNEL, NONE, RUNTIME
from sfapp.traces.kineto.processes import launch_times
from sfapp.traces.kineto.ranges import (
    DEVICE_COLLECTIVE,
    HOST_COLLECTIVE,
    STEP,
    collective_kind,
    stage_of,
)
from sfapp.traces.kineto.stages import Process, collectives_E
from sfapp.traces.mapping import Mapping

_CATEGORY = {name: code for code, name in enumerate(CATEGORIES)}
_OF_KIND = {HOST: "host", ANNOTATION: "other", RUNTIME: "runtime", KERNEL: "kernel", COPY: "copy"}


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """One rank's events, before collectives are numbered across ranks; C collectives.

    Attributes:
        columns: what ``Operators.of`` takes, but for groups and sequences.
        collective_C: positions of collectives, ascending by start.
        group_C: the name of each one's group.
    """

    columns: dict[str, Any]
    collective_C: IntArray
    group_C: tuple[str, ...]


def events_of(process: Process, rank: int, mapping: Mapping) -> Events:
    """The events of a process, each in the step it belongs to: a kernel in that of its launch."""
    columns = process.columns
    marks = [code for code, name in enumerate(columns.names) if STEP.match(name) or mapping.is_step(name)]
    kept_E = process.of_process_E & ~columns.of_names(marks)
    lane_of = {lane: place for place, lane in enumerate(np.unique(columns.lane_E[kept_E]).tolist())}
    is_device_E = columns.is_device_E[kept_E]
    lane_E = columns.lane_E[kept_E]
    device_lanes = set(lane_E[is_device_E].tolist())
    start_E = columns.start_E[kept_E]
    group_E = columns.group_E[kept_E]
    place_C = np.flatnonzero(collectives_E(process)[kept_E])
    place_C = place_C[np.argsort(start_E[place_C], kind="stable")]
    name_E = columns.name_E[kept_E]
    table = np.zeros(len(columns.lanes), np.int32)
    table[list(lane_of)] = list(lane_of.values())
    return Events(
        {
            "names": columns.names,
            "name_E": name_E,
            "category_E": _categories(process, mapping)[kept_E],
            "lanes": [
                _lane(rank, columns.lanes[lane], lane in device_lanes, len(device_lanes)) for lane in lane_of
            ],
            "lane_E": table[lane_E],
            "step_E": _steps(process, kept_E, start_E, is_device_E),
            "start_ns_E": start_E,
            "end_ns_E": columns.end_E[kept_E],
            "correlation_E": columns.correlation_E[kept_E],
            "sequence_number_E": columns.sequence_number_E[kept_E],
        },
        place_C,
        tuple(
            _group(columns.groups[group] if group != NONE else None, columns.names[name])
            for group, name in zip(group_E[place_C].tolist(), name_E[place_C].tolist(), strict=True)
        ),
    )


def _lane(rank: int, lane: tuple[str, str], is_device: bool, devices: int) -> Lane:
    """Named by stream or thread; the process or device before it, for the same number may occur in two."""
    process, number = lane
    if is_device:
        return Lane(rank, f"stream {number.removeprefix('stream ')} of device {process}"[:256], True)
    return Lane(
        rank, f"thread {number}" if process == number else f"thread {number} of {process}"[:256], False
    )


def _group(stated: tuple[str, str] | None, name: str) -> str:
    """The process group where the trace says it, else the kind of collective."""
    if stated is not None and stated[0]:
        return f"group {stated[0]}"[:256]
    return collective_kind(name)


def _categories(process: Process, mapping: Mapping) -> np.ndarray[Any, np.dtype[np.int8]]:
    columns = process.columns
    by_kind = np.full(256, _CATEGORY["other"], np.int8)
    for kind, category in _OF_KIND.items():
        by_kind[kind] = _CATEGORY[category]
    category_E = by_kind[columns.kind_E]
    special = np.full(len(columns.names), NONE, np.int8)
    for code, name in enumerate(columns.names):
        if name.startswith("enumerate(DataLoader)#"):
            special[code] = _CATEGORY["data"]
        elif DEVICE_COLLECTIVE.match(name) or HOST_COLLECTIVE.match(name):
            special[code] = _CATEGORY["collective"]
        elif name.startswith("autograd::"):
            special[code] = _CATEGORY["autograd"]
        elif stage_of(name, mapping):
            special[code] = _CATEGORY["stage"]
    special_E = special[columns.name_E]
    ranged_E = (columns.kind_E == HOST) | (columns.kind_E == ANNOTATION)
    category_E = np.where(ranged_E & (special_E != NONE), special_E, category_E)
    return np.where(collectives_E(process), np.int8(_CATEGORY["collective"]), category_E)


def _steps(process: Process, kept_E: Any, start_E: IntArray, is_device_E: Any) -> IntArray:
    """The step of each event, a device's by its launch. What was launched before the trace began is of no
    step: ranks differ in how much of that they caught."""
    columns = process.columns
    correlation_E = columns.correlation_E[kept_E]
    launch_E = process.of_process_E & (columns.kind_E == RUNTIME) & (columns.correlation_E != NONE)
    begun_E = np.where(is_device_E, launch_times(columns, launch_E, correlation_E), NONE)
    when_E = np.where(begun_E != NONE, begun_E, start_E)
    place_E = np.searchsorted(process.start_N, when_E, "right") - 1
    launched_before_E = is_device_E & (correlation_E != NONE) & (begun_E == NONE) & bool(launch_E.any())
    inside_E = (place_E >= 0) & (when_E < process.end_N[np.maximum(place_E, 0)]) & ~launched_before_E
    return np.where(inside_E, process.step_N[np.maximum(place_E, 0)], NONE)


def joined(events: list[Events]) -> tuple[Operators, tuple[str, ...]]:
    """The events of all ranks, collectives numbered: in each step the k-th of a group on one rank is the k-th
    on the others. Also the groups in which ranks do not have the same number in some step: there nothing says
    which is which, and they stay without a number. Takes the ranks out of the list one by one."""
    counts: dict[tuple[str, int], list[int]] = {}
    for rank, each in enumerate(events):
        for group, step in zip(each.group_C, each.columns["step_E"][each.collective_C].tolist(), strict=True):
            counts.setdefault((group, step), [0] * len(events))[rank] += 1
    names = tuple(dict.fromkeys(group for group, _ in sorted(counts)))
    uneven, first = set(), {}
    reached = dict.fromkeys(names, 0)
    for (group, step), of_rank in sorted(counts.items()):
        taking_part = [count for count in of_rank if count]
        if step == NONE or len(set(taking_part)) > 1:
            uneven |= {group} if step != NONE else set()
            continue
        first[group, step] = reached[group]
        reached[group] += taking_part[0]
    parts = []
    while events:
        parts.append(_numbered(events.pop(0), names, first))
    return Operators.concat(parts), tuple(sorted(uneven))


def _numbered(each: Events, names: tuple[str, ...], first: dict[tuple[str, int], int]) -> Operators:
    code = {name: place for place, name in enumerate(names)}
    size = len(each.columns["start_ns_E"])
    group_E, sequence_E = np.full(size, NONE, np.int32), np.full(size, NONE, np.int64)
    seen: dict[tuple[str, int], int] = {}
    steps = each.columns["step_E"][each.collective_C].tolist()
    for place, group, step in zip(each.collective_C.tolist(), each.group_C, steps, strict=True):
        group_E[place] = code[group]
        if (group, step) in first:
            sequence_E[place] = first[group, step] + seen.get((group, step), 0)
            seen[group, step] = seen.get((group, step), 0) + 1
    return Operators.of(**each.columns, groups=names, group_E=group_E, sequence_E=sequence_E)
