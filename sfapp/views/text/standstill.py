"""Describe a job that stands still: which ranks have arrived, and which rank holds it (docs/hangs.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfapp.model.standstill import Certainty, RankGroup, RankState, RollCall, spans_of
from sfapp.views import format

_MOST_GROUPS = 6

_STATES: Mapping[RankState, tuple[str, str]] = {
    "dead": (
        "is dead: its process does not exist any more",
        "are dead: their processes do not exist any more",
    ),
    "stopped": ("is stopped by a signal or a debugger", "are stopped by a signal or a debugger"),
    "kernel": ("waits in the kernel for a disk or a driver", "wait in the kernel for a disk or a driver"),
    "lock": (
        "sends nothing although its process runs: it holds the interpreter lock, or its connection is cut",
        "send nothing although their processes run: they hold the interpreter lock, or are cut off",
    ),
    "silent": (
        "sends nothing: it is dead, stopped, cut off, or holds the interpreter lock",
        "send nothing: they are dead, stopped, cut off, or hold the interpreter lock",
    ),
    "silent_node": ("and its node send nothing", "and their node send nothing"),
    "absent": ("has never reported", "have never reported"),
    "left": ("has closed its recorder", "have closed their recorders"),
}

_ENDINGS: Mapping[Certainty, tuple[str, str]] = {
    "shown": ("it holds the job", "they hold the job"),
    "likely": ("it holds the job", "they hold the job"),
    "possible": ("it may hold the job", "they may hold the job"),
}

_ACTIONS: Mapping[RankState, str] = {
    "dead": "Look at the log of this process, and at the kernel's log of its host for an OOM kill.",
    "stopped": "Continue the process with kill -CONT, or end the debugger.",
    "kernel": "Look at its disk, network file system and drivers (dmesg, /proc/<pid>/stack).",
    "lock": "Look at its native stack (py-spy dump --native): an extension keeps the interpreter lock.",
    "silent": "Look at the process on its host.",
    "silent_node": "Look at the node and its network.",
    "left": "Look at its log, and compare how many batches it has with those of the others.",
}


def standstill_sentence(roll: RollCall) -> str:
    """Return ``Step 1,204: 7 of 8 ranks wait in backward since 184 s; rank 3 is in data since 190 s: it holds
    the job``."""
    step = f"Step {format.count(roll.step)}"
    holding, waiting = roll.held_by, roll.waiting
    if not holding:
        together = _together(roll)
        others = len(roll.groups) - len(together)
        more = f", and {format.counted(others, 'other group')} elsewhere" if others else ""
        size = sum(group.size for group in together)
        where = _where(together[0], size > 1)
        return f"{step}: {_subject(size, roll.world_size)} {where}{more}: none can be named"
    merged = _merged(holding)
    named = [_named(group) for group in merged[:_MOST_GROUPS]]
    if len(merged) > _MOST_GROUPS:
        named.append(f"and {format.counted(len(merged) - _MOST_GROUPS, 'further group')}")
    held = "; ".join(named)
    is_plural = len(roll.holders) > 1
    ending = f"{held}: {_ENDINGS[roll.certainty][is_plural]}"
    if waiting is None:
        return f"{step}: {ending}"
    verb = "waits" if waiting.size == 1 else "wait"
    since = f"since {_seconds(waiting.still_s)}" if waiting.has_place else ""
    subject = f"{format.count(waiting.size)} of {format.counted(roll.world_size, 'rank')}"
    return f"{step}: {subject} {verb} {_place(waiting)} {since}; {ending}".replace("  ", " ")


def standstill_details(roll: RollCall) -> tuple[str, ...]:
    """Return a sentence on each further group of ranks, and how certain the answer is."""
    shown = {id(group) for group in roll.held_by or _together(roll)}
    if roll.waiting is not None:
        shown.add(id(roll.waiting))
    others = [group for group in roll.groups if id(group) not in shown]
    found = [f"{_ranks(group)} {_where(group)}" for group in others[:_MOST_GROUPS]]
    left = len(others) - _MOST_GROUPS
    if left > 0:
        found.append(f"and {format.counted(left, 'further group')}")
    return (*found, f"{_certainty(roll)} No step was finished for {_seconds(roll.idle_s)}.")


def standstill_action(roll: RollCall) -> str:
    """Return what to do next."""
    states = {group.state for group in roll.held_by}
    for state, action in _ACTIONS.items():
        if state in states:
            return action
    if roll.kind in ("mismatch", "deadlock"):
        return "Compare the calls of torch.distributed of these ranks, and their order."
    if len(roll.holders) > 1:
        return "Look at the stacks of these ranks, and at their logs."
    return (
        "Look at the stack of this rank, and at its log."
        if roll.holders
        else (
            "Look at the stacks of some ranks, at the network, and at the dumps of PyTorch's Flight Recorder "
            "with sfapp hang."
        )
    )


def standstill_title(roll: RollCall, has_ended: bool) -> str:
    """Return the problem in one clause: ``The job stands still: rank 3 holds it in data``."""
    verb = "stood" if has_ended else "stands"
    if not roll.holders:
        return f"The job {verb} still, and no rank can be named"
    states = {group.state for group in roll.held_by}
    group = roll.held_by[0]
    which = f"rank{'s' if len(roll.holders) > 1 else ''} {format.ranges(roll.holders)}"
    is_plural = len(roll.holders) > 1
    if len(states) == 1 and group.state in _STATES:
        return f"The job {verb} still: {which} {_STATES[group.state][is_plural].partition(':')[0]}"
    text = f"The job {verb} still: {which} {'hold' if is_plural else 'holds'} it"
    # Several states or places are in the sentence.
    whereabouts = {(each.state in _STATES, _place(each)) for each in roll.held_by}
    return f"{text} {_place(group)}" if len(whereabouts) == 1 else text


def place_words(stage: str | None, call: str = "", group: str = "") -> str:
    """Return where a rank is: ``in backward``, ``in all_reduce in backward``, ``outside a step``."""
    where = "outside a step" if stage is None else format.in_stage(stage) if stage else "between two stages"
    if not call:
        return where
    of_group = f" of group {format.clip(group)}" if group else ""
    return f"in {format.clip(call)}{of_group} {where}"


def _place(group: RankGroup) -> str:
    if not group.has_place:
        return "at an unknown place"
    return place_words(group.stage, group.call, group.group)


def _together(roll: RollCall) -> list[RankGroup]:
    """Return the largest group, and those of other pipeline stages in its state at its place."""
    first = roll.groups[0]
    at = first.state, _place(first), first.step
    return [group for group in roll.groups if (group.state, _place(group), group.step) == at]


def _merged(groups: Sequence[RankGroup]) -> list[RankGroup]:
    """Return the groups with those of one silent state as one, whose last places are left out."""
    found: dict[object, RankGroup] = {}
    for place, group in enumerate(groups):
        key = group.state if group.state in _STATES else place
        before = found.get(key)
        if before is not None:
            spans = spans_of([*before.ranks, *group.ranks])
            still_s = max(before.still_s, group.still_s)
            group = RankGroup(spans=spans, state=group.state, holds=True, has_place=False, still_s=still_s)
        found[key] = group
    return list(found.values())


def _named(group: RankGroup) -> str:
    return f"{_ranks(group)} {_where(group)}"


def _where(group: RankGroup, is_plural: bool | None = None) -> str:
    """Return the state and place of ranks as the rest of a sentence.

    Args:
        is_plural: whether its subject is several ranks; whether the group has several if None.
    """
    known = _STATES.get(group.state)
    is_plural = group.size > 1 if is_plural is None else is_plural
    if known is None:
        return f"{'are' if is_plural else 'is'} {_place(group)} since {_seconds(group.still_s)}"
    last = f", last seen {_place(group)}" if group.has_place else ""
    return f"{known[is_plural]}{last}"


def _certainty(roll: RollCall) -> str:
    if not roll.holders:
        if len(_together(roll)) == len(roll.groups):
            return "All ranks are at the same place."
        return "What is known of their places does not tell which rank the others wait for."
    if roll.kind == "deadlock":
        return "These ranks wait for each other in calls of different groups."
    if roll.kind == "mismatch":
        return "These ranks are in other calls of torch.distributed than the ranks that they wait for."
    meanings: Mapping[Certainty, str] = {
        "shown": "Observed on the rank, or all others wait for it in a call that it is not in.",
        "likely": "Likely: it is at another place than most.",
        "possible": "Only possible: it is the furthest behind.",
    }
    return meanings[roll.certainty]


def _subject(size: int, world_size: int) -> str:
    if size == world_size:
        return f"all {format.counted(world_size, 'rank')}"
    return f"{format.count(size)} of {format.counted(world_size, 'rank')}"


def _ranks(group: RankGroup) -> str:
    return f"rank{'s' if group.size > 1 else ''} {format.ranges(group.ranks)}"


def _seconds(seconds: float) -> str:
    """Return a time below ten minutes in seconds: the difference between 121 s and 179 s matters here."""
    return f"{seconds:,.0f} s" if seconds < 600 else format.lasting(seconds)
