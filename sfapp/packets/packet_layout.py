"""Names of a packet's columns and its limits (packet.md)."""

from __future__ import annotations

from dataclasses import dataclass

MANIFEST_KEY = b"sfapp.packet"
"""Parquet footer key of the manifest."""

OWN_KEYS = b"sfapp."
"""Beginning of every footer key of ours."""

NO_MANIFEST = "no manifest: the Parquet footer has no key 'sfapp.packet'"

STEP, RANK, LOCAL_RANK, NODE_RANK = "step", "rank", "local_rank", "node_rank"
HOSTNAME, ROLE, WALL = "hostname", "role", "wall_ns"

FIXED_COLUMNS = (STEP, RANK, LOCAL_RANK, NODE_RANK, HOSTNAME, ROLE, WALL)
"""Columns of every packet, before those of its stages."""

TEXT_COLUMNS = (HOSTNAME, ROLE)

SIDE_PREFIX, SAMPLED_PREFIX = "side.", "sampled."

WAIT_PREFIX = "wait."
"""Prefix of ``wait.<stage>``: the part of the stage's duration in which the rank was blocked."""

REDUCED_PREFIX = "reduced."
"""Prefix of ``<plane>.<stage>``: results over all ranks, equal in all rows of a step."""

_RESERVED_PREFIXES = (SIDE_PREFIX, SAMPLED_PREFIX, REDUCED_PREFIX)


def is_reserved(name: str) -> bool:
    """Return whether a column of this name is none of a stage."""
    return name in FIXED_COLUMNS or name.startswith(_RESERVED_PREFIXES)


MAX_VALUE = 2**62
"""Largest duration, step time or step number, so that the difference of any two fits 64 bits. The accounting
checks sums of durations itself."""

MAX_RANK_VALUE = 2**31 - 1
"""Largest local or node rank (int32)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a packet, checked before anything is decoded.

    Attributes:
        max_cells: rows × stages.
        max_bytes: size of the file, and of the columns once expanded in memory.
        max_ratio: the same, relative to the size of the file.
        least_expanded: bytes to which every file may expand, even a small one.
    """

    max_cells: int = 2**28
    max_bytes: int = 8 * 2**30
    max_ratio: int = 20
    least_expanded: int = 32 * 2**20
