"""Read one file's events as columns, without one object per event.

Suffix: E events in the order of the file. Times are int64 ns, since 1970 if the file has a base time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sfapp.errors import TraceError
from sfapp.importers.kineto.event_reader import EventArgs, EventFile, TraceEvent, TraceHeader
from sfapp.importers.window_builder import IntArray

HOST, ANNOTATION, RUNTIME, KERNEL, COPY, OTHER = range(6)
"""Kind of an event by its ``cat``: operator, named range, runtime call, kernel, copy or fill, other."""

_KINDS = {
    "cpu_op": HOST,
    "operator": HOST,  # until 2021
    "user_annotation": ANNOTATION,
    "cuda_runtime": RUNTIME,
    "cuda_driver": RUNTIME,
    "hip_runtime": RUNTIME,
    "xpu_runtime": RUNTIME,
    "runtime": RUNTIME,
    "kernel": KERNEL,
    "gpu_memcpy": COPY,
    "gpu_memset": COPY,
    "memcpy": COPY,
    "memset": COPY,
}
_SKIPPED = {"gpu_user_annotation", "python_function", "trace", "overhead"}
"""Ranges repeated for the device, Python stack frames, the profiler's own events."""

MAX_EVENTS = 2**24
"""Largest number of events, about 5 GB of JSON."""

MAX_NAMES = 2**20
"""Largest number of distinct names, or threads and streams, in one file."""

_MOST_US = 2**62 / 1000
_MOST_NAME = 256

NONE = -1


