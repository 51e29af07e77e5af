"""Collect operator events of ranks and match collectives across ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from collections.abc import Mapping as Table
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfapp.importers.kineto.event_columns import ANNOTATION, COPY, HOST, KERNEL, NONE, RUNTIME, EventColumns
from sfapp.importers.kineto.processes import launch_times
from sfapp.importers.kineto.ranges import (
    DEVICE_COLLECTIVE,
    HOST_COLLECTIVE,
    STEP,
    collective_kind,
    stage_of,
)
from sfapp.importers.kineto.stage_rules import Bools, Process, collectives_E
from sfapp.importers.mapping import Mapping
from sfapp.importers.window_builder import IntArray
from sfapp.model.operators import CATEGORIES, COLUMNS, Lane, Operators

_CATEGORY = {name: code for code, name in enumerate(CATEGORIES)}
_COLUMNS = {name: kind for name, kind in COLUMNS.items() if name not in ("group_E", "sequence_E")}
"""Columns that are known per rank; collectives are numbered across ranks."""

_OF_KIND = {HOST: "host", ANNOTATION: "other", RUNTIME: "runtime", KERNEL: "kernel", COPY: "copy"}


class JobOperators:
    """Operator events of a job's ranks, added rank by rank in ascending order.

    One array per column holds the events of all ranks, so that nothing is held twice.

    Args:
        most: upper bound of the number of events.
    """

    def __init__(self, most: int) -> None:
        self._columns = {column: np.empty(most, kind) for column, kind in _COLUMNS.items()}
        self._size = 0
        self._names: dict[str, int] = {}
        self._lanes: dict[Lane, int] = {}
        self._collectives: list[Collectives] = []

    def add(self, process: Process, rank: int, mapping: Mapping) -> None:
        """Add the events of a process with their steps; a kernel belongs to the step of its launch."""
        columns = process.columns
        marks = [code for code, name in enumerate(columns.names) if STEP.match(name) or mapping.is_step(name)]
        kept = np.flatnonzero(process.of_process_E & ~columns.of_names(marks))
        kept = kept[np.lexsort((-columns.end_E[kept], columns.start_E[kept]))]
        begin, self._size = self._size, self._size + len(kept)
        own = {column: values[begin : self._size] for column, values in self._columns.items()}
        name_E, is_device_E = columns.name_E[kept], columns.is_device_E[kept]
        own["name_E"][:] = _codes(columns.names, self._names)[name_E]
        own["lane_E"][:] = self._lane_codes(columns, rank, columns.lane_E[kept].astype(np.int64), is_device_E)
        own["category_E"][:] = _categories(process, mapping)[kept]
        own["start_ns_E"][:] = columns.start_E[kept]
        own["end_ns_E"][:] = columns.end_E[kept]
        own["step_E"][:] = _steps(process, kept, own["start_ns_E"], is_device_E)
        own["correlation_E"][:] = columns.correlation_E[kept]
        own["sequence_number_E"][:] = columns.sequence_number_E[kept]
        place_C = np.flatnonzero(collectives_E(process)[kept])
        stated_C, name_C = columns.group_E[kept[place_C]].tolist(), name_E[place_C].tolist()
        group_C = tuple(
            _group(columns.groups[stated] if stated != NONE else None, columns.names[name])
            for stated, name in zip(stated_C, name_C, strict=True)
        )
        self._collectives.append(Collectives(begin + place_C, group_C, own["step_E"][place_C]))

    def _lane_codes(self, columns: EventColumns, rank: int, lane_E: IntArray, is_device_E: Bools) -> IntArray:
        """Return each event's thread or stream; a lane with device events is a stream."""
        lanes, place_E = np.unique(lane_E, return_inverse=True)
        on_device = set(place_E[is_device_E].tolist())
        named = [
            _lane(rank, columns.lanes[lane], place in on_device) for place, lane in enumerate(lanes.tolist())
        ]
        return _codes(named, self._lanes)[place_E]

    def operators(self) -> tuple[Operators, tuple[str, ...]]:
        """Return all events, and the groups with unnumbered collectives (``numbered``)."""
        columns: dict[str, Any] = {column: values[: self._size] for column, values in self._columns.items()}
        groups, first, uneven = numbered(self._collectives)
        code = {group: place for place, group in enumerate(groups)}
        columns["group_E"] = np.full(self._size, NONE, np.int32)
        columns["sequence_E"] = np.full(self._size, NONE, np.int64)
        for each in self._collectives:
            columns["group_E"][each.place_C] = [code[group] for group in each.group_C]
            columns["sequence_E"][each.place_C] = each.sequences(first)
        operators = Operators.of(names=tuple(self._names), lanes=tuple(self._lanes), groups=groups, **columns)
        return operators, uneven


