"""One file's events as columns: what a rank did, without an object an event.

Suffix: E events of the file in its order. Times are int64 ns since 1970 where the file says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sfapp.errors import TraceError
from sfapp.importers.kineto.event_reader import Args, Event, EventFile, Header
from sfapp.importers.window_builder import IntArray

HOST, ANNOTATION, RUNTIME, KERNEL, COPY, OTHER = range(6)
"""What an event is by its ``cat``: operator, named range, runtime call, kernel, copy or fill, or other."""

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
"""Ranges repeated for the device, Python's own stack, the profiler itself."""

MOST_EVENTS = 2**24
"""Some 5 GB of a profiler's JSON."""

MOST_NAMES = 2**20
"""Different names, or threads and streams, in one file."""

_MOST_US = 2**62 / 1000
_MOST_NAME = 256

NONE = -1


class _Codes(dict[Any, int]):
    """Each new key gets the next number. Texts in a key are kept as far as a packet may carry them: of a
    template's kernel the beginning is enough."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def __missing__(self, key: Any) -> int:
        kept = tuple(map(_shown, key)) if isinstance(key, tuple) else _shown(key)
        if kept != key:
            return self[kept]
        if len(self) == MOST_NAMES:
            raise TraceError(f"holds more than {MOST_NAMES:,} different names", path=str(self._path))
        self[key] = code = len(self)
        return code


def _shown(text: object) -> str:
    return str(text)[:_MOST_NAME]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The events of one file.

    Attributes:
        path: the file.
        header: who wrote it.
        names: the distinct names; ``name_E`` int32 points into it.
        kind_E: int8, one of the kinds above.
        lanes: the distinct (process, thread or stream), as text; ``lane_E`` int32 points into it.
        start_E, end_E: int64 ns.
        correlation_E, sequence_number_E: int64, -1 for none.
        groups: the distinct (process group, collective) of kernels; ``group_E`` int32 points into it, -1 for
            none.
        skipped: how many events of kinds that are not taken, by kind.
    """

    path: Path
    header: Header
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
        """bool, whether the event ran on a device."""
        return (self.kind_E == KERNEL) | (self.kind_E == COPY)

    def of_names(self, wanted: Iterable[int]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """bool, whether the event has one of these names."""
        table = np.zeros(len(self.names), np.bool_)
        table[list(wanted)] = True
        return table[self.name_E] if len(table) else np.zeros(0, np.bool_)


def read_columns(path: Path) -> Columns:
    """Read one file.

    Raises:
        TraceError: it cannot be read, is cut off, no trace, or an event is impossible.
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
            if count > MOST_EVENTS:
                reason = f"holds more than {MOST_EVENTS:,} events: profile fewer steps at a time"
                raise TraceError(reason, path=str(path), place=f"event {file.count + len(batch):,}")
    if not parts:
        raise TraceError("holds no events with a duration", path=str(path))
    base = file.header.base_ns or 0
    if not 0 <= base < 2**62:
        raise TraceError(f"baseTimeNanoseconds {base} is no time", path=str(path))
    name_E, kind_E, lane_E, start_E, end_E, correlation_E, sequence_number_E, group_E = _joined(parts)
    if int(end_E.max()) + base >= 2**62:
        raise TraceError("an event lies beyond 2^62 ns", path=str(path))
    start_E += base
    end_E += base
    return Columns(
        path, file.header, tuple(names), name_E, kind_E, tuple(lanes), lane_E,
        start_E, end_E, correlation_E, sequence_number_E, tuple(groups), group_E, skipped,
    )  # fmt: skip


def _joined(parts: list[tuple[Any, ...]]) -> list[Any]:
    """Each column of all parts as one array. Takes the parts apart, so that nothing is held twice."""
    columns = [list(column) for column in zip(*parts, strict=True)]
    parts.clear()
    return [np.concatenate(columns.pop(0)) for _ in range(len(columns))]


def _taken(batch: Sequence[Event], skipped: dict[str, int]) -> tuple[list[Event], list[int]]:
    """The events that are kept, and their kinds."""
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


def _check_times(batch: Sequence[Event], taken: Sequence[Event], file: EventFile) -> None:
    """Refuse an event that ends before it starts, or lies where no clock does."""
    if all(-_MOST_US < event.ts < _MOST_US and 0 <= (event.dur or 0) < _MOST_US for event in taken):
        return
    for number, event in enumerate(batch, file.count):
        place = f"event {number:,}"
        name = repr(str(event.name)[:80])
        if event.dur is not None and event.dur < 0:
            reason = f"{name} has a negative duration: {event.dur} µs"
            raise TraceError(reason, path=str(file.path), place=place)
        if not -_MOST_US < (event.ts or 0) < _MOST_US or (event.dur or 0) >= _MOST_US:
            raise TraceError(f"{name} lies at no possible time", path=str(file.path), place=place)


_NO_ARGS = Args()


def _part(
    taken: Sequence[Event], kinds: Sequence[int], names: _Codes, lanes: _Codes, groups: _Codes
) -> tuple[Any, ...]:
    """The columns of some events, in the order of ``Columns``; times without the file's base."""
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
    """Whole nanoseconds. Whole µs stay exact; of a fraction as much is kept as the number holds."""
    values = np.array(microseconds, np.float64)
    whole = np.floor(values)
    return whole.astype(np.int64) * 1000 + np.rint((values - whole) * 1000).astype(np.int64)
