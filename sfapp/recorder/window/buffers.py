"""One window's rows on one rank: recorded on the training thread, read on the recorder's.

Steps leave their rows in a page of the hot path's (``contexts.StepState``), from where they are taken in
here, many at once: when a page or the window ends, or when somebody wants to read.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from sfapp.errors import RecorderError
from sfapp.model.manifest import Accumulation, ClosedBy
from sfapp.model.stages import MAX_NAME_LENGTH, RESIDUAL, expand_stages, stage_category
from sfapp.recorder.side_channels.channels import MAX_CHANNELS, Values, unsampled
from sfapp.recorder.timing.timers import FIRST_STAGE_COLUMN, WALL_COLUMN, Cells, StepState

Rows = npt.NDArray[np.int64]

PAGE_ROWS = 256
"""Steps that the hot path may hold before they are taken in: in Python some 40 bytes a number, eight here."""

_REPEATED = ("data", "forward", "backward")
"""The families of stages that gradient accumulation repeats."""

_LONGEST_DETAIL = 100  # characters


@dataclass(frozen=True, slots=True)
class Schema:
    """What must stay the same within a window (accounting.md §9).

    Attributes:
        broad: the ordered explicit stages as the trainer names them.
        stages: the columns: micro-steps kept apart where accumulation is ordered, the residual last.
        column_of: per micro-step, the column of each broad stage.
    """

    broad: tuple[str, ...]
    stages: tuple[str, ...]
    accumulation: Accumulation
    role: str | None
    column_of: tuple[dict[str, int], ...]

    @classmethod
    def of(cls, broad: Sequence[str], accumulation: Accumulation, role: str | None) -> Schema:
        """The schema of these explicit stages.

        Raises:
            RecorderError: names that cannot be columns, or an accumulation that cannot be kept apart.
        """
        names = tuple(broad)
        _check_names(names)
        factor = accumulation.factor
        if factor < 1:
            raise RecorderError(f"the accumulation factor must be at least 1, not {factor}")
        repeated = _repeated(names) if factor > 1 and accumulation.ordered else ()
        columns = expand_stages(names, repeated, factor)
        column_of = tuple(
            {name: columns.index(f"{name}[{micro}]" if name in repeated else name) for name in names}
            for micro in range(factor)
        )
        return cls(names, (*columns, RESIDUAL), accumulation, role, column_of)


def _check_names(names: tuple[str, ...]) -> None:
    if not names or len(set(names)) != len(names) or RESIDUAL in names:
        raise RecorderError(f"stages must be different names without {RESIDUAL!r}, which is added: {names}")
    if any(not name or len(name) > MAX_NAME_LENGTH for name in names):
        raise RecorderError(f"stage names must have 1 to {MAX_NAME_LENGTH} characters")


def _repeated(names: tuple[str, ...]) -> tuple[str, ...]:
    """The stages between the first and the last that accumulation repeats: those in between are too."""
    places = [place for place, name in enumerate(names) if stage_category(name) in _REPEATED]
    return names[places[0] : places[-1] + 1] if places else ()


@dataclass(slots=True, eq=False)
class WindowBuffer:
    """Rows of one window.

    Attributes:
        number: which window of the run.
        row_NC: int64 [N, 2 + S]: step number, wall ns, then the stages in order, residual last.
        filled: how many rows hold a step: of those that were taken in.
        faults: telemetry faults by code, with what was seen first, in order of appearance.
        side_faults: why a side channel lacks a value, by its name.
        side: side-channel values by channel, float64 [N], as in ``sfapp.recorder.side_channels.channels``.
        nested_ns: time in stages nested in others, which was dropped.
        record_ns, train_ns: the recorder's own time on the training thread, and the time trained.
        step_cost_ns: what ``record_ns`` grows by with each step.
    """

    schema: Schema
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
    _state: StepState | None = field(default=None, repr=False)
    _page: Cells = field(default_factory=list, repr=False)
    _page_row: int = field(default=0, repr=False)  # where the page's first row belongs
    _taken: int = field(default=0, repr=False)  # cells of the page
    _taking: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def empty(cls, schema: Schema, number: int, steps: int) -> WindowBuffer:
        """A buffer for ``steps`` steps of this schema."""
        return cls(schema, number, np.zeros((steps, FIRST_STAGE_COLUMN + len(schema.stages)), dtype=np.int64))

    def record(self, state: StepState) -> None:
        """From now on, the rows of this window are those that are recorded there."""
        self._state = state
        self.turn_page()

    def turn_page(self) -> int:
        """Take in what was recorded; how many steps may be recorded before this must be called again."""
        filled = self.settle()
        rows = min(PAGE_ROWS, len(self.row_NC) - filled)
        if self._state is not None:
            with self._taking:
                self._page, self._page_row, self._taken = self._state.turn_page(rows), filled, 0
        return rows

    @property
    def room(self) -> int:
        """How many more steps the page takes; asked on the training thread."""
        state = self._state
        return 0 if state is None else max(0, (len(self._page) - state.base) // state.width - 1)

    @property
    def recorded(self) -> int:
        """How many steps there are, taken in or not; asked on the training thread, which turns the pages."""
        state = self._state
        if state is None or state.cells is not self._page:
            return self.filled
        return self._page_row + state.base // state.width

    def settle(self) -> int:
        """Take in what was recorded since; how many rows are filled now. From any thread.

        Raises:
            TypeError, OverflowError: what was recorded are no whole numbers of 64 bits.
        """
        with self._taking:
            state = self._state
            # Another page belongs to another window; it was begun after this one's rows had been taken in.
            if state is not None and state.cells is self._page:
                new = self._page[self._taken : state.base]
                self._taken += len(new)
                if new:
                    self.add(np.frombuffer(array("q", new), np.int64).reshape(-1, state.width))
        return self.filled

    def add(self, row_MC: Rows) -> None:
        """Add steps: int64 [M, 1 + S], as in ``row_NC`` without the residual, which closes them (§2)."""
        begin, end = self.filled, self.filled + len(row_MC)
        wall_M = row_MC[:, WALL_COLUMN]
        self.row_NC[begin:end, :-1] = row_MC
        self.row_NC[begin:end, -1] = np.maximum(wall_M - row_MC[:, FIRST_STAGE_COLUMN:].sum(axis=1), 0)
        self.train_ns += int(wall_M.sum())
        self.record_ns += len(row_MC) * self.step_cost_ns
        self.started_at = self.started_at or datetime.now(UTC)
        self.filled = end  # last: whoever reads on another thread finds them complete

    def channel(self, name: str) -> Values:
        """A side channel's values."""
        values = self.side.get(name)
        if values is None:
            values = self.side[name] = unsampled(len(self.row_NC))
        return values

    def add_side(self, values: Mapping[str, float]) -> None:
        """The side-channel values of the step under way."""
        for name, value in values.items():
            self.channel(name)[self.recorded] = value

    def forget_side(self) -> None:
        """The step under way will not be added: nothing was sampled in it."""
        for values in self.side.values():
            values[self.recorded] = unsampled(1)[0]

    def note(self, code: str, detail: str = "") -> None:
        """Record a telemetry fault, once per code, with what was seen first."""
        self.faults.setdefault(code, detail[:_LONGEST_DETAIL])

    def note_side(self, channel: str, why: str) -> None:
        """Record once why a side channel lacks a value. No fault: the stages are as they are without it."""
        if len(self.side_faults) < MAX_CHANNELS:
            self.side_faults.setdefault(channel[:_LONGEST_DETAIL], why)

    def close(self, closed_by: ClosedBy) -> None:
        """No more steps are added."""
        self.settle()
        self._state = None
        self.closed_by = closed_by
        self.ended_at = datetime.now(UTC)

    def without_rows(self) -> WindowBuffer:
        """The same window with nothing in it: what is left of it when it had to be dropped."""
        left = WindowBuffer.empty(self.schema, self.number, 1)
        left.close(self.closed_by)
        return left

    def rows(self) -> Rows:
        """The filled rows."""
        return self.row_NC[: self.filled]

    def packed(self, channels: Sequence[str]) -> Rows:
        """The filled rows, followed by the bits of these side channels, a column each: int64 [N, C + K]."""
        sides = [self.side.get(name, unsampled(len(self.row_NC))).view(np.int64) for name in channels]
        return np.column_stack([self.rows(), *(bits[: self.filled] for bits in sides)])
