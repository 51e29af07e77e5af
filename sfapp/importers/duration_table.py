"""Collect durations as a long table (step, rank, stage, ns) and convert it to a matrix.

Shared by tables, telemetry and operation traces.
"""

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
"""Steps per window if the source has no windows: the recorder's default."""

MAX_CELLS = 2**26
"""Largest matrix (stages × steps × ranks): half a gibibyte of durations."""


@dataclass(frozen=True, slots=True, eq=False)
class DurationTable:
    """Durations of C cells in any order; cells of the same step, rank and kind are added.

    Attributes:
        step_C, rank_C: int64.
        kind_C: int64, index into the caller's list of stages or other quantities.
        ns_C: int64 ns, zero or more.
    """

    step_C: Ints
    rank_C: Ints
    kind_C: Ints
    ns_C: Ints

    @classmethod
    def concat(cls, parts: Iterable[DurationTable]) -> DurationTable:
        """Concatenate tables."""
        columns = [(part.step_C, part.rank_C, part.kind_C, part.ns_C) for part in parts]
        if not columns:
            return cls(*(np.empty(0, np.int64) for _ in range(4)))
        return cls(*(np.concatenate(column) for column in zip(*columns, strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class DurationMatrix:
    """Durations of K kinds in the N steps that all R ranks have, ascending."""

    duration_KNR: Ints
    step_N: Ints
    rank_R: Ints
    notes: tuple[ImportNote, ...] = ()


def duration_matrix(cells: DurationTable, kinds: int, where: str) -> DurationMatrix:
    """Return the cells as one plane [steps, ranks] per kind; absent cells are 0.

    Steps that some rank lacks are left out.

    Raises:
        TraceError: there are no cells, the ranks share no step, or the matrix would be too large.
    """
    if not len(cells.ns_C):
        raise TraceError("contains no durations", path=where)
    steps, step_at = np.unique(cells.step_C, return_inverse=True)
    ranks, rank_at = np.unique(cells.rank_C, return_inverse=True)
    size = kinds * len(steps) * len(ranks)
    if size > MAX_CELLS:
        raise TraceError(
            f"{kinds} stages × {len(steps):,} steps × {len(ranks):,} ranks are {size:,} cells, more than "
            f"{MAX_CELLS:,}: import fewer steps at a time",
            path=where,
        )
    if cells.ns_C.sum(dtype=np.float64) > MAX_VALUE:  # Only then can the parts of a step.
        spent_NR = np.zeros((len(steps), len(ranks)))
        np.add.at(spent_NR, (step_at, rank_at), cells.ns_C)
        if spent_NR.max() > MAX_VALUE:
            raise TraceError("the times of a step add up to more than 2^62 ns: check their unit", path=where)
    has_NR = np.zeros((len(steps), len(ranks)), np.bool_)
    has_NR[step_at, rank_at] = True
    duration_KNR = np.zeros((kinds, len(steps), len(ranks)), np.int64)
    np.add.at(duration_KNR, (cells.kind_C, step_at, rank_at), cells.ns_C)
    common_N = has_NR.all(axis=1)
    if not common_N.any():
        raise TraceError("no step is present on all ranks: check which columns are step and rank", path=where)
    notes: tuple[ImportNote, ...] = ()
    if not common_N.all():
        lost = int((~common_N).sum())
        notes = (
            ImportNote(
                "skipped",
                f"{lost:,} of {len(steps):,} steps are left out, because some ranks lack them",
            ),
        )
    return DurationMatrix(np.ascontiguousarray(duration_KNR[:, common_N]), steps[common_N], ranks, notes)


def cut(steps: int, size: int = WINDOW_STEPS) -> list[slice]:
    """Return one slice of step positions per window."""
    return [slice(first, min(first + size, steps)) for first in range(0, steps, size)]


def nanoseconds(values: npt.NDArray[np.float64], unit_ns: int, place: Sequence[str] | str) -> Ints:
    """Convert times in a unit to whole ns.

    Raises:
        TraceError: a time is not a number, negative, or longer than a packet holds; ``place`` names its
            column.
    """
    bad = ~(values >= 0) | (values * unit_ns > MAX_VALUE)
    if bad.any():
        row = int(bad.argmax())
        value = values[row]
        what = (
            "is not a number" if np.isnan(value) else "is negative" if value < 0 else "is longer than 2^62 ns"
        )
        raise TraceError(f"{value:g} {what}", place=f"row {row}, {place}")
    return np.rint(values * unit_ns).astype(np.int64)
