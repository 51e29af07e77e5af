"""Derive work and waiting from the times at which ranks called collectives.

Shared by formats that record collectives without steps. A collective is matched across ranks by its group and
its sequence number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.model import Lane, Operators
from sfapp.model.operators import COLLECTIVE

Ints = npt.NDArray[np.int64]

WORK, WAIT, TRANSFER = "collective.until_called", "collective.wait", "collective.transfer"
"""Stages: a rank's own time until it calls the next collective, then its wait until the last rank calls it,
and the rest of the collective, which is equal on all ranks."""


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveArrivals:
    """Collectives of one group that all of its ranks called, in order.

    Attributes:
        rank_R: int64, ascending.
        sequence_K: int64, ascending.
        at_KR: int64 ns, time of each rank's call, on one clock.
        kinds: kind of each collective, used to find the repeating cycle.
    """

    rank_R: Ints
    sequence_K: Ints
    at_KR: Ints
    kinds: tuple[str, ...]

    def split(self) -> tuple[Ints, Ints]:
        """Return (work_KR, wait_KR), ns: each rank's time until its call, and from there until the last call.

        A rank that calls the next collective before the last rank calls this one did not wait for it. All of
        its time in between is then work (overlapping collectives, such as the buckets of DDP).
        """
        last_K1 = self.at_KR.max(axis=1, keepdims=True)
        wait_KR = last_K1 - self.at_KR
        follows_KR = np.concatenate([self.at_KR[1:], np.maximum(last_K1[-1:], self.at_KR[-1:])])
        wait_KR[follows_KR < last_K1] = 0
        left_KR = self.at_KR + wait_KR
        begin_1R = np.broadcast_to(self.at_KR[:1].min(), (1, self.at_KR.shape[1]))
        work_KR = self.at_KR - np.concatenate([begin_1R, left_KR[:-1]])
        return np.maximum(work_KR, 0), wait_KR


def period(kinds: Sequence[str], most: int = 512) -> tuple[int, int]:
    """Return (first, length) of the repeating cycle in a list of collectives, probably a step; (0, 1) if
    none.

    The cycle is the shortest one that repeats to the end at least three times and begins in the first half of
    the list. A cycle of a single kind does not count.
    """
    codes = np.unique(np.asarray(kinds), return_inverse=True)[1] if len(kinds) else np.empty(0, np.int64)
    for length in range(2, min(most, len(codes) // 3) + 1):
        broken = np.flatnonzero(codes[length:] != codes[:-length])
        first = int(broken[-1]) + 1 if len(broken) else 0
        if first <= len(codes) // 2 and len(codes) - first >= 3 * length and len(set(codes[-length:])) > 1:
            return first + (len(codes) - first) % length, length
    return 0, 1


class CollectiveEvents:
    """Builder of operator events from collective calls of any group."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._lanes: dict[Lane, int] = {}
        self._groups: dict[str, int] = {}
        self._columns: list[tuple[int, ...]] = []

    def add(
        self, name: str, lane: Lane, group: str, sequence: int, step: int, start_ns: int, end_ns: int
    ) -> None:
        """Add one rank's call; ``step`` is -1 outside any step."""
        self._columns.append(
            (
                self._names.setdefault(name, len(self._names)),
                self._lanes.setdefault(lane, len(self._lanes)),
                step,
                start_ns,
                end_ns,
                self._groups.setdefault(group, len(self._groups)),
                sequence,
            )
        )

    def operators(self) -> Operators:
        """Return all added calls as operator events; at least one must have been added."""
        name_E, lane_E, step_E, start_E, end_E, group_E, sequence_E = np.asarray(self._columns, np.int64).T
        return Operators.of(
            names=tuple(self._names),
            name_E=name_E,
            category_E=np.full(len(self._columns), COLLECTIVE),
            lanes=tuple(self._lanes),
            lane_E=lane_E,
            step_E=step_E,
            start_ns_E=start_E,
            end_ns_E=end_E,
            groups=tuple(self._groups),
            group_E=group_E,
            sequence_E=sequence_E,
        )
