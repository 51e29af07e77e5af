"""Find the ranks that hold a job which stands still, from where all ranks are (docs/hangs.md).

Ranks at the same place form a *class*. A class waits for the ranks of its call's group that are elsewhere; a
class that waits for none holds the job. Where calls are not known, the largest class of a pipeline stage
waits for the other ranks of that stage.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from sfapp.model.stages import stage_category
from sfapp.model.standstill import (
    LEAST_SECONDS,
    MAX_GROUPS,
    STANDSTILL_STEPS,
    Certainty,
    JobPositions,
    RankGroup,
    RankPosition,
    RankState,
    ReportedPlace,
    RollCall,
    StandstillKind,
    spans_of,
)

SILENT_SECONDS = 3.0
"""Seconds without a message after which a rank is silent: a heartbeat is sent every second."""

START_STEPS = 3
START_FACTOR = 20
"""Before so many steps have ended, the limit is longer by this factor: first steps compile and load."""

WORKING_FACTOR = 10
"""Factor of the limit while the ranks that hold the job move, or visibly work outside the training stages, as
in a checkpoint or an evaluation."""

_OWN_FAULT: frozenset[RankState] = frozenset({"dead", "stopped", "kernel", "lock", "silent", "silent_node"})
"""States of a rank that cannot go on by itself."""

_NOT_HERE: frozenset[RankState] = _OWN_FAULT | {"left"}

_OBSERVED: frozenset[RankState] = frozenset({"dead", "stopped", "kernel", "lock", "silent_node"})

_OVER: frozenset[RankState] = frozenset({"dead", "silent", "silent_node", "left"})

_LONG_STAGES = ("checkpoint", "save", "eval", "valid")
"""Words in the name of a stage that may take long."""

_TRAINING = frozenset({"data", "forward", "backward", "optimizer"})
_MOST_CLASSES = 512


@dataclass(frozen=True, slots=True)
class StandstillLimits:
    """When a job stands still: no step for ``least_s`` seconds and for ``steps`` usual step times."""

    least_s: float = LEAST_SECONDS
    steps: float = STANDSTILL_STEPS


@dataclass(slots=True, eq=False)
class _RankClass:
    """Ranks in one state at one place.

    Attributes:
        waits_for: classes that it waits for.
    """

    state: RankState
    place: ReportedPlace | None
    pipeline_stage: str | int | None
    positions: list[RankPosition] = field(default_factory=list)
    waits_for: set[int] = field(default_factory=set)

    @property
    def ranks(self) -> list[int]:
        return [each.rank for each in self.positions]


def roll_call(job: JobPositions, limits: StandstillLimits | None = None) -> RollCall | None:
    """Return which rank holds a job that stands still; None if it does not, or has ended.

    A job of which no rank reports has ended, unless a process was seen that still exists. Ranks that report
    no place may have stopped recording, so nothing is known of a job where none does.
    """
    limits = limits or StandstillLimits()
    if job.idle_s <= limits.least_s or not set(rank_states(job).values()) - _OVER:
        return None
    if not any(each.place is not None for each in job.ranks):
        return None
    usual_s = max(limits.least_s, limits.steps * job.usual_step_s)
    classes = _classes(job)
    _add_waits(classes, job.stages)
    kind, holders, certainty = _holders(classes, job.stages)
    if not holders and _are_behind_most(job):
        kind, holders, certainty = "rank", set(range(len(classes))), "likely"
    limit_s = usual_s * _factor(job, [classes[place] for place in holders] or classes, usual_s)
    if job.idle_s <= limit_s:
        return None
    groups = [_group(each, place in holders) for place, each in enumerate(classes)]
    groups += _absent(job, {rank for each in classes for rank in each.ranks})
    return RollCall(
        kind=kind,
        certainty=certainty,
        step=_step(job),
        idle_s=round(job.idle_s, 1),
        limit_s=round(limit_s, 1),
        world_size=job.world_size,
        groups=tuple(sorted(groups, key=_importance)[:MAX_GROUPS]),
    )


def _importance(group: RankGroup) -> tuple[bool, int, tuple[tuple[int, int], ...]]:
    return not group.holds, -group.size, group.spans


def rank_states(job: JobPositions) -> dict[int, RankState]:
    """Return the state of every rank that has reported."""
    silent_nodes = _silent_nodes(job)
    return {each.rank: _state(each, silent_nodes) for each in job.ranks}


def _state(position: RankPosition, silent_nodes: frozenset[int]) -> RankState:
    if position.has_left:
        return "left"
    if position.silent_s <= SILENT_SECONDS:
        return "collective" if position.place is not None and position.place.call else "stage"
    if position.look is None:
        return "silent_node" if position.node_rank in silent_nodes else "silent"
    letter = position.look.state
    if letter in ("", "Z", "X"):
        return "dead"
    if letter in ("T", "t"):
        return "stopped"
    if letter == "D":
        return "kernel"
    return "silent_node" if position.node_rank in silent_nodes else "lock"


def _silent_nodes(job: JobPositions) -> frozenset[int]:
    """Return nodes of which no rank reports while another node does.

    A node of one rank whose process runs is not among them: its rank may hold the interpreter lock.
    """
    here = [each for each in job.ranks if not each.has_left]
    reporting = {each.node_rank for each in here if each.silent_s <= SILENT_SECONDS}
    ranks = Counter(each.node_rank for each in here)
    alone = {each.node_rank for each in here if each.look is not None and ranks[each.node_rank] == 1}
    return frozenset(ranks.keys() - reporting - alone) if reporting else frozenset()


def _classes(job: JobPositions) -> list[_RankClass]:
    """Return the ranks that have not left, by state and place, and those that left too early."""
    found: dict[object, _RankClass] = {}
    states, early = rank_states(job), _left_early(job)
    for each in job.ranks:
        state, place = states[each.rank], each.place
        if state == "left":
            if each.rank not in early:
                continue
            place = None  # Its last heartbeat was sent before it left.
        at = None if place is None else (place.step, place.stage, place.call, place.group, place.group_ranks)
        key = (state, at, each.pipeline_stage)
        found.setdefault(key, _RankClass(state, place, each.pipeline_stage)).positions.append(each)
    return list(found.values())


def _left_early(job: JobPositions) -> frozenset[int]:
    """Return the ranks that left after the newest step, if more ranks are in the next one: as where a rank
    has less data than the others. Ranks that left earlier may train on unrecorded."""
    newest = job.newest_step
    if newest is None:
        return frozenset()
    places = [each.place for each in job.ranks if not each.has_left]
    within = [
        place for place in places if place is not None and place.stage is not None and place.step > newest
    ]
    left = frozenset(each.rank for each in job.ranks if each.has_left and each.newest_step == newest)
    return left if len(left) < len(within) else frozenset()


def _are_behind_most(job: JobPositions) -> bool:
    """Return whether most ranks had finished the step in which the others are before they left."""
    places = [each.place for each in job.ranks if not each.has_left]
    present = [place.step for place in places if place is not None]
    if len(present) < len(places):
        return False
    finished = [each.newest_step for each in job.ranks if each.has_left and each.newest_step is not None]
    return sum(step >= max(present) for step in finished) > len(present)


def _add_waits(classes: Sequence[_RankClass], stages: Sequence[str]) -> None:
    """Add which class waits for which."""
    if len(classes) > _MOST_CLASSES:  # No two ranks are at the same place: no rank can be named.
        return
    class_of = {rank: place for place, each in enumerate(classes) for rank in each.ranks}
    has_calls = any(each.state == "collective" for each in classes)
    crowds = _crowds(classes, stages)
    for place, each in enumerate(classes):
        if each.state == "collective" and each.place is not None:
            members = each.place.group_ranks
            named = {class_of[rank] for rank in members if rank in class_of}
            each.waits_for = (named if members else set(range(len(classes)))) - {place}
        elif place in crowds and not (has_calls and _is_small(each, classes)):
            same = [other for other, one in enumerate(classes) if one.pipeline_stage == each.pipeline_stage]
            others = set(same) - {place}
            # All of a pipeline stage are at one place: they wait for another pipeline stage.
            each.waits_for = others or set(range(len(classes))) - crowds


def _is_small(one: _RankClass, classes: Sequence[_RankClass]) -> bool:
    """Return whether a class without a call has no more ranks than those that are in calls."""
    return len(one.positions) <= sum(len(each.positions) for each in classes if each.state == "collective")


def _crowds(classes: Sequence[_RankClass], stages: Sequence[str]) -> set[int]:
    """Return the reporting classes without a call that hold most ranks of their pipeline stage."""
    by_stage: defaultdict[object, list[int]] = defaultdict(list)
    for place, each in enumerate(classes):
        by_stage[each.pipeline_stage].append(place)
    found = set()
    for places in by_stage.values():
        reporting = [place for place in places if classes[place].state == "stage"]
        total = sum(len(classes[place].positions) for place in places)
        for place in reporting:
            size = len(classes[place].positions)
            if size * 2 > total or (size * 2 == total and _is_ahead(classes, place, places, stages)):
                found.add(place)
    return found


def _is_ahead(
    classes: Sequence[_RankClass], place: int, places: Sequence[int], stages: Sequence[str]
) -> bool:
    """Return whether all other classes are at fault themselves, have left, or are at an earlier place."""
    own = _order(classes[place], stages)
    others = [classes[other] for other in places if other != place]
    return own is not None and all(
        each.state in _NOT_HERE or ((at := _order(each, stages)) is not None and at < own) for each in others
    )


def _order(one: _RankClass, stages: Sequence[str]) -> tuple[int, int] | None:
    """Return where a place lies in the course of the job: its step, and its stage; None if not known."""
    place = one.place
    if place is None or (place.stage is not None and place.stage not in stages):
        return None
    return place.step, -1 if place.stage is None else stages.index(place.stage)


def _holders(
    classes: Sequence[_RankClass], stages: Sequence[str]
) -> tuple[StandstillKind, set[int], Certainty]:
    """Return how the job is held, the classes that hold it, and how certain that is."""
    at_fault = {place for place, each in enumerate(classes) if each.state in _OWN_FAULT}
    if at_fault:
        observed = {place for place in at_fault if classes[place].state in _OBSERVED}
        return "rank", observed or at_fault, "shown" if observed else "likely"
    last = [part for part in _last_components(classes) if _is_waited_for(part, classes)]
    single = [next(iter(part)) for part in last if len(part) == 1]
    if single:
        free = set(single)
        waited_in_calls = any(each.state == "collective" and each.waits_for & free for each in classes)
        are_known = all(classes[place].state != "left" for place in free)
        return "rank", free, "shown" if waited_in_calls and are_known else "likely"
    for part in last:
        return _cycle(part, classes)
    return _furthest_behind(classes, stages)


def _furthest_behind(
    classes: Sequence[_RankClass], stages: Sequence[str]
) -> tuple[StandstillKind, set[int], Certainty]:
    """Return the class at the earliest place, where nothing else is known; none if all are at one place."""
    order = {place: _order(each, stages) for place, each in enumerate(classes)}
    known = sorted((at, place) for place, at in order.items() if at is not None)
    if len(known) < len(classes) or len(known) < 2 or known[0][0] == known[1][0]:
        return "together", set(), "possible"
    return "rank", {known[0][1]}, "possible"


def _cycle(part: frozenset[int], classes: Sequence[_RankClass]) -> tuple[StandstillKind, set[int], Certainty]:
    """Return the classes that hold the job, of those that wait for each other: the smaller part, if any."""
    largest = max(part, key=lambda place: len(classes[place].positions))
    total = sum(len(classes[place].positions) for place in part)
    groups = {_members(classes[place]) for place in part if classes[place].state == "collective"}
    kind: StandstillKind = "deadlock" if len(groups) > 1 else "mismatch"
    if len(classes[largest].positions) * 2 > total:
        return kind, set(part) - {largest}, "likely"
    return kind, set(part), "possible"


def _members(one: _RankClass) -> object:
    return None if one.place is None else (one.place.group, one.place.group_ranks)


def _is_waited_for(part: frozenset[int], classes: Sequence[_RankClass]) -> bool:
    """Return whether ranks wait for these classes, or they for each other."""
    return len(part) > 1 or any(part & each.waits_for for each in classes)


def _last_components(classes: Sequence[_RankClass]) -> list[frozenset[int]]:
    """Return the sets of classes that wait for each other and for none outside; none if no class waits."""
    if not any(each.waits_for for each in classes):  # There may be as many classes as ranks.
        return []
    reach = _reachable(classes)
    found = []
    for place, seen in enumerate(reach):
        part = [other for other in range(len(classes)) if seen >> other & 1]
        if part[0] == place and all(reach[other] >> place & 1 for other in part):
            found.append(frozenset(part))
    return found


def _reachable(classes: Sequence[_RankClass]) -> list[int]:
    """Return for each class, as bits, which classes it waits for, directly or through others, and itself."""
    reach = [1 << place | sum(1 << other for other in each.waits_for) for place, each in enumerate(classes)]
    for middle in range(len(reach)):  # Warshall: paths through the classes up to this one.
        for place, seen in enumerate(reach):
            if seen >> middle & 1:
                reach[place] = seen | reach[middle]
    return reach


def _factor(job: JobPositions, holding: Sequence[_RankClass], usual_s: float) -> float:
    """Return the factor of the limit for ranks that may take longer than usual."""
    if any(each.state in _OWN_FAULT for each in holding):
        return 1.0
    if job.steps < START_STEPS:
        return START_FACTOR
    positions = [position for each in holding if each.state != "left" for position in each.positions]
    return WORKING_FACTOR if any(_may_take_long(each.place, usual_s) for each in positions) else 1.0


def _may_take_long(place: ReportedPlace | None, usual_s: float) -> bool:
    """Return whether a rank that holds the job moves, works outside the training stages, or is in a stage
    that may take long by its name."""
    if place is None:
        return False
    if place.still_ns / 1e9 < usual_s:
        return True
    if place.call:
        return False
    name = place.stage or ""
    is_long = any(word in name.lower() for word in _LONG_STAGES)
    return is_long or (place.is_working and stage_category(name) not in _TRAINING)


def _group(one: _RankClass, holds: bool) -> RankGroup:
    place = one.place
    silent = one.state in _OWN_FAULT
    still = [
        each.silent_s if silent or each.place is None else each.place.still_ns / 1e9 for each in one.positions
    ]
    return RankGroup(
        spans=spans_of(one.ranks),
        state=one.state,
        holds=holds,
        has_place=place is not None,
        step=0 if place is None else place.step,
        stage=None if place is None else place.stage,
        call="" if place is None else place.call,
        group="" if place is None else place.group,
        still_s=round(max(still), 1),
    )


def _absent(job: JobPositions, known: Collection[int]) -> list[RankGroup]:
    """Return the ranks that have never reported, and those that have left and are not known already."""
    present = {each.rank for each in job.ranks}
    absent = _spans_between(spans_of(present), job.world_size)
    left = tuple(sorted(each.rank for each in job.ranks if each.has_left and each.rank not in known))
    found: list[RankGroup] = []
    if absent:
        found.append(RankGroup(spans=absent, state="absent", has_place=False))
    if left:
        found.append(RankGroup(spans=spans_of(left), state="left", has_place=False))
    return found


def _spans_between(spans: Iterable[tuple[int, int]], size: int) -> tuple[tuple[int, int], ...]:
    """Return the stretches of ranks between others, of so many ranks from 0."""
    found, begin = [], 0
    for first, last in (*spans, (size, size)):
        if first > begin:
            found.append((begin, first - 1))
        begin = last + 1
    return tuple(found)


def _step(job: JobPositions) -> int:
    """Return the step that no rank has finished."""
    if job.newest_step is not None:
        return job.newest_step + 1
    return min((each.place.step for each in job.ranks if each.place is not None), default=0)
