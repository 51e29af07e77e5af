"""From steps as they arrive to one sample a second and rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfapp.model.samples import PaceSample


@dataclass(slots=True)
class _Since:
    """What a rank has done since it was asked last."""

    node_rank: int
    step: int = 0
    steps: int = 0
    wall_ns: int = 0
    wall_max_ns: int = 0


class Paces:
    """Adds up the steps of every rank until they are taken. Holds one row a rank."""

    def __init__(self) -> None:
        self._ranks: dict[int, _Since] = {}

    def add(self, rank: int, node_rank: int, steps: Sequence[int], wall_ns: Sequence[int]) -> None:
        """Some steps of a rank, by their numbers, and how long each took."""
        if not steps:
            return
        since = self._ranks.setdefault(rank, _Since(node_rank))
        since.node_rank = node_rank
        since.step = max(since.step, *steps)
        since.steps += len(steps)
        since.wall_ns += sum(wall_ns)
        since.wall_max_ns = max(since.wall_max_ns, *wall_ns)

    def take(self, at_ns: int, at_least_ns: int = 0) -> list[PaceSample]:
        """What every rank has done since the last time, for those that finished a step; ascending by rank.

        Args:
            at_least_ns: leave out ranks none of whose steps took so long.
        """
        taken = {rank: since for rank, since in self._ranks.items() if since.wall_max_ns >= at_least_ns}
        for rank in taken:
            del self._ranks[rank]
        return [
            PaceSample(
                at_ns=at_ns,
                node_rank=since.node_rank,
                rank=rank,
                step=since.step,
                steps=since.steps,
                wall_mean_ns=since.wall_ns / since.steps,
                wall_max_ns=since.wall_max_ns,
            )
            for rank, since in sorted(taken.items())
        ]
