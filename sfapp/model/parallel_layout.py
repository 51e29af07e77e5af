"""Ranks of a window by their place in the parallel layout, and the pattern of the late ones (§20)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

PatternKind = Literal["worker", "tensor_group", "host", "pipeline_stage", "data_row"]

PATTERNS: Mapping[PatternKind, str] = {
    "worker": "Look at its device, its processor cores and its process.",
    "tensor_group": (
        "Its ranks exchange data in every layer, so one of them or a link between them can slow all."
    ),
    "host": "Look at what its ranks share: power, cooling, storage, network, other processes.",
    "pipeline_stage": (
        "Look at the partitioning of the pipeline: the last stage also has the output layer and the loss."
    ),
    "data_row": "Look at the data of this replica, such as the lengths of its sequences.",
}
"""Every pattern with its usual cause, in order of precedence where several have the same ranks."""

Cells = tuple[tuple[float | None, ...], ...]
"""A number for each cell, by row and column; None for a cell without ranks."""


@dataclass(frozen=True, slots=True)
class LayoutPattern:
    """The pattern of the late ranks.

    Attributes:
        kind: what the late ranks have in common; see ``PATTERNS``.
        also: other kinds with exactly the same ranks, which cannot be distinguished.
        ranks: global ranks of the whole group, ascending.
        coordinates: the coordinates that all of them share.
        hostname: their host, if they have one in common.
        late_ns: their mean lateness per step, ns.
        slowdown: by how much their own time exceeds the median rank's, as a fraction of it.
    """

    kind: PatternKind
    also: tuple[PatternKind, ...]
    ranks: tuple[int, ...]
    coordinates: dict[str, int]
    hostname: str | None
    late_ns: float
    slowdown: float


@dataclass(frozen=True, slots=True)
class LayoutTable:
    """Ranks by two coordinates of the parallel layout.

    A cell has the values of its slowest rank: ranks that differ in other coordinates exchange data in every
    layer and advance together, and a mean would hide one slow rank among them.

    Attributes:
        dimensions: the dimension of the rows and that of the columns.
        rows, columns: the coordinates present, ascending.
        own_ns: mean own time per step. Empty, as all cells, if there are too many of them.
        late_ns: own time less that of the other ranks, mean over steps.
        slowdown: by how much the own time exceeds the median rank's, as a fraction of it.
        rank: the slowest rank of each cell.
        hidden: broad stages that are not part of own time, because ranks wait in them for an unknown time.
        pattern: the pattern of the late ranks; None if there is none.
    """

    dimensions: tuple[str, str]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    own_ns: Cells
    late_ns: Cells
    slowdown: Cells
    rank: tuple[tuple[int | None, ...], ...]
    hidden: tuple[str, ...] = ()
    pattern: LayoutPattern | None = None
