"""Find a window's frontier over all ranks, in O(N·S) bytes for any number of ranks (docs/recorder.md).

The frontier is a maximum, so it can be reduced instead of gathered. A rank packs each of its prefixes with
its own number into one int64. One MAX over the ranks yields the frontier and its leader; the lowest rank wins
ties, as everywhere. ``reduce_window`` is one rank's part of the algorithm, without a network: a generator
that yields the rank's contribution to each reduction and receives the result. ``reduce_group.py`` runs it
over a process group; tests simulate any number of ranks by running their parts in one process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sfapp.model.rank_table import RankIdentity
from sfapp.model.reasons import REASONS
from sfapp.model.reduced import PLANES, NamedRank, OwnPlanes
from sfapp.model.window import NOT_MEASURED
from sfapp.packets.window_rows import FIRST_STAGE_COLUMN, STEP_COLUMN, WALL_COLUMN, WindowBuffer
from sfapp.recorder.transport.gather_errors import GatherRefused
from sfapp.recorder.transport.reduce_sums import Ints, KeptRanks, ReductionSums
from sfapp.recorder.transport.reduce_waits import UNKNOWN, Flags, OwnEnds, wait_flags, with_own_leaders

RANK_BITS = 20
LAST_RANK = (1 << RANK_BITS) - 1
LONGEST_NS = 1 << (63 - RANK_BITS)
"""Longest window, 2.4 hours; a longer one leaves no bits for the rank in an int64."""

MOST_ROWS = 6
"""Number of ranks whose rows are kept: rank 0, the leaders of most exposed time, and random ones."""

MOST_LEADERS_WITH_ROWS = 4
MOST_NAMED = 24
"""Number of ranks whose place is in the packet, including those with rows."""

FAULTS = tuple(sorted(REASONS))
"""Fault codes in the order of the first exchange."""

_AGREED = ("window", "stages", "accumulation", "steps", "first", "last", "numbers")
_ROLE = "role"
_WAITS = 2 * (len(_AGREED) + 1) + 1
"""Position of the word in the first exchange that is 1 if a rank has measured waits."""


@dataclass(frozen=True, slots=True, eq=False)
class ReductionExchange:
    """One reduction over all ranks.

    Attributes:
        how: maximum on every rank, or maximum or sum on rank 0 only.
        mine: int64, this rank's contribution, with the same shape on all ranks.
    """

    how: Literal["max_everywhere", "max", "sum"]
    mine: Ints


@dataclass(frozen=True, slots=True, eq=False)
class ReducedRows:
    """Result of reducing a window, on rank 0.

    Attributes:
        plane_SN: by name (``sfapp.model.reduced.PLANES``).
        rank_K: the ranks whose rows are kept, ascending; ``leaders`` are those among them that lead.
        row_KNC: int64 [K, N, 2 + S], columns as in ``WindowBuffer``.
        own: at the ends of own time of the stages in ``waited`` (positions); None if there are none.
        wait_KVN: int64 ns, waits of the kept rows in those stages.
        identities: of those K ranks.
        named: further leaders with their places.
        lag_SB: int64 [S, LAG_BINS].
        faults: lowest rank with each fault, by code.
    """

    ranks: int
    nodes: int
    plane_SN: dict[str, Ints]
    rank_K: tuple[int, ...]
    leaders: tuple[int, ...]
    row_KNC: Ints
    own: OwnPlanes | None
    waited: tuple[int, ...]
    wait_KVN: Ints
    identities: tuple[RankIdentity, ...]
    named: tuple[NamedRank, ...]
    residual_ns: int
    wall_ns: int
    overlap_share: float
    lag_SB: Ints
    roles_differ: bool
    faults: dict[str, str]


def reduce_window(
    buffer: WindowBuffer, identity: RankIdentity, ranks: int, accumulation: str
) -> Generator[ReductionExchange, Ints, ReducedRows | None]:
    """Reduce a closed window: one rank's part.

    Args:
        ranks: number of ranks that take part, at least 2.
        accumulation: its text, for comparison between ranks.

    Yields:
        This rank's contribution to each reduction; the result must be sent back.

    Returns:
        The result on rank 0, None on the others.

    Raises:
        GatherRefused: the ranks' windows do not match; on all ranks.
    """
    rank, rows_NC = identity.rank, buffer.rows()
    agreed = yield ReductionExchange("max_everywhere", _agreement_words(buffer, identity, accumulation))
    _check(agreed)
    own_SN = np.ascontiguousarray(rows_NC[:, FIRST_STAGE_COLUMN:].T)
    prefix_SN = own_SN.cumsum(axis=0)
    total_N = prefix_SN[-1]
    prefixes = np.stack([prefix_SN, prefix_SN + (total_N.cumsum() - total_N)])  # Step-aligned, carry-over.

    waited: tuple[int, ...] = ()
    if agreed[_WAITS]:
        flags = yield ReductionExchange("max_everywhere", wait_flags(buffer))
        waited = tuple(np.flatnonzero(flags).tolist())
    ends = OwnEnds.of(buffer, waited, own_SN, prefixes)
    prefixes = np.concatenate([prefixes, ends.prefix_VN], axis=1)

    mine = ends.hide_unknown((prefixes << RANK_BITS) | (LAST_RANK - rank))
    top = yield ReductionExchange("max_everywhere", mine)
    frontiers, leaders = top >> RANK_BITS, LAST_RANK - (top & LAST_RANK)
    known_VN = top[0, len(own_SN) :] != UNKNOWN

    runners_up = np.where(leaders == rank, -1, prefixes)  # Without its leader, the maximum is the runner-up.
    # The bits of non-negative floats have the order of the floats.
    overlap_bits = np.array([_overlap_share(rows_NC, own_SN)]).view(np.int64)
    mine = np.concatenate([runners_up.ravel(), own_SN.ravel(), overlap_bits])
    largest = yield ReductionExchange("max", mine)

    stages = len(own_SN)
    kept = _ranks_to_keep(
        frontiers[:, :stages], with_own_leaders(leaders, waited, known_VN), ranks, buffer.number
    )
    sums = ReductionSums.of(stages, len(rows_NC), kept, len(waited))
    lag_SN = frontiers[0, :stages] - prefix_SN
    sums.fill(own_SN, rows_NC, lag_SN, buffer.schema.identify(identity), ends.wait_VN)
    summed = yield ReductionExchange("sum", sums.flat)
    if rank != 0:
        return None
    totals = ReductionSums(summed, sums.stages, sums.steps, kept, sums.waited)
    tops = _Tops(frontiers, leaders, largest[: frontiers.size].reshape(frontiers.shape), known_VN, waited)
    return _reduced_rows(agreed, tops, largest[frontiers.size :], totals, rows_NC[:, STEP_COLUMN], ranks)


def _overlap_share(rows_NC: Ints, own_SN: Ints) -> float:
    """Return by how much the explicit stages exceed the steps' wall time, as a fraction of it."""
    wall_N, explicit_N = rows_NC[:, WALL_COLUMN], own_SN[:-1].sum(axis=0)
    return int((explicit_N - wall_N).clip(min=0).sum()) / max(1, int(wall_N.sum()))


