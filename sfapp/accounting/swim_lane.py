"""Place the stages of ranks on one time axis: own time, waiting, and which rank the others wait for.

The axis needs no clock: durations are laid end to end, and ranks are laid together where they synchronise
(accounting.md §10, §15). What a picture of it shows is described in accounting.md §19.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np

from sfapp.accounting.leaders import Floats
from sfapp.accounting.measures import Measures
from sfapp.accounting.swim_lane_rows import LaneKind, Row, healthy_advances, rows_of
from sfapp.accounting.swim_lane_times import BLOCKED, StageWait, StepTimeline, timeline_of
from sfapp.model import Diagnosis

LISTED = 64
"""Ranks of a group that its lane lists."""

BlockKind = Literal["own", "waiting"]


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a lane: one stage, or the waiting in it.

    Attributes:
        stage: as recorded; in a lane of the healthy windows a broad stage.
        start_ns, end_ns: on the axis of ``SwimLanes``.
        kind: own time, or waiting for other ranks.
        is_inferred: whether the waiting follows from when the last rank arrives and was not measured.
        is_before: whether it belongs to the step before the one that is shown.
    """

    stage: str
    start_ns: float
    end_ns: float
    kind: BlockKind = "own"
    is_inferred: bool = False
    is_before: bool = False

    @property
    def duration_ns(self) -> float:
        """How long it lasts."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class SwimLane:
    """One row: a rank, the mean of several, or the healthy windows.

    Attributes:
        kind: why it has a row.
        ranks: global ranks, ascending; of a large group the first ones.
        count: how many ranks it stands for; 0 for the healthy windows.
        name: node number or role that its ranks share, or the quantile that it stands for; else empty.
        blocks: in order, each beginning where the one before ends; empty for a rank that did not report.
        step_start_ns: where its step begins.
    """

    kind: LaneKind
    ranks: tuple[int, ...]
    count: int
    name: str
    blocks: tuple[Block, ...]
    step_start_ns: float

    @property
    def end_ns(self) -> float:
        """Where its step ends."""
        return self.blocks[-1].end_ns if self.blocks else self.step_start_ns


@dataclass(frozen=True, slots=True)
class Arrow:
    """From the lane of the rank that arrives last to a lane that waits for it.

    Attributes:
        stage: in which the waiting is.
        source, target: positions of the lanes.
        start_ns: where the late rank leaves the stage; end_ns: where the waiting ends.
        waited_ns: how long the target waits.
    """

    stage: str
    source: int
    target: int
    start_ns: float
    end_ns: float
    waited_ns: float


@dataclass(frozen=True, slots=True)
class SwimLanes:
    """One step of some ranks, or the mean step, on a time axis in ns.

    Attributes:
        lanes: suspects, slowest and selected ranks first, then groups, the healthy windows last.
        arrows: from late ranks to those that wait for them.
        waits: by stage in which ranks wait, in order, how long and for which rank.
        step: logical number of the step that is shown; None for the mean step.
        sync_stage: the stage at whose end ranks are laid together; None if that is not known and all
            lanes start at 0.
        start_ns, end_ns: where the slowest rank's step begins and ends: their difference is the exposed time
            of the step where ``sync_stage`` is known.
        has_step_before: whether the lanes begin with what follows ``sync_stage`` in the step before.
        left_out: how many selected ranks have no row.
        carried_in: logical number of the first step, if ranks wait in it for a delay before the window and
            it is the step that is shown, or the mean step, which then leaves it out.
    """

    lanes: tuple[SwimLane, ...]
    arrows: tuple[Arrow, ...]
    waits: tuple[StageWait, ...]
    step: int | None
    sync_stage: str | None
    start_ns: float
    end_ns: float
    has_step_before: bool
    left_out: int = 0
    carried_in: int | None = None

    @property
    def main_wait(self) -> StageWait | None:
        """The longest wait that is worth a word; None if ranks hardly wait."""
        least = BLOCKED * max(1.0, self.end_ns - self.start_ns)
        worth = [wait for wait in self.waits if wait.mean_ns >= least]
        return max(worth, key=lambda wait: wait.mean_ns, default=None)


def swim_lanes(
    measures: Measures, diagnosis: Diagnosis, step: int | None = None, selected: Sequence[int] = ()
) -> SwimLanes:
    """Return the lanes of one step, or of the mean step of the window.

    Args:
        diagnosis: of these measures; says where ranks synchronise and which are suspects.
        step: a logical step number; the mean step if None or absent from the window.
        selected: global ranks that have rows of their own.
    """
    found: list[int] = [] if step is None else np.flatnonzero(measures.step_N == step).tolist()
    index = found[0] if found else None
    names = measures.window.stages
    waits = tuple(names.index(stage) for stage in names if stage in diagnosis.wait_stages)
    sync = names.index(diagnosis.sync_boundary) if diagnosis.sync_boundary in names else None
    timeline = measures.keep("swim_lane", (index, sync, waits), partial(timeline_of, measures))
    rows, left_out = rows_of(measures, diagnosis, timeline, selected)
    lanes = tuple(_lane(measures, timeline, row) for row in rows)
    healthy = _healthy_lane(measures, diagnosis, timeline)
    return SwimLanes(
        lanes=lanes if healthy is None else (*lanes, healthy),
        arrows=_arrows(timeline, rows, lanes, names),
        waits=timeline.waits,
        step=None if index is None else step,
        sync_stage=None if timeline.sync is None else names[timeline.sync],
        start_ns=timeline.begin_ns,
        end_ns=timeline.end_ns,
        has_step_before=timeline.has_step_before,
        left_out=left_out,
        carried_in=int(measures.step_N[0]) if timeline.is_carried_in else None,
    )


@dataclass(slots=True)
class _Builder:
    """Lay blocks end to end."""

    at_ns: float
    blocks: list[Block] = field(default_factory=list)

    def add(self, stage: str, spent_ns: float, waited_ns: float, inferred: bool, before: bool) -> None:
        """Add a stage: its own time, then its waiting; nothing for what took no time."""
        own_end, end = self.at_ns + (spent_ns - waited_ns), self.at_ns + spent_ns
        if own_end > self.at_ns:
            self.blocks.append(Block(stage, self.at_ns, own_end, is_before=before))
        if end > own_end:
            self.blocks.append(Block(stage, own_end, end, "waiting", inferred, before))
        self.at_ns = end


def _lane(measures: Measures, timeline: StepTimeline, row: Row) -> SwimLane:
    """Return one row as blocks: of a group, the mean of its ranks, which adds up as each of them does."""
    ranks = measures.window.ranks.rank
    if row.kind == "missing":
        return SwimLane(row.kind, row.missing, len(row.missing), "", (), timeline.begin_ns)
    numbers = tuple(ranks[place] for place in row.places[:LISTED])

    def mean(value_SR: Floats) -> list[float]:
        if len(row.places) == 1:
            return [float(value) for value in value_SR[:, row.places[0]]]
        return [float(value) for value in value_SR[:, row.places].mean(axis=1)]

    names = measures.window.stages
    spent, waited = mean(timeline.duration_SR), mean(timeline.wait_SR)
    begin = mean(timeline.start_R[None])[0]
    tail = mean(timeline.before_SR), mean(timeline.before_wait_SR)
    first = len(names) - len(tail[0])
    builder = _Builder(begin - sum(tail[0]))
    for place, (spent_ns, waited_ns) in enumerate(zip(*tail, strict=True), first):
        builder.add(names[place], spent_ns, waited_ns, bool(timeline.inferred_S[place]), True)
    for place, (spent_ns, waited_ns) in enumerate(zip(spent, waited, strict=True)):
        builder.add(names[place], spent_ns, waited_ns, bool(timeline.inferred_S[place]), False)
    return SwimLane(row.kind, numbers, len(row.places), row.name, tuple(builder.blocks), begin)


def _healthy_lane(measures: Measures, diagnosis: Diagnosis, timeline: StepTimeline) -> SwimLane | None:
    """Return the critical path of the healthy windows, from the same moment on; None if not known."""
    advances = healthy_advances(measures, diagnosis, timeline)
    if advances is None:
        return None
    tail = 0
    if timeline.has_step_before and timeline.sync is not None:
        tail = measures.broad_of_S[timeline.sync] + 1
    builder = _Builder(0.0)
    broad = measures.broad
    for place in range(tail, len(broad)) if timeline.has_step_before else ():
        builder.add(broad[place], advances[place], 0.0, False, True)
    begin = builder.at_ns
    for name, advance_ns in zip(broad, advances, strict=True):
        builder.add(name, advance_ns, 0.0, False, False)
    return SwimLane("healthy", (), 0, "", tuple(builder.blocks), begin)


def _arrows(
    timeline: StepTimeline, rows: Sequence[Row], lanes: Sequence[SwimLane], names: Sequence[str]
) -> tuple[Arrow, ...]:
    """Return arrows from the lane of each late rank to the lanes that wait for it."""
    least = BLOCKED * timeline.exposed_ns
    source_of = {row.places[0]: lane for lane, row in enumerate(rows) if len(row.places) == 1}
    found = []
    for wait in timeline.waits:
        source = None if wait.late is None else source_of.get(wait.late)
        if source is None or wait.mean_ns < least:
            continue
        stage = names[wait.stage]
        left = _end_of(lanes[source], stage)
        for target, lane in enumerate(lanes):
            waited = sum(
                block.duration_ns
                for block in lane.blocks
                if (block.stage, block.kind, block.is_before) == (stage, "waiting", False)
            )
            if target != source and waited - wait.least_ns >= least:
                found.append(Arrow(stage, source, target, left, _end_of(lane, stage), waited))
    return tuple(found)


def _end_of(lane: SwimLane, stage: str) -> float:
    """Return where a stage of the step that is shown ends in a lane."""
    ends = [block.end_ns for block in lane.blocks if block.stage == stage and not block.is_before]
    return ends[-1] if ends else lane.step_start_ns


__all__ = ["Arrow", "Block", "StageWait", "SwimLane", "SwimLanes", "swim_lanes"]
