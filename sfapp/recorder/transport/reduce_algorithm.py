"""Find a window's frontier over all ranks, in O(N·S) bytes however many ranks there are (docs/recorder.md).

The frontier is a maximum, so it can be reduced instead of gathered. A rank packs each of its prefixes with
its own number into one int64; one MAX over the ranks yields the frontier and its leader, ties going to the
lowest rank as everywhere. ``reduce_window`` is one rank's part of the algorithm, without a network: a
generator that yields what the rank puts into each reduction and is sent the result. ``reduce_group.py`` runs
it over a process group; tests simulate any number of ranks by running their parts side by side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfapp.model.reasons import REASONS
from sfapp.model.reduced import LAG_BINS, PLANES, NamedRank
from sfapp.model.window import RankIdentity
from sfapp.packets.window_rows import FIRST_STAGE_COLUMN, STEP_COLUMN, WALL_COLUMN, WindowBuffer
from sfapp.recorder.transport.errors import GatherRefused

Ints = npt.NDArray[np.int64]

RANK_BITS = 20
LAST_RANK = (1 << RANK_BITS) - 1
LONGEST_NS = 1 << (63 - RANK_BITS)
"""Longest window, 2.4 hours: a longer one leaves no room for the rank in an int64."""

MOST_ROWS = 6
"""Number of ranks whose rows are kept: rank 0, the leaders of most exposed time, and random ones."""

MOST_LEADERS_WITH_ROWS = 4
MOST_NAMED = 24
"""Number of ranks whose place the packet states, including those with rows."""

_HOST_WORDS, _ROLE_WORDS = 8, 32  # Words of 8 bytes: Linux host names have at most 64 bytes, roles 256.

FAULTS = tuple(sorted(REASONS))
"""Fault codes in the order of the first exchange."""

_AGREED = ("window", "stages", "accumulation", "steps", "first", "last", "numbers")
_ROLE = "role"


@dataclass(frozen=True, slots=True, eq=False)
class ReductionExchange:
    """One reduction over all ranks.

    Attributes:
        how: maximum on every rank, or maximum or sum on rank 0 alone.
        mine: int64, this rank's contribution; of the same shape on all ranks.
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
        identities: of those K ranks.
        named: further leaders and where they ran.
        lag_SB: int64 [S, LAG_BINS].
        faults: by code, the lowest rank that has it.
    """

    ranks: int
    nodes: int
    plane_SN: dict[str, Ints]
    rank_K: tuple[int, ...]
    leaders: tuple[int, ...]
    row_KNC: Ints
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
        ranks: how many ranks take part, at least 2.
        accumulation: its text, as ranks compare it.

    Yields:
        This rank's contribution to each reduction; its result is to be sent.

    Returns:
        The result on rank 0, None on the others.

    Raises:
        GatherRefused: the ranks' windows do not fit together; on all ranks.
    """
    rank, rows_NC = identity.rank, buffer.rows()
    agreed = yield ReductionExchange("max_everywhere", _agreement_words(buffer, identity, accumulation))
    _check(agreed)
    own_SN = np.ascontiguousarray(rows_NC[:, FIRST_STAGE_COLUMN:].T)
    prefix_SN = own_SN.cumsum(axis=0)
    total_N = prefix_SN[-1]
    prefixes = np.stack([prefix_SN, prefix_SN + (total_N.cumsum() - total_N)])  # Step-aligned, carry-over.

    top = yield ReductionExchange("max_everywhere", (prefixes << RANK_BITS) | (LAST_RANK - rank))
    frontiers, leaders = top >> RANK_BITS, LAST_RANK - (top & LAST_RANK)

    runners_up = np.where(leaders == rank, -1, prefixes)  # Without its leader, the maximum is the runner-up.
    # The bits of floats that are not negative are in the floats' own order.
    overlap_bits = np.array([_overlap_share(rows_NC, own_SN)]).view(np.int64)
    mine = np.concatenate([runners_up.ravel(), own_SN.ravel(), overlap_bits])
    largest = yield ReductionExchange("max", mine)

    kept = _ranks_to_keep(frontiers, leaders, ranks, buffer.number)
    sums = _Sums.of(len(buffer.schema.stages), len(rows_NC), kept)
    sums.fill(own_SN, rows_NC, frontiers[0] - prefix_SN, identity, buffer.schema.role)
    summed = yield ReductionExchange("sum", sums.flat)
    if rank != 0:
        return None
    totals = _Sums(summed, sums.stages, sums.steps, kept)
    return _reduced_rows(agreed, frontiers, leaders, largest, totals, rows_NC[:, STEP_COLUMN], ranks)


def _overlap_share(rows_NC: Ints, own_SN: Ints) -> float:
    """Return how much of the steps' wall time the explicit stages exceed it by."""
    wall_N, explicit_N = rows_NC[:, WALL_COLUMN], own_SN[:-1].sum(axis=0)
    return int((explicit_N - wall_N).clip(min=0).sum()) / max(1, int(wall_N.sum()))