@dataclass(frozen=True, slots=True, eq=False)
class _Tops:
    """Results of the maxima over prefixes, each [2, S + V, N]: at the ends of stages, then of own time.

    Attributes:
        known_VN: whether every rank's wait is known.
        waited: positions of the V stages.
    """

    frontiers: Ints
    leaders: Ints
    runners_up: Ints
    known_VN: Flags
    waited: tuple[int, ...]

    def planes(self, frontier: int, stages: slice) -> tuple[Ints, Ints, Ints]:
        """Return frontier, leader and runner-up of the step-aligned frontier (0) or the other (1)."""
        return (
            self.frontiers[frontier, stages],
            self.leaders[frontier, stages],
            self.runners_up[frontier, stages],
        )

    def own_planes(self, stages: int) -> OwnPlanes | None:
        """Return the results at the ends of own time; None without waits."""
        if not self.waited:
            return None
        behind = slice(stages, None)
        found = (*self.planes(0, behind), *self.planes(1, behind))
        return OwnPlanes(*(np.where(self.known_VN, plane, NOT_MEASURED) for plane in found))


def _reduced_rows(
    agreed: Ints, tops: _Tops, largest: Ints, totals: ReductionSums, step_N: Ints, ranks: int
) -> ReducedRows:
    """Return the result on rank 0 from the results of the exchanges.

    Args:
        largest: maxima of the durations, then of the overlap share.
    """
    ends = slice(0, totals.stages)
    planes = (
        *tops.planes(0, ends),
        *tops.planes(1, ends),
        *(largest[:-1].reshape(totals.stages, totals.steps), totals.total_SN),
    )
    lowest_role, highest_role = _span(agreed, len(_AGREED))
    return ReducedRows(
        ranks=ranks,
        nodes=int(agreed[-1 - len(FAULTS)]),
        plane_SN=dict(zip(PLANES, planes, strict=True)),
        rank_K=totals.kept.held,
        leaders=totals.kept.leaders,
        row_KNC=totals.rows(step_N),
        own=tops.own_planes(totals.stages),
        waited=tops.waited,
        wait_KVN=totals.wait_KVN,
        identities=totals.identities(),
        named=totals.named(),
        residual_ns=int(totals.scalars[0]),
        wall_ns=int(totals.scalars[1]),
        overlap_share=float(largest[-1:].view(np.float64)[0]),
        lag_SB=totals.lag_SB,
        roles_differ=lowest_role != highest_role,
        faults={
            code: f"rank {LAST_RANK - int(packed)}"
            for code, packed in zip(FAULTS, agreed[-len(FAULTS) :], strict=True)
            if packed >= 0
        },
    )


