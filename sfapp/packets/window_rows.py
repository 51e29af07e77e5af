"""Rows of one window on one rank: recorded on the training thread, read on other threads.

The recorder's step timers write rows to their own page (``RowSource``). The buffer copies rows from there in
batches: when a page or the window ends, or when another thread reads.
"""

from __future__ import annotations

import re
import threading
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sfapp.errors import RecorderError
from sfapp.model.host_evidence import Attributes, EvidenceKind, evidence_channels
from sfapp.model.manifest import DIMENSIONS, MAX_WORLD_SIZE, Accumulation, ClosedBy
from sfapp.model.rank_table import RankIdentity
from sfapp.model.stages import (
    MAX_NAME_LENGTH,
    MAX_STAGES,
    RESIDUAL,
    broad_stage,
    expand_stages,
    stage_category,
)
from sfapp.packets.declared import check_declared
from sfapp.packets.packet_layout import is_reserved
from sfapp.packets.value_checks import is_unicode
from sfapp.terminal import printable, quoted

Rows = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
STEP_COLUMN, WALL_COLUMN, FIRST_STAGE_COLUMN = 0, 1, 2
"""Columns of a row: step number, wall ns, then the stages in order."""

PAGE_ROWS = 256
"""Maximum number of steps in a page of the step timers."""

MAX_CHANNELS = 24
"""Maximum number of side channels of one recorder."""

CHANNEL_NAME = re.compile(r"[A-Za-z0-9_.:\[\]/-]{1,64}")
"""Permitted names of side channels: each becomes a column of the packet."""

_NOT_SAMPLED = 0x7FF8_0000_0000_5AFE
"""Bits of a NaN that arithmetic does not produce, which marks a value that was not sampled. Any other NaN
marks a sampled value that is not available yet."""

_REPEATED = ("data", "forward", "backward")
"""Stage categories that gradient accumulation repeats."""

_MAX_DETAIL = 100  # characters


def unsampled(steps: int) -> Values:
    """Return a side channel's values for some steps before anything was sampled."""
    return np.full(steps, _NOT_SAMPLED, dtype=np.int64).view(np.float64)


