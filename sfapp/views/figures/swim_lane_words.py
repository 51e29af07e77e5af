"""Describe a swim-lane: row labels, hover texts, the sentence above the plot and the text for screen
readers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sfapp.accounting import Measures
from sfapp.accounting.swim_lane import Block, StageWait, SwimLane, SwimLanes
from sfapp.model import Diagnosis, RankIdentity, broad_stage
from sfapp.views import format
from sfapp.views.figures.active_frontier import too_few_rows
from sfapp.views.figures.base import plain
from sfapp.views.text.limitations import waits_inside

_LABELS = {"slowest": "arrives last", "typical": "typical"}
_KINDS = {
    "suspect": "suspect",
    "slowest": "arrives last",
    "selected": "selected",
    "typical": "typical",
}
_QUANTILES = {
    "min": "first of the others to arrive",
    "median": "half of the others arrive later",
    "p99": "1 % of the others arrive later",
    "max": "last of the others to arrive",
}
_EXPLAINS = 0.5
"""Minimum part of the waiting that a stage of the late rank must explain to be named."""


@dataclass(frozen=True, eq=False)
class LaneWords:
    """The words of one swim-lane plot."""

    measures: Measures
    found: SwimLanes
    diagnosis: Diagnosis

    @cached_property
    def _identity(self) -> dict[int, RankIdentity]:
        ranks = self.measures.window.ranks
        shown = {lane.ranks[0] for lane in self.found.lanes if lane.count == 1}
        places = {rank: ranks.place(rank) for rank in shown}
        return {rank: ranks.identity(place) for rank, place in places.items() if place is not None}

    @property
    def which(self) -> str:
        """Name of the shown step."""
        if self.found.step is not None:
            return f"step {self.found.step}"
        if self.found.carried_in is not None:
            steps = [int(step) for step in self.measures.step_N[1:]]
            return f"mean of steps {format.ranges(steps)}"
        return "mean step-aligned step of the window" if self._restarts else "mean step of the window"

    @property
    def _restarts(self) -> bool:
        """Whether all lanes start at 0 in each step, so that their mean is not the verdict's step time: a
        delay counts in its own step and in the next one."""
        is_aligned = self.found.sync_stage is not None and self.measures.has_all_rows
        if is_aligned or self.diagnosis.carry_over_advances_ns is None:
            return False
        shown = format.duration(self.found.end_ns - self.found.start_ns)
        return shown != format.duration(self.diagnosis.step_time.mean_ns)

    @property
    def waits_inside(self) -> str | None:
        """The broad suspect stage, if ranks wait for each other in it without a record of waits, so that
        its time includes waiting; None if their arrivals explain the waiting."""
        aim = self.diagnosis.aim
        if aim is None or self.found.main_wait is not None or not waits_inside(self.diagnosis):
            return None
        return aim.stage

    @property
    def axis_title(self) -> str:
        """Title of the time axis."""
        if self.found.has_step_before:
            return "since the ranks synchronised"
        return "since the step began"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on omissions in the plot."""
        notes = []
        if self.found.carried_in is not None:
            wait = "ranks wait for a delay before the window"
            notes.append(
                f"Step {self.found.carried_in} is left out: in it, {wait}."
                if self.found.step is None
                else f"In this step, {wait}. Solid blocks may include that waiting."
            )
        if any(lane.kind == "band" for lane in self.found.lanes):
            ranks = format.counted(self.measures.ranks, "rank")
            notes.append(
                f"{ranks}: min, median, p99 and max are the ranks at these places in the order in which the "
                "ranks without a row of their own arrive."
            )
        if self.found.left_out:
            notes.append(f"{format.counted(self.found.left_out, 'selected rank')} not shown.")
        if not self.measures.has_all_rows:
            notes.append(f"{too_few_rows(self.measures).partition(', and')[0]}.")
        return tuple(notes)

    def label(self, lane: SwimLane) -> str:
        """Return the label of a row."""
        if lane.kind == "healthy":
            return "healthy"
        if lane.kind == "missing" or lane.count == 1:
            text = f"rank {lane.ranks[0]}"
            if lane.kind == "band":
                return f"{lane.name}: {text}"
            if lane.kind == "suspect":
                return f"<b>▶ {text}</b>"
            return f"{text}<br>{_LABELS[lane.kind]}" if lane.kind in _LABELS else text
        if lane.kind == "node":
            return f"node {lane.name} ({format.count(lane.count)})"
        if lane.kind == "role":
            return f"{plain(lane.name or 'no role', 12)} ({format.count(lane.count)})"
        return f"{format.count(lane.count)} {'other ' if len(self.found.lanes) > 1 else ''}ranks"

    def name(self, lane: SwimLane) -> str:
        """Return the full description of a row."""
        if lane.kind == "healthy":
            return "healthy windows, critical path"
        if lane.count == 1:
            return f"rank {lane.ranks[0]}"
        ranks = format.counted(lane.count, "rank")
        if lane.kind == "node":
            return f"{ranks} of node {lane.name}, mean"
        if lane.kind == "role":
            return f"{ranks} of role {plain(lane.name or 'none', 28)}, mean"
        return f"{format.count(lane.count)} other ranks, mean"

    def hover(self, lane: SwimLane, block: Block) -> str:
        """Return the hover text of a block."""
        head = f"<b>{self.name(lane)}</b>"
        identity = self._identity.get(lane.ranks[0]) if lane.count == 1 else None
        if identity is not None:
            head += f" on {plain(identity.hostname)} (local {identity.local_rank})"
        why = _QUANTILES.get(lane.name, "") if lane.kind == "band" else _KINDS.get(lane.kind, "")
        stage = plain(format.in_stage(block.stage) if block.kind == "waiting" else self._short(block.stage))
        spent = format.duration(block.duration_ns)
        if block.kind == "waiting":
            text = f"waits {spent} {stage}{self._for_whom(lane, block)}"
            text += "<br>inferred from the last arrival" if block.is_inferred else "<br>measured"
        else:
            text = f"{stage} {spent}"
        if block.is_before:
            text += "<br>of the step before"
        return "<br>".join(filter(None, (head, why, text)))

    def _short(self, stage: str) -> str:
        return format.short_stage(stage)

    def _for_whom(self, lane: SwimLane, block: Block) -> str:
        names = self.measures.window.stages
        for wait in self.found.waits:
            if names[wait.stage] == block.stage and not block.is_before:
                late = self.rank_of(wait)
                if late is not None and lane.ranks != (late,):
                    return f" for rank {late}"
        return ""

    def rank_of(self, wait: StageWait) -> int | None:
        """Return the global rank that the others wait for; None if there is no single one."""
        return None if wait.late is None else self.measures.window.ranks.rank[wait.late]

    def cause(self, wait: StageWait) -> tuple[str, float] | None:
        """Return the stage in which the late rank loses most against a typical one, and the time lost, ns.

        None if no stage explains most of the waiting.
        """
        late = self.rank_of(wait)
        lanes = {lane.ranks: lane for lane in self.found.lanes if lane.count == 1}
        source = None if late is None else lanes.get((late,))
        typical = next(
            (
                lane
                for lane in self.found.lanes
                if lane.kind in ("typical", "rank", "others", "role") or lane.name == "median"
            ),
            None,
        )
        if source is None or typical is None:
            return None
        spent, usual = _own_by_stage(source), _own_by_stage(typical)
        stage = max(spent, key=lambda name: spent[name] - usual.get(name, 0.0))
        more = spent[stage] - usual.get(stage, 0.0)
        return (stage, more) if more >= _EXPLAINS * wait.mean_ns else None


