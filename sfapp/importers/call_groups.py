"""The process groups that the Flight Recorder dumps of one job name, and their ranks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sfapp.importers.flight_recorder_dump import ProcessGroup
from sfapp.model.calls import CallGroup
from sfapp.model.manifest import MAX_WORLD_SIZE

MAX_TEXT = 256
"""Longest name of a group or call; longer ones are cut."""

DEFAULT_GROUP = "default_pg"
"""How torch describes the group of all ranks."""


@dataclass(slots=True)
class CallGroups:
    """Groups by name and list of ranks, numbered in the order in which they are first seen."""

    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    found: list[CallGroup] = field(default_factory=list)
    called_by: dict[int, set[int]] = field(default_factory=dict)
    members: int = 0

    def members_with(self, groups: Mapping[str, ProcessGroup]) -> int:
        """Return the number of ranks in all lists, with those of these groups that are new, by name."""
        return self.members + sum(
            each.most_members for name, each in groups.items() if (name, each.ranks) not in self.numbers
        )

    def listed(self, name: str, ranks: str) -> tuple[int, ...]:
        """Return the ranks of a group's list; none if it is no list of ranks."""
        number = self.numbers.get((name, ranks))
        return _members(ranks) if number is None else self.found[number].ranks

    def number(self, name: str, description: str, ranks: str) -> int:
        """Return the number of a group, which is added if it is new."""
        key = (name, ranks)
        if key not in self.numbers:
            members = _members(ranks)
            self.members += len(members)
            self.numbers[key] = len(self.found)
            self.found.append(CallGroup(name[:MAX_TEXT], description[:MAX_TEXT], members, bool(members)))
        return self.numbers[key]

    def world(self, known: Iterable[int]) -> tuple[int, ...]:
        """Return all ranks that dumps name, sorted, with those that are known otherwise."""
        world = {rank for group in self.found for rank in group.ranks}.union(known)
        if not any(group.listed for group in self.found):
            world |= set(range(max(world) + 1))  # Gloo's dumps list no groups; ranks count from 0
        return tuple(sorted(world))

    def complete(self, world: tuple[int, ...]) -> tuple[CallGroup, ...]:
        """Return the groups. One that no dump lists has all ranks if it is the default group, else those that
        called it."""
        return tuple(
            each
            if each.listed
            else replace(each, ranks=world if each.description == DEFAULT_GROUP else self._callers(at))
            for at, each in enumerate(self.found)
        )

    def _callers(self, group: int) -> tuple[int, ...]:
        return tuple(sorted(self.called_by.get(group, ())))


def _members(text: str) -> tuple[int, ...]:
    try:
        ranks = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return ()
    if not isinstance(ranks, list) or len(ranks) > MAX_WORLD_SIZE:
        return ()
    whole = [each for each in ranks if type(each) is int and 0 <= each < MAX_WORLD_SIZE]
    return tuple(whole) if len(whole) == len(ranks) == len(set(whole)) else ()
