"""Rows of the table of ranks, made some at a time: a window may have 100,000 ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfapp.accounting import Measures
from sfapp.model import Diagnosis
from sfapp.model.arrays import to_numpy
from sfapp.model.window import NOT_MEASURED
from sfapp.views import format
from sfapp.views.figures.active_frontier import (
    Floats,
    active_frontier,
    leads_by_row,
    position_after,
    stage_members,
    waits_in,
)
from sfapp.views.figures.node import lead_shares, stragglers
from sfapp.views.table_columns import Row


@dataclass(frozen=True, slots=True, eq=False)
class RankColumn:
    """One value of every rank, as the field ``name`` of rows.

    Attributes:
        values: by position of the rank; NaN in an array becomes None.
        text: adds the field ``<name>_text``.
    """

    name: str
    values: Sequence[Any] | Floats
    text: Callable[[float | None], str] | None = None

    def at(self, places: Sequence[int]) -> list[Any]:
        """Return the values at some positions."""
        if isinstance(self.values, np.ndarray):
            found = self.values[np.asarray(places, dtype=np.intp)].tolist()
            return [None if value != value else value for value in found]
        return [self.values[place] for place in places]


@dataclass(frozen=True, slots=True, eq=False)
class RankTableRows:
    """The table of ranks by column, of which rows are made as they are needed."""

    columns: Sequence[RankColumn]

    @property
    def fields(self) -> list[str]:
        """Names of a row's fields, in order."""
        return [name for column in self.columns for name in _fields(column)]

    def rows(self, places: Sequence[int]) -> list[Row]:
        """Return the rows at some positions, in their order."""
        cells: list[list[Any]] = []
        for column in self.columns:
            cells.append(values := column.at(places))
            if column.text is not None:
                cells.append([column.text(value) for value in values])
        fields = self.fields
        return [dict(zip(fields, row, strict=True)) for row in zip(*cells, strict=True)]


def _fields(column: RankColumn) -> tuple[str, ...]:
    return (column.name,) if column.text is None else (column.name, f"{column.name}_text")


def rank_rows(measures: Measures, diagnosis: Diagnosis) -> RankTableRows:
    """Return the table of ranks, ascending.

    ``stage:<name>`` and ``lead:<name>`` hold the mean time in each broad stage (ns) and the share of the
    steps in which the rank is slowest at its end; ``own:<name>`` and ``wait:<name>`` the mean of its own time
    and of its known waits there (ns), None if none of its waits is known.
    """
    ranks = measures.window.ranks
    mean_SR = to_numpy(measures.window.duration_SNR).mean(axis=1)
    mean_of = dict(zip(measures.broad, measures.by_broad(mean_SR), strict=True))
    stage = (diagnosis.aim.stage if diagnosis.aim else diagnosis.top_stage) or measures.broad[0]
    slack_R, lag_R = _distances(measures, diagnosis, stage)
    marked = stragglers(measures, diagnosis)
    waited = _mean_waits(measures)
    columns = [
        RankColumn("rank", ranks.rank),
        RankColumn("hostname", ranks.hostname),
        RankColumn("node_rank", ranks.node_rank),
        RankColumn("local_rank", ranks.local_rank),
        RankColumn("role", [role or "" for role in ranks.role]),
        RankColumn("mark", ["▲" if rank in marked else "" for rank in ranks.rank]),
        # Summed rank by rank, so that rounding is that of one rank's sum.
        RankColumn("step_ns", np.ascontiguousarray(mean_SR.T).sum(axis=1), format.duration),
        RankColumn("lead", lead_shares(measures, diagnosis), format.percent),
        RankColumn("stage_ns", mean_of[stage], format.duration),
    ]
    if stage in waited:
        columns.append(RankColumn("own_ns", mean_of[stage] - waited[stage], format.duration))
        columns.append(RankColumn("wait_ns", waited[stage], format.duration))
    columns.append(RankColumn("slack_ns", slack_R, format.duration))
    columns.append(
        RankColumn("lag_ns", lag_R if measures.has_all_rows else np.full(len(ranks), np.nan), format.duration)
    )
    for name, leads_R in zip(measures.broad, _leads(measures, diagnosis), strict=True):
        columns.append(RankColumn(f"stage:{name}", mean_of[name]))
        if name in waited:
            columns.append(RankColumn(f"own:{name}", mean_of[name] - waited[name]))
            columns.append(RankColumn(f"wait:{name}", waited[name]))
        columns.append(RankColumn(f"lead:{name}", leads_R))
    return RankTableRows(columns)


def _mean_waits(measures: Measures) -> dict[str, Floats]:
    """Return the mean over the steps of each rank's known waits by broad stage, ns [R]; NaN for a rank
    without any."""
    found: dict[str, Floats] = {}
    for name in measures.broad:
        waited_NR = waits_in(measures, name)
        if waited_NR is not None:
            recorded = [measures.window.stages[stage] for stage in stage_members(measures, name)]
            known = [measures.window.waits[each] for each in recorded if each in measures.window.waits]
            is_known_R = np.any([(to_numpy(each) != NOT_MEASURED).any(axis=0) for each in known], axis=0)
            found[name] = np.where(is_known_R, waited_NR.mean(axis=0), np.nan)
    return found


def _distances(measures: Measures, diagnosis: Diagnosis, stage: str) -> tuple[Floats, Floats]:
    """Return mean slack on entering a stage and mean lag on leaving it, ns [R], on the selected frontier."""
    members = stage_members(measures, stage)
    active = active_frontier(measures, diagnosis)
    front_N = active.rise_SN[members[0] - 1] if members[0] else np.zeros(measures.steps)
    slack_R = (front_N[:, None] - position_after(measures, active, members[0])).mean(axis=0)
    leave_NR = position_after(measures, active, members[-1] + 1)
    lag_R = (leave_NR - np.median(leave_NR, axis=1, keepdims=True)).mean(axis=0)
    return np.asarray(slack_R), np.asarray(lag_R)


def _leads(measures: Measures, diagnosis: Diagnosis) -> Floats:
    """Return the share of the steps in which each rank is slowest at each broad stage's last boundary, [B,
    R]."""
    leader_SN = active_frontier(measures, diagnosis).leader_SN
    found = np.zeros((len(measures.broad), len(measures.window.ranks)))
    for index in range(len(measures.broad)):
        last = measures.members(index)[-1]
        found[index] = leads_by_row(measures, leader_SN[last]) / measures.steps
    return found