def is_sampled(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return where a value was sampled, from the bits of the values."""
    return np.asarray(bits != _NOT_SAMPLED)


@dataclass(frozen=True, slots=True)
class WindowSchema:
    """The constants of a window (accounting.md §9).

    Attributes:
        broad: ordered explicit stages, as the training loop names them.
        stages: recorded stages, one column each; with ordered accumulation, one per micro-step; the residual
            is last.
        column_of: per micro-step, the column of each broad stage, counted from the first stage column.
        coordinates: this rank's place in the parallel layout.
    """

    broad: tuple[str, ...]
    stages: tuple[str, ...]
    accumulation: Accumulation
    role: str | None
    column_of: tuple[dict[str, int], ...]
    coordinates: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        broad: Sequence[str],
        accumulation: Accumulation,
        role: str | None,
        coordinates: Mapping[str, int] | None = None,
    ) -> WindowSchema:
        """Return the schema of these explicit stages.

        Raises:
            RecorderError: the names cannot be columns, the role cannot be a name, the coordinates are not
                those of a parallel layout, the accumulation is invalid, or there are too many stages.
        """
        check_declared("accumulation", accumulation, Accumulation)
        names = tuple(broad)
        _check_names(names)
        if role:
            check_name("the role", role)
        coordinates = {} if coordinates is None else coordinates
        check_coordinates(coordinates)
        factor = accumulation.factor
        if factor < 1:
            raise RecorderError(f"the accumulation factor must be at least 1, not {factor}")
        repeated = _repeated(names) if factor > 1 and accumulation.ordered else ()
        count = len(names) + len(repeated) * (factor - 1) + 1
        if count > MAX_STAGES:
            raise RecorderError(
                f"{count:,} stages, each micro-step counted, are more than the {MAX_STAGES:,} that a packet "
                "may have: pass Accumulation(ordered=False), which adds the micro-steps up, or fewer stages"
            )
        columns = expand_stages(names, repeated, factor)
        column_of = tuple(
            {name: columns.index(f"{name}[{micro}]" if name in repeated else name) for name in names}
            for micro in range(factor)
        )
        return cls(names, (*columns, RESIDUAL), accumulation, role, column_of, dict(coordinates))

    def identify(self, identity: RankIdentity) -> RankIdentity:
        """Return the identity with the role and the coordinates that this schema's windows have."""
        return replace(identity, role=self.role, coordinates=self.coordinates)


def _check_names(names: tuple[str, ...]) -> None:
    for name in names:
        check_name("a stage's name", name)
        if is_reserved(name):
            raise RecorderError(f"a stage cannot be called {quoted(name)}: a packet has another such column")
        if broad_stage(name) != name:
            raise RecorderError(
                f"a stage cannot be called {quoted(name)}: packets name micro-steps so; pass accumulation="
            )
    if not names or len(set(names)) != len(names) or RESIDUAL in names:
        raise RecorderError(f"stages must be different names without {RESIDUAL!r}, which is added: {names}")


def check_name(what: str, name: object) -> None:
    """Check a name for use in packets.

    Raises:
        RecorderError: it is no text, empty, too long, or holds a lone surrogate, which UTF-8 cannot encode.
    """
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
        raise RecorderError(f"{what} must have 1 to {MAX_NAME_LENGTH} characters")
    if not is_unicode(name):
        raise RecorderError(f"{what} must be valid Unicode, not {quoted(name)}")


def check_coordinates(coordinates: object) -> None:
    """Check a rank's coordinates in the parallel layout.

    Raises:
        RecorderError: they are no mapping of ``DIMENSIONS`` to whole numbers from 0.
    """
    if not isinstance(coordinates, Mapping):
        raise RecorderError(
            f"layout must give this rank's coordinates by dimension, not {quoted(repr(coordinates))}"
        )
    for name, value in coordinates.items():
        if name not in DIMENSIONS:
            raise RecorderError(
                f"layout has the dimension {quoted(str(name))}, which is none of {', '.join(DIMENSIONS)}"
            )
        if type(value) is not int or not 0 <= value < MAX_WORLD_SIZE:
            raise RecorderError(f"the coordinate in {name} must be a whole number from 0, not {value!r:.40}")


def _repeated(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the stages from the first to the last that accumulation repeats, including those in between."""
    indices = [index for index, name in enumerate(names) if stage_category(name) in _REPEATED]
    return names[indices[0] : indices[-1] + 1] if indices else ()


class RowSource(Protocol):
    """The interface of a recorder's step timers for a buffer.

    Attributes:
        page: rows, one after the other, without the residual; replaced by ``next_page``.
        base: index of the first cell after the complete rows.
        width: number of cells of a row.
    """

    page: array[int]
    base: int
    width: int

    def next_page(self, rows: int) -> array[int]:
        """Start an empty page for this many rows and return it."""


class RowChannels(Protocol):
    """Side channels that are recorded beside a page's rows, such as waits (packet.md, ``wait.<stage>``)."""

    def next_page(self, cells: int) -> None:
        """Start an empty page with as many cells as the page of rows."""

    def take(self, begin: int, row_MC: Rows, stages: Sequence[str]) -> Iterable[tuple[str, Values]]:
        """Return the side channels of complete rows, each with its M values; raises nothing.

        Args:
            begin: index of the first row's first cell.
            row_MC: the rows, as in ``WindowBuffer.add``.
            stages: as recorded; the columns begin with them.
        """


@dataclass(slots=True, eq=False)
class WindowBuffer:
    """Rows of one window on one rank.

    Attributes:
        number: number of the window in its run.
        row_NC: int64 [N, 2 + S]: step number, wall ns, then the stages in order, residual last.
        filled: number of rows that hold a step, without those that are still in the page.
        faults: telemetry faults by code, in order of appearance, with the first one's detail.
        side_faults: reason for missing values, by side channel.
        side: float64 [N] by side channel; ``unsampled`` where nothing was sampled.
        nested_ns: time in stages nested in other stages, which was not recorded separately.
        record_ns, train_ns: time that recording took on the training thread, and the steps' wall time.
        step_cost_ns: estimated recording time of one step.
        evidence: kinds of host evidence that are recorded.
        attributes: attributes of this rank's machine and job by name.
    """

    schema: WindowSchema
    number: int
    row_NC: Rows
    filled: int = 0
    faults: dict[str, str] = field(default_factory=dict)
    side_faults: dict[str, str] = field(default_factory=dict)
    side: dict[str, Values] = field(default_factory=dict)
    nested_ns: int = 0
    record_ns: int = 0
    train_ns: int = 0
    step_cost_ns: int = 0
    closed_by: ClosedBy = "full"
    started_at: datetime | None = None
    ended_at: datetime | None = None
    evidence: tuple[EvidenceKind, ...] = ()
    attributes: Attributes = field(default_factory=dict)
    _source: RowSource | None = field(default=None, repr=False)
    _waits: RowChannels | None = field(default=None, repr=False)
    _host: RowChannels | None = field(default=None, repr=False)
    _page: array[int] = field(default_factory=lambda: array("q"), repr=False)
    _page_row: int = field(default=0, repr=False)  # row of this buffer where the page's first row belongs
    _copied: int = field(default=0, repr=False)  # cells of the page that were copied
    _started_ns: int = field(default=0, repr=False)  # monotonic, when ``started_at`` was set
    _copying: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def empty(cls, schema: WindowSchema, number: int, steps: int) -> WindowBuffer:
        """Return a buffer for ``steps`` steps of this schema."""
        return cls(schema, number, np.zeros((steps, FIRST_STAGE_COLUMN + len(schema.stages)), dtype=np.int64))

    def record_from(
        self, source: RowSource, waits: RowChannels | None = None, host: RowChannels | None = None
    ) -> None:
        """Use ``source`` for the rows of this window from now on, ``waits`` for their waits and ``host`` for
        their host evidence."""
        self._source, self._waits, self._host = source, waits, host
        self.next_page()

    def record_waits_from(self, waits: RowChannels) -> None:
        """Use another source for the waits of the rows that are not yet copied."""
        self.sync()
        with self._copying:
            waits.next_page(len(self._page))
            self._waits = waits

    def next_page(self) -> int:
        """Copy the recorded rows and start the next page; return the number of steps that it can hold."""
        filled = self.sync()
        rows = min(PAGE_ROWS, len(self.row_NC) - filled)
        if self._source is not None:
            with self._copying:
                self._page, self._page_row, self._copied = self._source.next_page(rows), filled, 0
                for channels in self._row_channels:
                    channels.next_page(len(self._page))
        return rows

    @property
    def _row_channels(self) -> list[RowChannels]:
        return [channels for channels in (self._waits, self._host) if channels is not None]

    @property
    def room(self) -> int:
        """Number of further steps that the page can hold; only on the training thread."""
        source = self._source
        return 0 if source is None else max(0, (len(self._page) - source.base) // source.width - 1)

    @property
    def recorded(self) -> int:
        """Number of recorded steps, including those in the page; only on the training thread."""
        source = self._source
        if source is None or source.page is not self._page:
            return self.filled
        return self._page_row + source.base // source.width

    def sync(self) -> int:
        """Copy the rows recorded since the last call and return the number of filled rows; on any thread."""
        with self._copying:
            source = self._source
            # A different page belongs to a later window, which began after the rows of this one were copied.
            if source is not None and source.page is self._page:
                begin, new = self._copied, self._page[self._copied : source.base]
                self._copied += len(new)
                if new:
                    row_MC = np.frombuffer(new, np.int64).reshape(-1, source.width)
                    rows = slice(self.filled, self.filled + len(row_MC))
                    for channels in self._row_channels:
                        for name, values in channels.take(begin, row_MC, self.schema.stages):
                            self.channel(name)[rows] = values
                    self.add(row_MC)
        return self.filled

    def add(self, row_MC: Rows) -> None:
        """Append steps: int64 [M, 1 + S], columns as in ``row_NC`` but without the residual, which is
        computed here (accounting.md §2)."""
        begin, end = self.filled, self.filled + len(row_MC)
        wall_M = row_MC[:, WALL_COLUMN]
        self.row_NC[begin:end, :-1] = row_MC
        self.row_NC[begin:end, -1] = np.maximum(wall_M - row_MC[:, FIRST_STAGE_COLUMN:].sum(axis=1), 0)
        self.train_ns += int(wall_M.sum())
        self.record_ns += len(row_MC) * self.step_cost_ns
        if self.started_at is None:
            self.started_at, self._started_ns = datetime.now(UTC), time.monotonic_ns()
        self.filled = end  # Last, so that another thread finds complete rows below it.

    @property
    def evidence_channels(self) -> set[str]:
        """The channels of its host evidence; the window may have no value in some."""
        return set(evidence_channels(self.evidence, self.schema.stages))

    def channel(self, name: str) -> Values:
        """Return the values of a side channel, float64 [N]."""
        if (values := self.side.get(name)) is None:
            values = self.side[name] = unsampled(len(self.row_NC))
        return values

    def add_side(self, values: Mapping[str, float]) -> None:
        """Store the side-channel values of the current step."""
        for name, value in values.items():
            self.channel(name)[self.recorded] = value

    def reset_side(self) -> None:
        """Clear the side-channel values of the current step, which is not added."""
        for values in tuple(self.side.values()):  # Copying rows may add channels on another thread.
            values[self.recorded] = unsampled(1)[0]

    def note(self, code: str, detail: str = "") -> None:
        """Record a telemetry fault, once per code, with the first one's detail."""
        # Text that UTF-8 cannot encode would keep the whole window from being written.
        self.faults.setdefault(code, printable(detail, _MAX_DETAIL))

    def note_side(self, channel: str, reason: str) -> None:
        """Record once why a side channel lacks a value. The stages are unaffected, so it is no fault."""
        if len(self.side_faults) < MAX_CHANNELS:
            self.side_faults.setdefault(printable(channel, _MAX_DETAIL), printable(reason))

    def close(self, closed_by: ClosedBy) -> None:
        """End the window: no further steps are added."""
        self.sync()
        self._source = None
        self.closed_by = closed_by
        self.ended_at = self._now()

    def _now(self) -> datetime:
        """Return the time of day as it was set when the window started: a window never ends before that."""
        if self.started_at is None:
            return datetime.now(UTC)
        return self.started_at + timedelta(microseconds=(time.monotonic_ns() - self._started_ns) // 1_000)

    def without_rows(self) -> WindowBuffer:
        """Return the same window without rows, for submission after its rows had to be dropped."""
        empty = WindowBuffer.empty(self.schema, self.number, 1)
        empty.close(self.closed_by)
        return empty

    def rows(self) -> Rows:
        """Return the filled rows."""
        return self.row_NC[: self.filled]

    def packed(self, channels: Sequence[str]) -> Rows:
        """Return the filled rows and the bits of these side channels, one column each: int64 [N, C + K]."""
        packed = np.full((self.filled, self.row_NC.shape[1] + len(channels)), _NOT_SAMPLED, dtype=np.int64)
        packed[:, : self.row_NC.shape[1]] = self.rows()
        for column, name in enumerate(channels, -len(channels)):
            if name in self.side:
                packed[:, column] = self.side[name].view(np.int64)[: self.filled]
        return packed