@dataclass(frozen=True, slots=True, eq=False)
class Collectives:
    """Collectives of one rank in order of time.

    Attributes:
        place_C: positions among all events.
        group_C: names of the groups; step_C: steps, -1 for none.
    """

    place_C: IntArray
    group_C: tuple[str, ...]
    step_C: IntArray

    @property
    def keys(self) -> list[tuple[str, int]]:
        """Return group and step of each collective."""
        return list(zip(self.group_C, self.step_C.tolist(), strict=True))

    def sequences(self, first: Table[tuple[str, int], int]) -> list[int]:
        """Return each collective's number in its group, counted from the first of its step; -1 for none."""
        seen: Counter[tuple[str, int]] = Counter()
        found = []
        for key in self.keys:
            found.append(first[key] + seen[key] if key in first else NONE)
            seen[key] += 1
        return found


def numbered(
    ranks: Sequence[Collectives],
) -> tuple[tuple[str, ...], dict[tuple[str, int], int], tuple[str, ...]]:
    """Number collectives across ranks: in each step, the k-th of a group on one rank is the k-th on the
    others.

    Returns:
        The groups; the number of the first collective of a group in each step; and the groups whose ranks
        have different counts in some step. Collectives cannot be matched there, so that step has no numbers.
    """
    counts = [Counter(each.keys) for each in ranks]
    keys = sorted(set().union(*counts))
    groups = tuple(dict.fromkeys(group for group, _ in keys))
    reached = dict.fromkeys(groups, 0)
    first: dict[tuple[str, int], int] = {}
    uneven: dict[str, None] = {}
    for key in keys:
        taking_part = {count[key] for count in counts if key in count}
        if key[1] == NONE:
            continue
        if len(taking_part) > 1:
            uneven[key[0]] = None
            continue
        first[key] = reached[key[0]]
        reached[key[0]] += taking_part.pop()
    return groups, first, tuple(uneven)


def _codes(values: Sequence[Hashable], table: dict[Any, int]) -> IntArray:
    """Return each value's number in a table, which grows by new values."""
    return np.array([table.setdefault(value, len(table)) for value in values], np.int64)


def _lane(rank: int, lane: tuple[str, str], is_device: bool) -> Lane:
    """Return a lane named by stream or thread and by process or device, because numbers can repeat."""
    process, number = lane
    if is_device:
        return Lane(rank, f"stream {number.removeprefix('stream ')} of device {process}"[:256], True)
    return Lane(
        rank, f"thread {number}" if process == number else f"thread {number} of {process}"[:256], False
    )


def _group(stated: tuple[str, str] | None, name: str) -> str:
    """Return the process group if the trace states it, or else the kind of collective."""
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


def _steps(process: Process, kept: IntArray, start_E: IntArray, is_device_E: Any) -> IntArray:
    """Return the step of each event; a device event belongs to the step of its launch.

    Events that were launched before the trace began have no step: ranks differ in how many of them they
    recorded.
    """
    columns = process.columns
    correlation_E = columns.correlation_E[kept]
    launch_E = process.of_process_E & (columns.kind_E == RUNTIME) & (columns.correlation_E != NONE)
    begun_E = np.where(is_device_E, launch_times(columns, launch_E, correlation_E), NONE)
    when_E = np.where(begun_E != NONE, begun_E, start_E)
    place_E = np.searchsorted(process.start_N, when_E, "right") - 1
    launched_before_E = is_device_E & (correlation_E != NONE) & (begun_E == NONE) & bool(launch_E.any())
    inside_E = (place_E >= 0) & (when_E < process.end_N[np.maximum(place_E, 0)]) & ~launched_before_E
    return np.where(inside_E, process.step_N[np.maximum(place_E, 0)], NONE)
