"""How ranks find a window's frontier together, in O(N·S) bytes however many they are (docs/recorder.md).

The frontier is a maximum, so it can be reduced instead of gathered: a rank packs each of its prefixes with
its own number into one int64, and one MAX over the ranks is the frontier and its leader, equal ones going to
the lowest rank as everywhere. ``reduce_window`` is one rank's part of it, written without a network: it
yields what it puts into each reduction and is sent what came out.
``sfapp.recorder.transport.reduce`` runs it over a
process group; any number of ranks can be simulated by running their parts side by side.
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
"""A window of more than 2.4 hours on some rank leaves no room for its rank's number."""

MOST_ROWS = 6
"""Ranks whose rows are kept: rank 0, those that lead where most time is exposed, and drawn ones."""

MOST_LEADERS_WITH_ROWS = 4
MOST_NAMED = 24
"""Ranks of which the packet says where they ran, those with rows included."""

_HOST_WORDS, _ROLE_WORDS = 8, 32  # of 8 bytes: Linux host names are at most 64, roles 256

FAULTS = tuple(sorted(REASONS))
"""What a rank may have seen go wrong, in the order of their places in the first exchange."""

_AGREED = ("window", "stages", "accumulation", "steps", "first", "last", "numbers")
_ROLE = "role"


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """One reduction over all ranks.

    Attributes:
        how: maximum on every rank, maximum or sum on rank 0 alone.
        mine: int64, what this rank puts in; of the same shape on all ranks.
    """

    how: Literal["max_everywhere", "max", "sum"]
    mine: Ints


@dataclass(frozen=True, slots=True, eq=False)
class ReducedRows:
    """On rank 0, what came out.

    Attributes:
        plane_SN: by name (``sfapp.model.reduced.PLANES``).
        rank_K: the ranks whose rows are kept, ascending; ``leaders`` among them lead.
        row_KNC: int64 [K, N, 2 + S], as of ``WindowBuffer``.
        identities: of those K ranks. named: of further leaders.
        lag_SB: int64 [S, LAG_BINS].
        faults: by code, the rank that saw it (the lowest).
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
) -> Generator[Exchange, Ints, ReducedRows | None]:
    """One rank's part in reducing a closed window; what came of it on rank 0, None elsewhere.

    Args:
        ranks: how many take part, at least 2.
        accumulation: as spelled for comparing it between ranks.

    Raises:
        GatherRefused: on all ranks alike, where their windows do not fit together.
    """
    rank, rows_NC = identity.rank, buffer.rows()
    agreed = yield Exchange("max_everywhere", _introduction(buffer, identity, accumulation))
    _check(agreed)
    own_SN = np.ascontiguousarray(rows_NC[:, FIRST_STAGE_COLUMN:].T)
    prefix_SN = own_SN.cumsum(axis=0)
    total_N = prefix_SN[-1]
    prefixes = np.stack([prefix_SN, prefix_SN + (total_N.cumsum() - total_N)])  # step-aligned, carry-over

    top = yield Exchange("max_everywhere", (prefixes << RANK_BITS) | (LAST_RANK - rank))
    frontiers, leaders = top >> RANK_BITS, LAST_RANK - (top & LAST_RANK)

    behind = np.where(leaders == rank, -1, prefixes)  # leaders step aside for the runner-up
    wall_N, explicit_N = rows_NC[:, WALL_COLUMN], own_SN[:-1].sum(axis=0)
    overlap = int((explicit_N - wall_N).clip(min=0).sum()) / max(1, int(wall_N.sum()))
    # Bits of floats that are not negative are in the floats' own order.
    bits = np.array([overlap]).view(np.int64)
    largest = yield Exchange("max", np.concatenate([behind.ravel(), own_SN.ravel(), bits]))

    kept = _ranks_to_keep(frontiers, leaders, ranks, buffer.number)
    sums = _Sums.of(len(buffer.schema.stages), len(rows_NC), kept)
    sums.fill(own_SN, rows_NC, frontiers[0] - prefix_SN, identity, buffer.schema.role)
    summed = yield Exchange("sum", sums.flat)
    if rank != 0:
        return None
    size = own_SN.size
    seconds = largest[: 2 * size].reshape(2, *own_SN.shape)
    found = _Sums(summed, sums.stages, sums.steps, kept)
    planes = (
        *(frontiers[0], leaders[0], seconds[0]),
        *(frontiers[1], leaders[1], seconds[1]),
        *(largest[2 * size : 3 * size].reshape(own_SN.shape), found.total_SN),
    )
    return ReducedRows(
        ranks=ranks,
        nodes=int(agreed[-1 - len(FAULTS)]),
        plane_SN=dict(zip(PLANES, planes, strict=True)),
        rank_K=kept.held,
        leaders=kept.leaders,
        row_KNC=found.rows(rows_NC[:, STEP_COLUMN]),
        identities=found.identities(),
        named=found.named(),
        residual_ns=int(found.scalars[0]),
        wall_ns=int(found.scalars[1]),
        overlap_share=float(largest[-1:].view(np.float64)[0]),
        lag_SB=found.lag_SB,
        roles_differ=_span(agreed, len(_AGREED))[0] != _span(agreed, len(_AGREED))[1],
        faults={
            code: f"rank {LAST_RANK - int(seen)}"
            for code, seen in zip(FAULTS, agreed[-len(FAULTS) :], strict=True)
            if seen >= 0
        },
    )


# ---- what must agree ------------------------------------------------------------------------------


def _introduction(buffer: WindowBuffer, identity: RankIdentity, accumulation: str) -> Ints:
    """What a rank says before anything whose size depends on it: each value and its negative, so that one MAX
    tells the largest and the smallest; then how far it got, its node, and what it saw go wrong."""
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


def _span(agreed: Ints, place: int) -> tuple[int, int]:
    """Smallest and largest value over the ranks."""
    return -int(agreed[2 * place + 1]), int(agreed[2 * place])


def _check(agreed: Ints) -> None:
    if _span(agreed, _AGREED.index("steps"))[1] == 0:
        raise GatherRefused("no rank has steps in this window")
    for place, name in enumerate(_AGREED):
        low, high = _span(agreed, place)
        if low != high:
            shown = f": {low}, {high}" if name in ("window", "steps", "first", "last") else ""
            raise GatherRefused(f"ranks disagree on {name}{shown}")
    spent = int(agreed[2 * (len(_AGREED) + 1)])
    if spent >= LONGEST_NS:
        raise GatherRefused(f"a rank's window of {spent / 3.6e12:.1f} hours is too long to be reduced")


# ---- whose rows are kept --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kept:
    """Ranks with rows, those among them that lead, and all of which it is said where they ran."""

    held: tuple[int, ...]
    leaders: tuple[int, ...]
    named: tuple[int, ...]


def _ranks_to_keep(frontiers: Ints, leaders: Ints, ranks: int, window: int) -> _Kept:
    """Chosen alike on every rank from what all know: who leads where time is exposed, in either accounting,
    then ranks drawn by the window's number."""
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
    return _Kept(rows, tuple(sorted(leading)), (*rows, *others[: MOST_NAMED - len(rows)]))


