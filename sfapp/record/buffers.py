"""One window's rows on one rank, filled on the training thread, emptied on the writer's.

Preallocated: filling a row copies a short list into an int64 array and allocates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from sfapp.model.manifest import Accumulation, ClosedBy


@dataclass(frozen=True, slots=True)
class Schema:
    """What must stay the same within a window (accounting.md §9)."""

    stages: tuple[str, ...]
    accumulation: Accumulation
    role: str | None


@dataclass(slots=True, eq=False)
class WindowBuffer:
    """Rows of one window.

    Attributes:
        schema: what its columns mean.
        number: which window of the run.
        row_NC: int64 [N, 2 + S]: step number, wall ns, then the stages in order, residual last.
        filled: how many rows hold a step.
        faults: telemetry faults seen, in order of first appearance (a dict serves as an ordered set).
        record_ns, train_ns: the recorder's own time on the training thread, and the time trained.
    """

    schema: Schema
    number: int
    row_NC: npt.NDArray[np.int64]
    filled: int = 0
    faults: dict[str, None] = field(default_factory=dict)
    record_ns: int = 0
    train_ns: int = 0
    closed_by: ClosedBy = "full"
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @classmethod
    def empty(cls, schema: Schema, number: int, steps: int) -> WindowBuffer:
        """A buffer for ``steps`` steps of this schema."""
        return cls(schema, number, np.zeros((steps, 2 + len(schema.stages)), dtype=np.int64))

    @property
    def is_full(self) -> bool:
        return self.filled == len(self.row_NC)

    def append(self, step: int, wall_ns: int, spent_ns: Sequence[int]) -> None:
        """Add one step: its wall time and its explicit stages; the residual closes it (§2)."""
        row = self.row_NC[self.filled]
        row[0] = step
        row[1] = wall_ns
        row[2:-1] = spent_ns
        row[-1] = max(0, wall_ns - sum(spent_ns))
        self.filled += 1
        self.train_ns += wall_ns

    def rows(self) -> npt.NDArray[np.int64]:
        """The filled rows."""
        return self.row_NC[: self.filled]