# ---- what must agree ------------------------------------------------------------------------------


def _agreement_words(buffer: WindowBuffer, identity: RankIdentity, accumulation: str) -> Ints:
    """Return a rank's contribution to the first exchange, which decides the sizes of the later ones.

    It has each value that must agree and its negative, so that one MAX yields maximum and minimum, then the
    time spent, whether there are waits, the node, and the faults.
    """
    steps = buffer.rows()[:, STEP_COLUMN]
    values = {
        "window": buffer.number,
        "stages": _digest("\n".join(buffer.schema.stages).encode()),
        "accumulation": _digest(accumulation.encode()),
        "steps": len(steps),
        "first": int(steps[0]) if len(steps) else -1,
        "last": int(steps[-1]) if len(steps) else -1,
        "numbers": _digest(np.ascontiguousarray(steps).tobytes()),
        _ROLE: _digest((buffer.schema.role or "").encode()),
    }
    spent = int(buffer.rows()[:, FIRST_STAGE_COLUMN:].sum())
    words = [word for value in values.values() for word in (value, -value)]
    words += [spent, int(wait_flags(buffer).any()), identity.node_rank + 1]
    words += [LAST_RANK - identity.rank if code in buffer.faults else -1 for code in FAULTS]
    return np.array(words, dtype=np.int64)


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[:7], "big")


def _span(agreed: Ints, index: int) -> tuple[int, int]:
    """Return the smallest and the largest of the ranks' values."""
    return -int(agreed[2 * index + 1]), int(agreed[2 * index])


def _check(agreed: Ints) -> None:
    if _span(agreed, _AGREED.index("steps"))[1] == 0:
        raise GatherRefused("no rank has steps in this window")
    for index, name in enumerate(_AGREED):
        low, high = _span(agreed, index)
        if low != high:
            shown = f": {low}, {high}" if name in ("window", "steps", "first", "last") else ""
            raise GatherRefused(f"ranks disagree on {name}{shown}")
    spent = int(agreed[2 * (len(_AGREED) + 1)])
    if spent >= LONGEST_NS:
        raise GatherRefused(f"a rank's window of {spent / 3.6e12:.1f} hours is too long to be reduced")


# ---- ranks whose rows are kept --------------------------------------------------------------------


def _ranks_to_keep(frontiers: Ints, leaders: Ints, ranks: int, window: int) -> KeptRanks:
    """Choose the ranks to keep, equally on every rank: the leaders of most exposed time in either accounting,
    then pseudo-random ranks seeded by the window's number."""
    aligned = np.diff(frontiers[0], axis=0, prepend=0)
    carried = np.diff(frontiers[1].T.ravel(), prepend=0)
    exposed: dict[int, int] = {}
    for leader, advance in (
        *zip(leaders[0].ravel().tolist(), aligned.ravel().tolist(), strict=True),
        *zip(leaders[1].T.ravel().tolist(), carried.tolist(), strict=True),
    ):
        exposed[leader] = exposed.get(leader, 0) + advance
    order = sorted(exposed, key=lambda rank: (-exposed[rank], rank))
    leading = order[:MOST_LEADERS_WITH_ROWS]
    held = {0, *leading}
    draw = 0
    while len(held) < min(MOST_ROWS, ranks):
        held.add(_digest(f"{window} {draw}".encode()) % ranks)
        draw += 1
    others = [rank for rank in order if rank not in held]
    rows = tuple(sorted(held))
    return KeptRanks(rows, tuple(sorted(leading)), (*rows, *others[: MOST_NAMED - len(rows)]))