# ---- what is added up -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """The vector that is summed over ranks, and its parts: most of it is zero on most ranks.

    Attributes:
        flat: int64; the parts are views of it.
    """

    flat: Ints
    stages: int
    steps: int
    kept: _Kept

    @classmethod
    def of(cls, stages: int, steps: int, kept: _Kept) -> _Sums:
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
            (rows, self.steps, self.stages),  # wall, then the explicit stages: the residual closes them
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
        """Σ residual, Σ wall."""
        return self._part(1)

    @property
    def lag_SB(self) -> Ints:
        return self._part(2)

    def fill(
        self, own_SN: Ints, rows_NC: Ints, lag_SN: Ints, identity: RankIdentity, role: str | None
    ) -> None:
        """Put in what one rank has."""
        self.total_SN[:] = own_SN
        self.scalars[:] = own_SN[-1].sum(), rows_NC[:, WALL_COLUMN].sum()
        self.lag_SB[:] = lag_counts(lag_SN)
        if identity.rank in self.kept.held:
            place = self.kept.held.index(identity.rank)
            self._part(3)[place] = rows_NC[:, WALL_COLUMN:-1]
            self._part(5)[place] = _words(role or "", _ROLE_WORDS)
        if identity.rank in self.kept.named:
            where = self._part(4)[self.kept.named.index(identity.rank)]
            where[:2] = identity.local_rank, identity.node_rank
            where[2:] = _words(identity.hostname, _HOST_WORDS)

    def rows(self, step_N: Ints) -> Ints:
        """The kept rows, closed by their residual: int64 [K, N, 2 + S]."""
        sent = self._part(3)
        residual = (sent[..., :1] - sent[..., 1:].sum(axis=-1, keepdims=True)).clip(min=0)
        steps = np.broadcast_to(step_N[:, None], (len(sent), self.steps, 1))
        return np.concatenate([steps, sent, residual], axis=-1)

    def identities(self) -> tuple[RankIdentity, ...]:
        return tuple(
            RankIdentity(rank, int(where[0]), int(where[1]), _text(where[2:]), _text(role) or None)
            for rank, where, role in zip(self.kept.held, self._part(4), self._part(5), strict=False)
        )

    def named(self) -> tuple[NamedRank, ...]:
        rows = len(self.kept.held)
        return tuple(
            NamedRank(rank=rank, local_rank=int(where[0]), node_rank=int(where[1]), hostname=_text(where[2:]))
            for rank, where in zip(self.kept.named[rows:], self._part(4)[rows:], strict=True)
        )


def lag_counts(lag_SN: Ints) -> Ints:
    """How many of a rank's boundaries lie how far behind the frontier: int64 [S, LAG_BINS], in powers of two
    of a µs."""
    _, exponent = np.frexp((lag_SN // 1_000).astype(np.float64))  # 0 for 0, i for 2^(i−1) … below 2^i
    bins = np.minimum(exponent, LAG_BINS - 1)
    return np.stack([np.bincount(row, minlength=LAG_BINS) for row in bins]).astype(np.int64)


def _words(text: str, words: int) -> Ints:
    raw = text.encode("utf-8", "replace")[: 8 * words]
    return np.frombuffer(raw.ljust(8 * words, b"\0"), dtype=np.int64)


def _text(words: Ints) -> str:
    return words.tobytes().rstrip(b"\0").decode("utf-8", "ignore")
