"""Operator events of one window: the work of each rank's threads and streams (operators.md).

Shape suffix: E events, ascending by (rank, start, longest first), so that an enclosing event precedes the
enclosed ones. Events are stored as columns, because a step of one rank has thousands of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sfapp.errors import WindowError

Ints = npt.NDArray[np.int64]

CATEGORIES = (
    "stage",
    "host",
    "autograd",
    "kernel",
    "copy",
    "collective",
    "runtime",
    "data",
    "other",
)
"""What an event is: a range that marks a stage, an operator on the host, a node of the backward pass, a
device kernel, a device copy or fill, a collective (on the host, or its kernel), a call into the device's
runtime (a launch), a wait for or the making of input, anything else."""

STAGE, HOST, AUTOGRAD, KERNEL, COPY, COLLECTIVE, RUNTIME, DATA, OTHER = range(len(CATEGORIES))

NONE = -1
"""No value in ``step_E``, ``correlation_E``, ``group_E``, ``sequence_E`` or ``sequence_number_E``."""

COLUMNS = {
    "name_E": np.int32,
    "category_E": np.int8,
    "lane_E": np.int32,
    "step_E": np.int64,
    "start_ns_E": np.int64,
    "end_ns_E": np.int64,
    "correlation_E": np.int64,
    "group_E": np.int32,
    "sequence_E": np.int64,
    "sequence_number_E": np.int64,
}
"""The columns of ``Operators`` and their types."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A sequence of events: a thread, or a stream of a device, of one rank."""

    rank: int
    name: str
    is_device: bool


