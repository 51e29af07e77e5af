"""Count steps as they arrive, for one sample per second and rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfapp.model.samples import PaceSample


@dataclass(slots=True)
class _RankSteps:
    """Steps of a rank since they were last taken."""

    node_rank: int
    step: int = 0
    steps: int = 0
    wall_ns: int = 0
    wall_max_ns: int = 0


class StepPaceCounter:
    """Sums of the steps of every rank until they are taken."""

    def __init__(self) -> None:
        self._ranks: dict[int, _RankSteps] = {}

    def add(self, rank: int, node_rank: int, steps: Sequence[int], wall_ns: Sequence[int]) -> None:
        """Add steps of a rank: their numbers and wall times."""
        if not steps:
            return
        total = self._ranks.setdefault(rank, _RankSteps(node_rank))
        total.node_rank = node_rank
        total.step = max(total.step, *steps)
        total.steps += len(steps)
        total.wall_ns += sum(wall_ns)
        total.wall_max_ns = max(total.wall_max_ns, *wall_ns)

    def take(self, at_ns: int, at_least_ns: int = 0) -> list[PaceSample]:
        """Return and reset the steps of every rank that finished one, ascending by rank.

        Args:
            at_least_ns: leave out ranks without a step this long.
        """
        taken = {rank: total for rank, total in self._ranks.items() if total.wall_max_ns >= at_least_ns}
        for rank in taken:
            del self._ranks[rank]
        return [
            PaceSample(
                at_ns=at_ns,
                node_rank=total.node_rank,
                rank=rank,
                step=total.step,
                steps=total.steps,
                wall_mean_ns=total.wall_ns / total.steps,
                wall_max_ns=total.wall_max_ns,
            )
            for rank, total in sorted(taken.items())
        ]
