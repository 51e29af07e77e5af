"""The sums of a reduced window on rank 0, and the ranks they describe (docs/packet.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.model.manifest import DIMENSIONS
from sfapp.model.rank_table import RankIdentity
from sfapp.model.reduced import LAG_BINS, NamedRank
from sfapp.packets.window_rows import WALL_COLUMN

Ints = npt.NDArray[np.int64]

_HOST_WORDS, _ROLE_WORDS = 8, 32  # Words of 8 bytes: Linux host names have at most 64 bytes, roles 256.


@dataclass(frozen=True, slots=True)
class KeptRanks:
    """The ranks described in the result.

    Attributes:
        held: ranks whose rows are kept, ascending.
        leaders: those among them that lead.
        named: all ranks with a stated place, ranks with rows first.
    """

    held: tuple[int, ...]
    leaders: tuple[int, ...]
    named: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ReductionSums:
    """The vector that is summed over ranks, which is mostly zero on most ranks.

    Attributes:
        flat: int64; the properties are views of its parts.
        waited: number of stages with measured waits.
    """

    flat: Ints
    stages: int
    steps: int
    kept: KeptRanks
    waited: int = 0

    @classmethod
    def of(cls, stages: int, steps: int, kept: KeptRanks, waited: int = 0) -> ReductionSums:
        rows = len(kept.held)
        size = stages * steps + 2 + stages * LAG_BINS + rows * steps * (stages + waited)
        size += len(kept.named) * (2 + _HOST_WORDS) + rows * (_ROLE_WORDS + len(DIMENSIONS))
        return cls(np.zeros(size, dtype=np.int64), stages, steps, kept, waited)

    def _part(self, index: int) -> Ints:
        rows, named = len(self.kept.held), len(self.kept.named)
        shapes = (
            (self.stages, self.steps),
            (2,),
            (self.stages, LAG_BINS),
            (rows, self.steps, self.stages),  # Wall, then the explicit stages; the residual is computed.
            (named, 2 + _HOST_WORDS),
            (rows, _ROLE_WORDS),
            (rows, self.waited, self.steps),
            (rows, len(DIMENSIONS)),  # 0 for a dimension that is not known, else the coordinate + 1.
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

    @property
    def wait_KVN(self) -> Ints:
        """Waits of the kept rows, ns, ``NOT_MEASURED`` where not known."""
        return self._part(6)

    def fill(
        self,
        own_SN: Ints,
        rows_NC: Ints,
        lag_SN: Ints,
        identity: RankIdentity,
        wait_VN: Ints,
    ) -> None:
        """Enter one rank's values; ``identity`` has its role and coordinates in this window."""
        self.total_SN[:] = own_SN
        self.scalars[:] = own_SN[-1].sum(), rows_NC[:, WALL_COLUMN].sum()
        self.lag_SB[:] = lag_counts(lag_SN)
        if identity.rank in self.kept.held:
            index = self.kept.held.index(identity.rank)
            self._part(3)[index] = rows_NC[:, WALL_COLUMN:-1]
            self._part(5)[index] = _words(identity.role or "", _ROLE_WORDS)
            self._part(7)[index] = [identity.coordinates.get(name, -1) + 1 for name in DIMENSIONS]
            self.wait_KVN[index] = wait_VN
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
            RankIdentity(
                rank,
                int(where[0]),
                int(where[1]),
                _text(where[2:]),
                _text(role) or None,
                {name: value - 1 for name, value in zip(DIMENSIONS, places.tolist(), strict=True) if value},
            )
            for rank, where, role, places in zip(
                self.kept.held, self._part(4), self._part(5), self._part(7), strict=False
            )
        )

    def named(self) -> tuple[NamedRank, ...]:
        """Return the further ranks with a stated place."""
        rows = len(self.kept.held)
        return tuple(
            NamedRank(rank=rank, local_rank=int(where[0]), node_rank=int(where[1]), hostname=_text(where[2:]))
            for rank, where in zip(self.kept.named[rows:], self._part(4)[rows:], strict=True)
        )


def lag_counts(lag_SN: Ints) -> Ints:
    """Return the number of a rank's boundaries by lag behind the frontier: int64 [S, LAG_BINS], bins in
    powers of two of 1 µs."""
    _, exponent = np.frexp((lag_SN // 1_000).astype(np.float64))  # 0 for 0, i from 2^(i−1) to below 2^i.
    bins = np.minimum(exponent, LAG_BINS - 1)
    return np.stack([np.bincount(row, minlength=LAG_BINS) for row in bins]).astype(np.int64)


def _words(text: str, words: int) -> Ints:
    raw = text.encode("utf-8", "replace")[: 8 * words]
    return np.frombuffer(raw.ljust(8 * words, b"\0"), dtype=np.int64)


def _text(words: Ints) -> str:
    return words.tobytes().rstrip(b"\0").decode("utf-8", "ignore")