@dataclass(frozen=True, slots=True, eq=False)
class Operators:
    """The E operator events of one window, of all its ranks or of some; ``Operators.of`` puts them in order.

    Attributes:
        names: the distinct names.
        name_E: int32 [E], index into ``names``.
        category_E: int8 [E], index into ``CATEGORIES``.
        lanes: the threads and streams, each (rank, name) once.
        lane_E: int32 [E], index into ``lanes``.
        step_E: int64 [E], logical optimizer step, -1 outside any. A kernel belongs to the step of its launch.
        start_ns_E, end_ns_E: int64 ns [E], on one time axis for all ranks, as well as the source allows.
        correlation_E: int64 [E], connects a launch with its device event, within one rank; -1 for none.
        groups: names of the process groups.
        group_E: int32 [E], index into ``groups``, -1 for none.
        sequence_E: int64 [E], number of the collective in its group, the same on all its ranks; -1 for none.
        sequence_number_E: int64 [E], autograd's number, which connects a forward operator with its backward
            node within one rank; -1 for none.

    Raises:
        WindowError: columns of different lengths or types, an index outside its table, a lane named twice, an
            event that ends before it starts, or events out of order.
    """

    names: tuple[str, ...]
    name_E: npt.NDArray[np.int32]
    category_E: npt.NDArray[np.int8]
    lanes: tuple[Lane, ...]
    lane_E: npt.NDArray[np.int32]
    step_E: Ints
    start_ns_E: Ints
    end_ns_E: Ints
    correlation_E: Ints
    groups: tuple[str, ...]
    group_E: npt.NDArray[np.int32]
    sequence_E: Ints
    sequence_number_E: Ints

    def __post_init__(self) -> None:
        events = len(self.start_ns_E)
        for column, kind in COLUMNS.items():
            values = getattr(self, column)
            if values.shape != (events,) or values.dtype != kind:
                raise WindowError(
                    f"operators: {column} must be {np.dtype(kind)} [{events}], "
                    f"not {values.dtype} {list(values.shape)}"
                )
        self._check_index("name_E", 0, len(self.names))
        self._check_index("category_E", 0, len(CATEGORIES))
        self._check_index("lane_E", 0, len(self.lanes))
        self._check_index("group_E", NONE, len(self.groups))
        if len({(lane.rank, lane.name) for lane in self.lanes}) != len(self.lanes):
            raise WindowError("operators: a lane is listed twice; merge its events into one")
        if (self.end_ns_E < self.start_ns_E).any():
            event = int((self.end_ns_E < self.start_ns_E).argmax())
            raise WindowError(f"operators: event {event}, {self.name(event)!r}, ends before it starts")
        if not _ascending(self.rank_E, self.start_ns_E, self.end_ns_E):
            raise WindowError("operators: events are out of order; build them with Operators.of")

    def _check_index(self, column: str, low: int, size: int) -> None:
        values = getattr(self, column)
        if len(values) and not (low <= int(values.min()) and int(values.max()) < size):
            raise WindowError(f"operators: {column} points outside its table of {size}")

    def __len__(self) -> int:
        return len(self.start_ns_E)

    @classmethod
    def of(
        cls,
        *,
        names: Sequence[str],
        name_E: npt.ArrayLike,
        category_E: npt.ArrayLike,
        lanes: Sequence[Lane],
        lane_E: npt.ArrayLike,
        start_ns_E: npt.ArrayLike,
        end_ns_E: npt.ArrayLike,
        step_E: npt.ArrayLike | None = None,
        correlation_E: npt.ArrayLike | None = None,
        groups: Sequence[str] = (),
        group_E: npt.ArrayLike | None = None,
        sequence_E: npt.ArrayLike | None = None,
        sequence_number_E: npt.ArrayLike | None = None,
    ) -> Operators:
        """Return the given events in order; an omitted column has no value for any event.

        Raises:
            WindowError: as ``Operators``.
        """
        given = {
            "name_E": name_E,
            "category_E": category_E,
            "lane_E": lane_E,
            "step_E": step_E,
            "start_ns_E": start_ns_E,
            "end_ns_E": end_ns_E,
            "correlation_E": correlation_E,
            "group_E": group_E,
            "sequence_E": sequence_E,
            "sequence_number_E": sequence_number_E,
        }
        events = len(np.asarray(start_ns_E))
        columns = {
            column: np.full(events, NONE, kind) if given[column] is None else np.asarray(given[column], kind)
            for column, kind in COLUMNS.items()
        }
        lengths = {len(values) for values in columns.values()}
        rank_L = np.asarray([lane.rank for lane in lanes], np.int64)
        lane_in_range = not events or (columns["lane_E"].min() >= 0 and columns["lane_E"].max() < len(lanes))
        if lengths == {events} and lane_in_range:
            rank_E = rank_L[columns["lane_E"]] if events else np.empty(0, np.int64)
            order = event_order(rank_E, columns["start_ns_E"], columns["end_ns_E"])
            if order is not None:
                columns = {column: values[order] for column, values in columns.items()}
        return cls(names=tuple(names), lanes=tuple(lanes), groups=tuple(groups), **columns)

    @classmethod
    def concat(cls, parts: Sequence[Operators]) -> Operators:
        """Merge the events of several sources; equal names, lanes and groups become one.

        Raises:
            WindowError: a lane is a device's in one part and a host's in another.
        """
        names: dict[str, int] = {}
        groups: dict[str, int] = {}
        lanes: dict[Lane, int] = {}
        columns: dict[str, list[Any]] = {column: [] for column in COLUMNS}
        for part in parts:
            tables: dict[str, npt.NDArray[np.int64]] = {
                "name_E": _codes(part.names, names),
                "lane_E": _codes(part.lanes, lanes),
                "group_E": np.append(_codes(part.groups, groups), NONE),  # index -1 remains "none"
            }
            for column, found in columns.items():
                values = getattr(part, column)
                found.append(tables[column][values] if column in tables and len(values) else values)
        joined: dict[str, Any] = {
            column: np.concatenate(found) if found else np.empty(0, COLUMNS[column])
            for column, found in columns.items()
        }
        return cls.of(names=tuple(names), lanes=tuple(lanes), groups=tuple(groups), **joined)

    @property
    def rank_E(self) -> Ints:
        """The rank of each event, int64 [E]."""
        if not self.lanes:
            return np.empty(0, np.int64)
        return np.asarray([lane.rank for lane in self.lanes], np.int64)[self.lane_E]

    @property
    def is_device_E(self) -> npt.NDArray[np.bool_]:
        """Whether each event ran on a device, bool [E]."""
        if not self.lanes:
            return np.empty(0, np.bool_)
        return np.asarray([lane.is_device for lane in self.lanes], np.bool_)[self.lane_E]

    @property
    def duration_ns_E(self) -> Ints:
        """The duration of each event, int64 ns [E]."""
        return self.end_ns_E - self.start_ns_E

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have events, ascending."""
        return tuple(np.unique(self.rank_E).tolist())

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that have events, ascending."""
        return tuple(step for step in np.unique(self.step_E).tolist() if step != NONE)

    def name(self, event: int) -> str:
        """Return the name of one event."""
        return self.names[int(self.name_E[event])]

    def lane(self, event: int) -> Lane:
        """Return the thread or stream of one event."""
        return self.lanes[int(self.lane_E[event])]

    def select(self, mask: npt.NDArray[np.bool_] | Ints | slice) -> Operators:
        """Return some of the events, by a mask, ascending positions or a slice; the tables do not change."""
        return replace(self, **{column: getattr(self, column)[mask] for column in COLUMNS})

    def of_rank(self, rank: int) -> Operators:
        """Return the events of one rank."""
        begin, end = np.searchsorted(self.rank_E, (rank, rank + 1))
        return self.select(slice(int(begin), int(end)))


def _codes(values: Sequence[Any], table: dict[Any, int]) -> npt.NDArray[np.int64]:
    return np.asarray([table.setdefault(value, len(table)) for value in values], np.int64)


def event_order(rank_E: Ints, start_E: Ints, end_E: Ints) -> Ints | None:
    """Return the rows of events ordered by rank, then by start, longer ones first; None if they are in this
    order."""
    return None if _ascending(rank_E, start_E, end_E) else np.lexsort((-end_E, start_E, rank_E))


def _ascending(rank_E: Ints, start_E: Ints, end_E: Ints) -> bool:
    rank, start, end = np.diff(rank_E), np.diff(start_E), np.diff(end_E)
    later = (start > 0) | ((start == 0) & (end <= 0))
    return bool(((rank > 0) | ((rank == 0) & later)).all())