def _reduced_rows(
    agreed: Ints, frontiers: Ints, leaders: Ints, largest: Ints, totals: _Sums, step_N: Ints, ranks: int
) -> ReducedRows:
    """Return the result on rank 0 from the results of the exchanges, in their order."""
    shape_SN = frontiers[0].shape
    size = frontiers[0].size
    runners_up = largest[: 2 * size].reshape(2, *shape_SN)
    planes = (
        *(frontiers[0], leaders[0], runners_up[0]),
        *(frontiers[1], leaders[1], runners_up[1]),
        *(largest[2 * size : 3 * size].reshape(shape_SN), totals.total_SN),
    )
    lowest_role, highest_role = _span(agreed, len(_AGREED))
    return ReducedRows(
        ranks=ranks,
        nodes=int(agreed[-1 - len(FAULTS)]),
        plane_SN=dict(zip(PLANES, planes, strict=True)),
        rank_K=totals.kept.held,
        leaders=totals.kept.leaders,
        row_KNC=totals.rows(step_N),
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
    """Return a rank's contribution to the first exchange, on which the sizes of the later ones depend.

    It has each value that must agree and its negative, so that one MAX yields the largest and the smallest;
    then the time spent, the node, and the faults.
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
    words += [spent, identity.node_rank + 1]
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


@dataclass(frozen=True, slots=True)
class _KeptRanks:
    """Ranks that the result describes.

    Attributes:
        held: ranks whose rows are kept, ascending.
        leaders: those among them that lead.
        named: all ranks whose place is stated, those with rows first.
    """

    held: tuple[int, ...]
    leaders: tuple[int, ...]
    named: tuple[int, ...]


def _ranks_to_keep(frontiers: Ints, leaders: Ints, ranks: int, window: int) -> _KeptRanks:
    """Choose the ranks to keep, the same on every rank: the leaders of most exposed time in either
    accounting, then ranks drawn pseudo-randomly from the window's number."""
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
    return _KeptRanks(rows, tuple(sorted(leading)), (*rows, *others[: MOST_NAMED - len(rows)]))


# ---- what is summed -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """The vector that is summed over ranks; most of it is zero on most ranks.

    Attributes:
        flat: int64; the properties are views of its parts.
    """

    flat: Ints
    stages: int
    steps: int
    kept: _KeptRanks

    @classmethod
    def of(cls, stages: int, steps: int, kept: _KeptRanks) -> _Sums:
        rows = len(kept.held)
        size = stages * steps + 2 + stages * LAG_BINS + rows * steps * stages
        size += len(kept.named) * (2 + _HOST_WORDS) + rows * _ROLE_WORDS
        return cls(np.zeros(size, dtype=np.int64), stages, steps, kept)

    def _part(self, index: int) -> Ints:
        rows, named = len(self.kept.held), len(self.kept.named)
        shapes = (
            (self.stages, self.steps),
            (2,),
            (self.stages, LAG_BINS),
            (rows, self.steps, self.stages),  # Wall, then the explicit stages; the residual is computed.
            (named, 2 + _HOST_WORDS),
            (rows, _ROLE_WORDS),
        )
        begin = sum(int(np.prod(shape)) for shape in shapes[:index])
        return self.flat[begin : begin + int(np.prod(shapes[index]))].reshape(shapes[index])

    @property
    def total_SN(self) -> Ints:
        return self._part(0)

    @property
    def scalars(self) -> Ints:
        """Sum of the residual, and of the wall time."""
        return self._part(1)

    @property
    def lag_SB(self) -> Ints:
        return self._part(2)

    def fill(
        self, own_SN: Ints, rows_NC: Ints, lag_SN: Ints, identity: RankIdentity, role: str | None
    ) -> None:
        """Enter one rank's values."""
        self.total_SN[:] = own_SN
        self.scalars[:] = own_SN[-1].sum(), rows_NC[:, WALL_COLUMN].sum()
        self.lag_SB[:] = lag_counts(lag_SN)
        if identity.rank in self.kept.held:
            index = self.kept.held.index(identity.rank)
            self._part(3)[index] = rows_NC[:, WALL_COLUMN:-1]
            self._part(5)[index] = _words(role or "", _ROLE_WORDS)
        if identity.rank in self.kept.named:
            where = self._part(4)[self.kept.named.index(identity.rank)]
            where[:2] = identity.local_rank, identity.node_rank
            where[2:] = _words(identity.hostname, _HOST_WORDS)

    def rows(self, step_N: Ints) -> Ints:
        """Return the kept rows with their residual: int64 [K, N, 2 + S]."""
        sent = self._part(3)
        residual = (sent[..., :1] - sent[..., 1:].sum(axis=-1, keepdims=True)).clip(min=0)
        steps = np.broadcast_to(step_N[:, None], (len(sent), self.steps, 1))
        return np.concatenate([steps, sent, residual], axis=-1)

    def identities(self) -> tuple[RankIdentity, ...]:
        """Return the ranks whose rows are kept."""
        return tuple(
            RankIdentity(rank, int(where[0]), int(where[1]), _text(where[2:]), _text(role) or None)
            for rank, where, role in zip(self.kept.held, self._part(4), self._part(5), strict=False)
        )

    def named(self) -> tuple[NamedRank, ...]:
        """Return the further ranks whose place is stated."""
        rows = len(self.kept.held)
        return tuple(
            NamedRank(rank=rank, local_rank=int(where[0]), node_rank=int(where[1]), hostname=_text(where[2:]))
            for rank, where in zip(self.kept.named[rows:], self._part(4)[rows:], strict=True)
        )


def lag_counts(lag_SN: Ints) -> Ints:
    """Count a rank's boundaries by their lag behind the frontier: int64 [S, LAG_BINS], bins in powers of two
    of a µs."""
    _, exponent = np.frexp((lag_SN // 1_000).astype(np.float64))  # 0 for 0, i from 2^(i−1) to below 2^i.
    bins = np.minimum(exponent, LAG_BINS - 1)
    return np.stack([np.bincount(row, minlength=LAG_BINS) for row in bins]).astype(np.int64)


def _words(text: str, words: int) -> Ints:
    raw = text.encode("utf-8", "replace")[: 8 * words]
    return np.frombuffer(raw.ljust(8 * words, b"\0"), dtype=np.int64)


def _text(words: Ints) -> str:
    return words.tobytes().rstrip(b"\0").decode("utf-8", "ignore")