def _own_by_stage(lane: SwimLane) -> dict[str, float]:
    """Return own time by broad stage between two synchronisations, including the step before if it is
    shown."""
    before = {broad_stage(block.stage) for block in lane.blocks if block.is_before}
    own: dict[str, float] = {}
    for block in lane.blocks:
        stage = broad_stage(block.stage)
        if block.kind == "own" and (block.is_before or stage not in before):
            own[stage] = own.get(stage, 0.0) + block.duration_ns
    return own


def headline(words: LaneWords) -> str:
    """Return which ranks wait for which, as one sentence without its full stop."""
    found, ranks = words.found, words.measures.ranks
    if ranks == 1:
        return "One rank, which waits for no other"
    if found.sync_stage is None:
        return "It is not known where ranks wait for each other"
    wait = found.main_wait
    if words.waits_inside is not None:
        inside = format.in_stage(words.waits_inside, "inside")
        return f"Ranks wait for each other {inside}, and durations do not show for which"
    if wait is None:
        return "Ranks hardly wait for each other"
    where = format.in_stage(words.measures.window.stages[wait.stage])
    late, waited = words.rank_of(wait), format.duration(wait.mean_ns)
    if late is None:
        return f"Ranks wait {waited} {where} on average, for different ranks"
    others = "other rank waits" if ranks == 2 else f"{format.count(ranks - 1)} other ranks wait"
    text = f"The {others} {waited} {where} for rank {late}"
    cause = words.cause(wait)
    if cause is None:
        return text
    stage, more = cause
    return f"{text}, which takes {format.duration(more)} longer {format.in_stage(stage)}"


def subtitle(words: LaneWords) -> str:
    """Return what is shown, how to read it, and its source."""
    found = words.found
    parts = [headline(words), words.which]
    blocks = [block for lane in found.lanes for block in lane.blocks if block.kind == "waiting"]
    if blocks:
        how = ", inferred from when the last rank arrives" if any(each.is_inferred for each in blocks) else ""
        mixed = words.waits_inside
        solid = "own time" if mixed is None else f"own time, {format.in_stage(mixed)} with the waiting"
        parts.append(f"solid: {solid}, hatched: waiting{how}")
    if found.sync_stage is not None:
        drawn = "drawn from durations, laid together where ranks synchronise: no clocks are compared"
    elif words.measures.ranks > 1:
        drawn = "drawn from durations, every rank from the start of its step: no clocks are compared"
    else:
        drawn = "drawn from durations"
    return "; ".join((*parts, drawn))


def sentence(words: LaneWords) -> str:
    """Return the plot in words, with the rows that have blocks."""
    found = words.found
    length = format.duration(found.end_ns - found.start_ns)
    rows = []
    for lane in found.lanes:
        if lane.kind == "missing":
            rows.append(f"rank {lane.ranks[0]} did not report")
            continue
        own = _own_by_stage(lane)
        waited = sum(
            each.duration_ns for each in lane.blocks if each.kind == "waiting" and not each.is_before
        )
        longest = sorted(own, key=lambda stage: -own[stage])[:2]
        parts = [f"{format.short_stage(stage)} {format.duration(own[stage])}" for stage in longest]
        if waited >= 0.01 * max(1.0, found.end_ns - found.start_ns):
            parts.append(f"waiting {format.duration(waited)}")
        rows.append(f"{words.name(lane)}: {', '.join(parts)}")
    return f"{headline(words)}. In the {words.which}, {length} long: {'; '.join(rows)}."
