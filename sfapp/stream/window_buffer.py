"""Hold the rows of a window on the aggregator until all of its ranks have sent their rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import UnsetType

from sfapp.model.rank_table import RankIdentity
from sfapp.packets.window_rows import STEP_COLUMN, WindowBuffer, WindowSchema
from sfapp.stream.codec import datetime_from_ns, evidence_values
from sfapp.stream.messages import StreamHello, WindowClosed, WindowOpened

Rows = npt.NDArray[np.int64]
WindowKey = tuple[str, int, str]
"""Run, number and attempt's label of a window."""

_EMPTY_BYTES, _NAME_BYTES = 1024, 64
"""Approximate bytes in memory of a window without steps, and of a name in addition to its text."""

_MOST_MISSING = 4096
"""Missing ranks that a packet may name for each rank in it, 28 kB: a rank may claim a world of any size."""

NOT_CLOSED = "the rank fell silent before it closed its window"


def hello_size(hello: StreamHello) -> int:
    """Return the bytes in memory of a hello's fields of any size: an empty list is one byte of a message."""
    size, left = 0, [hello.extra, hello.attributes]
    while left:
        value: Any = left.pop()
        size += sys.getsizeof(value)
        if isinstance(value, dict):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            left += value
    return size


@dataclass(slots=True, eq=False)
class RankRows:
    """One rank's rows of one window that have arrived so far.

    Attributes:
        number: number of the window on disk.
        attempt: label of the rank's attempt in packets.
        end: sequence after the window's last element, known once it is closed.
        is_durable: whether it is on disk, or was discarded for good.
        has_gap: whether the rank discarded its last steps before they were sent.
        size: approximate bytes in memory.
    """

    hello: StreamHello
    opened: WindowOpened
    number: int
    attempt: str
    chunks: list[Rows] = field(default_factory=list)
    steps: int = 0
    size: int = field(init=False)
    last_step: int | None = None
    closed: WindowClosed | None = None
    end: int | None = None
    is_durable: bool = False
    has_gap: bool = False

    def __post_init__(self) -> None:
        names = (*self.opened.broad, *self.opened.stages)
        self.size = _EMPTY_BYTES + sum(map(len, names)) + _NAME_BYTES * len(names)
        self.size += hello_size(self.hello)

    @property
    def key(self) -> WindowKey:
        return self.hello.run_id, self.number, self.attempt

    def add(self, rows: Rows) -> None:
        """Append steps."""
        self.chunks.append(rows)
        self.steps += len(rows)
        self.size += rows.nbytes
        self.last_step = int(rows[-1, STEP_COLUMN])

    def take_hello(self, hello: StreamHello) -> None:
        """Take a newer hello of the rank, because fields of the job may have changed.

        The process may be another rank by now (``Recorder.rejoin``); the window stays that of the former one.
        """
        if hello is not self.hello and hello.rank == self.hello.rank:
            self.size += hello_size(hello) - hello_size(self.hello)
            self.hello = hello

    def close(self, closed: WindowClosed, end: int) -> None:
        """Close the window, and join the chunks into one array of exactly their size."""
        self.closed, self.end = closed, end
        self.size += sum(map(len, closed.side.values()))
        if not isinstance(closed.evidence, UnsetType):
            self.size += 8 * self.steps * len(closed.evidence)  # One value stands for those of all steps.
        texts = (*closed.faults.items(), *closed.side_faults.items())
        self.size += sum(2 * _NAME_BYTES + len(code) + len(detail) for code, detail in texts)
        if len(self.chunks) > 1:
            self.chunks = [np.concatenate(self.chunks)]

    @property
    def row_NC(self) -> Rows:
        """Its steps in one array, int64 [N, 2 + S]."""
        return self.chunks[0] if len(self.chunks) == 1 else np.concatenate(self.chunks)

    @property
    def identity(self) -> RankIdentity:
        hello = self.hello
        attributes = {} if isinstance(hello.attributes, UnsetType) else hello.attributes
        return self._schema.identify(
            RankIdentity(hello.rank, hello.local_rank, hello.node_rank, hello.hostname, attributes=attributes)
        )

    @property
    def _schema(self) -> WindowSchema:
        opened = self.opened
        coordinates = {} if isinstance(opened.coordinates, UnsetType) else opened.coordinates
        return WindowSchema(opened.broad, opened.stages, opened.accumulation, opened.role, (), coordinates)

    def buffer(self) -> WindowBuffer:
        """Return the window as the rank's recorder held it."""
        closed, row_NC = self.closed, self.row_NC
        buffer = WindowBuffer(self._schema, self.number, row_NC, filled=len(row_NC))
        if closed is None:
            buffer.closed_by = "shutdown"
            buffer.note("dropped_steps", NOT_CLOSED)
            return buffer
        buffer.closed_by = closed.closed_by
        buffer.started_at = datetime_from_ns(closed.started_at_ns)
        buffer.ended_at = datetime_from_ns(closed.ended_at_ns)
        buffer.faults |= closed.faults
        buffer.side_faults |= closed.side_faults
        buffer.nested_ns = closed.nested_ns
        buffer.record_ns, buffer.train_ns = closed.overhead.record_ns, closed.overhead.train_ns
        for name, raw in closed.side.items():
            values = np.frombuffer(raw, dtype="<f8").astype(np.float64)
            if len(values) == len(row_NC):
                buffer.side[name] = np.where(np.isinf(values), np.nan, values)
        if not isinstance(closed.evidence, UnsetType):
            for name, raw in closed.evidence.items():
                values = evidence_values(raw, len(row_NC))
                buffer.side[name] = np.where(np.isinf(values), np.nan, values)
        if self.has_gap:
            buffer.note("dropped_steps", "the rank's send queue was full")
        return buffer


@dataclass(slots=True, eq=False)
class PendingWindow:
    """A window with rows in memory that are not on disk.

    Attributes:
        due: when to write it without the missing ranks; None before any rank has closed it.
        retry_at: before which it is not written again, because the last attempt failed.
        is_late: whether a packet of it is already on disk.
    """

    key: WindowKey
    is_late: bool
    due: float | None = None
    retry_at: float = float("-inf")
    ranks: dict[int, RankRows] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        return self.key[0]

    @property
    def number(self) -> int:
        return self.key[1]

    @property
    def is_complete(self) -> bool:
        """Whether every rank of the job has closed it."""
        if self.is_late or not self.ranks:
            return False
        newest = next(reversed(self.ranks.values()))
        return len(self.ranks) >= newest.hello.world_size and all(
            rows.closed is not None for rows in self.ranks.values()
        )

    def is_due(self, now: float) -> bool:
        """Return whether it is to be written now."""
        is_over = self.due is not None and self.due <= now
        return self.retry_at <= now and (is_over or self.is_complete)


def are_few(ranks: Sequence[RankRows]) -> bool:
    """Return whether a packet of these ranks would name thousands of missing ones for each of them."""
    return len(ranks) * _MOST_MISSING < max((rows.hello.world_size for rows in ranks), default=0)
