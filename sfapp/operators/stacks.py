"""Merge the stacks of many ranks: equal stacks become one group, that of the fewest ranks first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sfapp.model.stacks import MergedStacks, RankStacks, StackFrame, StackGroup

MAX_GROUPS = 256
"""Maximum number of groups; the stacks of most ranks are left out above it, because the odd ones matter."""

Frames = tuple[StackFrame, ...]


def merge_stacks(stacks: Iterable[RankStacks], all_threads: bool = False) -> MergedStacks:
    """Return the stacks of many ranks with equal ones merged.

    Two stacks are equal if file, function and line of all frames are. A rank counts once in a group, however
    many of its threads have the stack.

    Args:
        all_threads: whether other threads than the training threads are merged too, after these.
    """
    ranks: dict[tuple[str, Frames], set[int]] = {}
    signalled: set[int] = set()
    for one in stacks:
        if one.source == "signal":
            signalled.add(one.rank)
        for each in one.threads:
            if each.is_training or all_threads:
                name = "" if each.is_training else each.name or "unnamed thread"
                ranks.setdefault((name, each.frames), set()).add(one.rank)
    groups = [
        StackGroup(name, frames, tuple(sorted(members)), tuple(sorted(members & signalled)))
        for (name, frames), members in ranks.items()
    ]
    groups.sort(key=lambda group: (not group.is_training, len(group.ranks), group.ranks, group.thread))
    shared = _shared_frames([group.frames for group in groups if group.is_training])
    return MergedStacks(tuple(groups[:MAX_GROUPS]), shared, len(groups[MAX_GROUPS:]))


def _shared_frames(stacks: Sequence[Frames]) -> int:
    """Return the number of outermost frames that at least two stacks have in common, without the innermost
    frame of any: 0 for a single stack."""
    if len(stacks) < 2:
        return 0
    most = min(len(frames) for frames in stacks) - 1
    shared = 0
    while shared < most and len({frames[-1 - shared] for frames in stacks}) == 1:
        shared += 1
    return shared
