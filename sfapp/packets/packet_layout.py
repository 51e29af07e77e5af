"""The columns of a packet, what bounds it, and how its files are named (packet.md)."""

from __future__ import annotations

from dataclasses import dataclass

MANIFEST_KEY = b"sfapp.packet"
"""Parquet footer key of the manifest."""

STEP, RANK, LOCAL_RANK, NODE_RANK = "step", "rank", "local_rank", "node_rank"
HOSTNAME, ROLE, WALL = "hostname", "role", "wall_ns"

FIXED_COLUMNS = (STEP, RANK, LOCAL_RANK, NODE_RANK, HOSTNAME, ROLE, WALL)
"""Columns of every packet, before those of its stages."""

TEXT_COLUMNS = (HOSTNAME, ROLE)

SIDE_PREFIX, SAMPLED_PREFIX = "side.", "sampled."

REDUCED_PREFIX = "reduced."
"""Before ``<plane>.<stage>``: what all ranks found together, the same in all rows of a step."""

RESERVED_PREFIXES = (SIDE_PREFIX, SAMPLED_PREFIX, REDUCED_PREFIX)
"""No stage may be named like this."""

MAX_VALUE = 2**62
"""Largest duration, step time or step number: the difference of any two fits 64 bits. Sums of durations need
not; the accounting looks after those itself."""

MAX_WORLD_SIZE = 2**20
"""Most ranks a job may expect: a few bytes of manifest must not claim billions of missing ranks."""

MAX_RANK_VALUE = 2**31 - 1
"""Largest local or node rank (int32)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a packet may be before it is refused, checked before anything is decoded.

    Attributes:
        max_cells: rows × stages.
        max_bytes: size of the file, and of the columns once expanded in memory.
    """

    max_cells: int = 2**28
    max_bytes: int = 8 * 2**30