class _Codes(dict[Any, int]):
    """Table that numbers keys in order of appearance. Texts in a key are cut to the length that a packet
    allows."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def __missing__(self, key: Any) -> int:
        kept = tuple(map(_shown, key)) if isinstance(key, tuple) else _shown(key)
        if kept != key:
            return self[kept]
        if len(self) == MAX_NAMES:
            raise TraceError(f"holds more than {MAX_NAMES:,} different names", path=str(self._path))
        self[key] = code = len(self)
        return code


def _shown(text: object) -> str:
    return str(text)[:_MOST_NAME]


@dataclass(frozen=True, slots=True, eq=False)
class EventColumns:
    """Events of one file.

    Attributes:
        path: the file.
        header: the file's header.
        names: the distinct names; ``name_E`` int32 points into it.
        kind_E: int8, one of the kinds above.
        lanes: the distinct (process, thread or stream), as text; ``lane_E`` int32 points into it.
        start_E, end_E: int64 ns.
        correlation_E, sequence_number_E: int64, -1 for none.
        groups: the distinct (process group, collective) of kernels; ``group_E`` int32 points into it, -1 for
            none.
        skipped: number of skipped events by kind.
    """

    path: Path
    header: TraceHeader
    names: tuple[str, ...]
    name_E: np.ndarray[Any, np.dtype[np.int32]]
    kind_E: np.ndarray[Any, np.dtype[np.int8]]
    lanes: tuple[tuple[str, str], ...]
    lane_E: np.ndarray[Any, np.dtype[np.int32]]
    start_E: IntArray
    end_E: IntArray
    correlation_E: IntArray
    sequence_number_E: IntArray
    groups: tuple[tuple[str, str], ...]
    group_E: np.ndarray[Any, np.dtype[np.int32]]
    skipped: dict[str, int] = field(default_factory=dict)

    @property
    def is_device_E(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return whether each event ran on a device, bool [E]."""
        on_device_E: np.ndarray[Any, np.dtype[np.bool_]] = (self.kind_E == KERNEL) | (self.kind_E == COPY)
        return on_device_E

    def of_names(self, wanted: Iterable[int]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return whether each event has one of these names, bool [E]."""
        table = np.zeros(len(self.names), np.bool_)
        table[list(wanted)] = True
        return table[self.name_E] if len(table) else np.zeros(0, np.bool_)


def read_columns(path: Path) -> EventColumns:
    """Read one file.

    Raises:
        TraceError: the file cannot be read, is truncated, is not a trace, or has an invalid event.
    """
    file = EventFile(path)
    names, lanes, groups = _Codes(path), _Codes(path), _Codes(path)
    skipped: dict[str, int] = {}
    parts: list[tuple[Any, ...]] = []
    count = 0
    for batch in file.batches():
        taken, kinds = _taken(batch, skipped)
        if taken:
            _check_times(batch, taken, file)
            parts.append(_part(taken, kinds, names, lanes, groups))
            count += len(taken)
            if count > MAX_EVENTS:
                reason = f"holds more than {MAX_EVENTS:,} events: profile fewer steps at a time"
                raise TraceError(reason, path=str(path), place=f"event {file.count + len(batch):,}")
    if not parts:
        raise TraceError("holds no events with a duration", path=str(path))
    base = file.header.base_ns or 0
    if not 0 <= base < 2**62:
        raise TraceError(f"baseTimeNanoseconds {base} is not a time", path=str(path))
    name_E, kind_E, lane_E, start_E, end_E, correlation_E, sequence_number_E, group_E = _joined(parts)
    if int(end_E.max()) + base >= 2**62:
        raise TraceError("an event lies beyond 2^62 ns", path=str(path))
    start_E += base
    end_E += base
    return EventColumns(
        path, file.header, tuple(names), name_E, kind_E, tuple(lanes), lane_E,
        start_E, end_E, correlation_E, sequence_number_E, tuple(groups), group_E, skipped,
    )  # fmt: skip


def _joined(parts: list[tuple[Any, ...]]) -> list[Any]:
    """Concatenate each column of all parts; empties the parts so that nothing is held twice."""
    columns = [list(column) for column in zip(*parts, strict=True)]
    parts.clear()
    return [np.concatenate(columns.pop(0)) for _ in range(len(columns))]


def _taken(batch: Sequence[TraceEvent], skipped: dict[str, int]) -> tuple[list[TraceEvent], list[int]]:
    """Return the events that are kept, and their kinds."""
    taken, kinds = [], []
    kind_of = _KINDS.get
    for event in batch:
        if event.ph != "X" or event.ts is None:
            continue
        cat = event.cat or ""
        kind = kind_of(cat)
        if kind is None:
            cat = cat.lower()
            if cat in _SKIPPED:
                skipped[cat] = skipped.get(cat, 0) + 1
                continue
            kind = _KINDS.get(cat, RUNTIME if cat.endswith(("_runtime", "_driver")) else OTHER)
        taken.append(event)
        kinds.append(kind)
    return taken, kinds


def _check_times(batch: Sequence[TraceEvent], taken: Sequence[TraceEvent], file: EventFile) -> None:
    """Refuse events with a negative duration or an impossible time."""
    if all(-_MOST_US < (event.ts or 0) < _MOST_US and 0 <= (event.dur or 0) < _MOST_US for event in taken):
        return
    for number, event in enumerate(batch, file.count):
        place = f"event {number:,}"
        name = repr(str(event.name)[:80])
        if event.dur is not None and event.dur < 0:
            reason = f"{name} has a negative duration: {event.dur} µs"
            raise TraceError(reason, path=str(file.path), place=place)
        if not -_MOST_US < (event.ts or 0) < _MOST_US or (event.dur or 0) >= _MOST_US:
            raise TraceError(f"{name} has an impossible time", path=str(file.path), place=place)


_NO_ARGS = EventArgs()


def _part(
    taken: Sequence[TraceEvent], kinds: Sequence[int], names: _Codes, lanes: _Codes, groups: _Codes
) -> tuple[Any, ...]:
    """Return the columns of some events, in the order of ``EventColumns``; times exclude the base time."""
    args = [event.args or _NO_ARGS for event in taken]
    start = _nanoseconds([event.ts for event in taken])
    return (
        np.array([names[event.name] for event in taken], np.int32),
        np.array(kinds, np.int8),
        np.array([lanes[(str(event.pid), str(event.tid))] for event in taken], np.int32),
        start,
        start + _nanoseconds([event.dur or 0 for event in taken]),
        np.array([_number(each.correlation) for each in args], np.int64),
        np.array([_number(each.sequence_number) for each in args], np.int64),
        np.array(
            [
                NONE if each.collective is None else groups[(str(each.group or ""), str(each.collective))]
                for each in args
            ],
            np.int32,
        ),
    )


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < 2**62 else NONE


def _nanoseconds(microseconds: Sequence[Any]) -> IntArray:
    """Convert µs to whole ns. Whole µs stay exact; fractions keep the precision of a float."""
    values = np.array(microseconds, np.float64)
    whole = np.floor(values)
    return whole.astype(np.int64) * 1000 + np.rint((values - whole) * 1000).astype(np.int64)
