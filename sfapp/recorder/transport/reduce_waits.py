"""Compute the ends of own time on one rank, to reduce a window with measured waits (accounting.md §15).

The ends take part in the reduction like further stages, because their frontier is a maximum too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.model.window import NOT_MEASURED
from sfapp.packets.compose import waits_of
from sfapp.packets.packet_layout import WAIT_PREFIX
from sfapp.packets.window_rows import WindowBuffer, is_sampled

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

UNKNOWN = np.iinfo(np.int64).max
"""Value of a packed prefix whose wait is unknown on some rank; it exceeds all others."""


def wait_flags(buffer: WindowBuffer) -> Ints:
    """Return which recorded stages have measured waits on this rank: int64 [S], 1 or 0."""
    return np.array([WAIT_PREFIX + stage in buffer.side for stage in buffer.schema.stages], dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class OwnEnds:
    """Ends of the own parts on this rank of the V stages with measured waits on any rank.

    Attributes:
        stages: their positions among the recorded stages, ascending.
        wait_VN: int64 ns, ``NOT_MEASURED`` where not known.
        prefix_VN: int64 ns [2, V, N], of the step-aligned and the carry-over frontier.
    """

    stages: tuple[int, ...]
    wait_VN: Ints
    prefix_VN: Ints

    @classmethod
    def of(cls, buffer: WindowBuffer, stages: tuple[int, ...], own_SN: Ints, prefixes: Ints) -> OwnEnds:
        """Compute the ends from a rank's window.

        Args:
            own_SN: durations, ns.
            prefixes: at the ends of the stages, ns [2, S, N].
        """
        steps = own_SN.shape[1]
        wait_VN = np.full((len(stages), steps), NOT_MEASURED, dtype=np.int64)
        for place, stage in enumerate(stages):
            value_N = buffer.side.get(WAIT_PREFIX + buffer.schema.stages[stage])
            if value_N is not None:
                value_N = value_N[:steps]
                wait_VN[place] = waits_of(value_N, is_sampled(value_N.view(np.int64)), own_SN[stage])
        return cls(stages, wait_VN, prefixes[:, list(stages)] - wait_VN.clip(min=0))

    def hide_unknown(self, packed: Ints) -> Ints:
        """Return packed prefixes [2, S + V, N], with ``UNKNOWN`` where the wait is not known."""
        own = packed[:, packed.shape[1] - len(self.stages) :]
        own[:, self.wait_VN == NOT_MEASURED] = UNKNOWN
        return packed


def with_own_leaders(leaders: Ints, stages: tuple[int, ...], known_VN: Flags) -> Ints:
    """Return the leaders [2, S, N], at the end of own time where known.

    Args:
        leaders: [2, S + V, N].
    """
    recorded = leaders.shape[1] - len(stages)
    found = leaders[:, :recorded].copy()
    for place, stage in enumerate(stages):
        found[:, stage] = np.where(known_VN[place], leaders[:, recorded + place], found[:, stage])
    return found
