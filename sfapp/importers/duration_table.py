"""Durations as a long table (step, rank, stage, ns), and the matrix they make: what tables, telemetry and
operation traces have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.errors import TraceError
from sfapp.importers.import_result import ImportNote
from sfapp.packets.packet_layout import MAX_VALUE

Ints = npt.NDArray[np.int64]

WINDOW_STEPS = 100
"""Steps a window where the source has no windows of its own: as many as the recorder takes."""

MAX_CELLS = 2**26
"""Most cells (stages × steps × ranks) that a table may spread out to: half a gibibyte of durations."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Durations of C cells in any order; those of the same step, rank and kind add up.

    Attributes:
        step_C, rank_C: int64.
        kind_C: int64, index into the caller's list of stages (or of whatever else it counts).
        ns_C: int64 ns, zero or more.
    """

    step_C: Ints
    rank_C: Ints
    kind_C: Ints
    ns_C: Ints

    @classmethod
    def concat(cls, parts: Iterable[Cells]) -> Cells:
        """All of these as one."""
        columns = [(part.step_C, part.rank_C, part.kind_C, part.ns_C) for part in parts]
        if not columns:
            return cls(*(np.empty(0, np.int64) for _ in range(4)))
        return cls(*(np.concatenate(column) for column in zip(*columns, strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Cells laid out: K kinds, N steps that all R ranks have, ascending."""

    duration_KNR: Ints
    step_N: Ints
    rank_R: Ints
    notes: tuple[ImportNote, ...] = ()


def matrix_of(cells: Cells, kinds: int, where: str) -> Matrix:
    """The cells as planes [steps, ranks], one a kind; what a cell does not say is 0. Steps that some rank
    does not have are left out.

    Raises:
        TraceError: there are no cells, the ranks share no step, or the matrix would be too large.
    """
    if not len(cells.ns_C):
        raise TraceError("there are no durations in it", path=where)
    steps, step_at = np.unique(cells.step_C, return_inverse=True)
    ranks, rank_at = np.unique(cells.rank_C, return_inverse=True)
    size = kinds * len(steps) * len(ranks)
    if size > MAX_CELLS:
        raise TraceError(
            f"{kinds} stages × {len(steps):,} steps × {len(ranks):,} ranks are {size:,} cells, more than "
            f"{MAX_CELLS:,}: import fewer steps at a time",
            path=where,
        )
    has_NR = np.zeros((len(steps), len(ranks)), np.bool_)
    has_NR[step_at, rank_at] = True
    duration_KNR = np.zeros((kinds, len(steps), len(ranks)), np.int64)
    np.add.at(duration_KNR, (cells.kind_C, step_at, rank_at), cells.ns_C)
    common_N = has_NR.all(axis=1)
    if not common_N.any():
        raise TraceError("no step is there for all ranks: check which columns are step and rank", path=where)
    notes: tuple[ImportNote, ...] = ()
    if not common_N.all():
        lost = int((~common_N).sum())
        notes = (
            ImportNote(
                "skipped",
                f"{lost:,} of {len(steps):,} steps, which some ranks do not have: they are left out",
            ),
        )
    return Matrix(np.ascontiguousarray(duration_KNR[:, common_N]), steps[common_N], ranks, notes)


def cut(steps: int, size: int = WINDOW_STEPS) -> list[slice]:
    """Positions of steps, a window each."""
    return [slice(first, min(first + size, steps)) for first in range(0, steps, size)]


def nanoseconds(values: npt.NDArray[np.float64], unit_ns: int, place: Sequence[str] | str) -> Ints:
    """Times in a unit as whole ns.

    Raises:
        TraceError: one is no number, negative, or longer than a packet holds; ``place`` names its column.
    """
    bad = ~(values >= 0) | (values * unit_ns > MAX_VALUE)
    if bad.any():
        row = int(bad.argmax())
        value = values[row]
        what = "is no number" if np.isnan(value) else "is negative" if value < 0 else "is longer than 2^62 ns"
        raise TraceError(f"{value:g} {what}", place=f"row {row}, {place}")
    return np.rint(values * unit_ns).astype(np.int64)
