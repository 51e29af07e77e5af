"""Read and write ``newest.steps``: the newest steps of a running job's ranks (metrics.md).

An aggregator replaces the file of each run about twice a second; the live page judges what it holds. It is
MessagePack, serves monitoring only, and may be removed at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from sfapp.errors import MetricsError
from sfapp.files import open_regular, write_atomic
from sfapp.model.live_rows import FIRST_STAGE, LiveRank, LiveRows
from sfapp.model.manifest import MAX_WORLD_SIZE
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.model.rank_table import RankIdentity
from sfapp.model.stages import MAX_NAME_LENGTH, MAX_STAGES
from sfapp.packets.paths import packet_path

FOLDER, NAME = "metrics", "newest.steps"
VERSION = 1

MAX_BYTES = 1 << 27
ROW_BYTES = 2 << 20
"""Approximate number of bytes of rows in a file, which is written twice a second; ``LEAST_STEPS`` of every
rank are kept if that takes no more than half of ``MAX_BYTES``."""

LEAST_STEPS = 8

MOST_LAYOUTS = 1024
"""Number of different lists of stages in a file; ranks with others are in it without rows."""

_MOST_NAMES = 1 << 16  # of stages, in all lists
_BIG = 2**31 - 1
_LONGEST = 1 << 50  # ns, 13 days: sums over a few thousand steps stay exact.

_Index = Annotated[int, msgspec.Meta(ge=0, le=_BIG)]
_Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_LENGTH)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]


class StoredRank(msgspec.Struct, frozen=True, array_like=True):
    """One rank; ``layout`` is the position of its stages, ``rows`` the number of its rows."""

    rank: _Index
    local_rank: _Index
    node_rank: _Index
    hostname: _Name
    role: _Name | None
    layout: _Index
    rows: _Index
    silent_s: _Seconds
    idle_s: _Seconds | None
    has_left: bool


class StoredSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file; ``rows`` are those of all ranks, one rank after the other, little-endian int64."""

    version: Annotated[int, msgspec.Meta(ge=1)]
    run_id: _Name
    at_ns: Annotated[int, msgspec.Meta(ge=0)]
    world_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_WORLD_SIZE)]
    layouts: Annotated[
        tuple[Annotated[tuple[_Name, ...], msgspec.Meta(max_length=MAX_STAGES)], ...],
        msgspec.Meta(max_length=MOST_LAYOUTS),
    ]
    ranks: Annotated[tuple[StoredRank, ...], msgspec.Meta(max_length=MAX_WORLD_SIZE)]
    rows: bytes


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(StoredSteps)


def newest_steps_path(root: Path, run_id: str) -> Path:
    """Return the path of a run's file, ``<root>/<run>/metrics/newest.steps``.

    Raises:
        PacketError: the run id is empty.
    """
    return packet_path(root, run_id, 0).parent / FOLDER / NAME


def write_newest_steps(path: Path, found: LiveRows) -> int:
    """Replace the file and return its size in bytes; nothing is synced to disk.

    Raises:
        OSError: the file cannot be written.
    """
    place = _layouts(found.ranks)
    kept = _kept_rows([rank.row_NC if rank.stages in place else rank.row_NC[:0] for rank in found.ranks])
    ranks = tuple(
        StoredRank(
            rank.identity.rank,
            rank.identity.local_rank,
            rank.identity.node_rank,
            rank.identity.hostname[:MAX_NAME_LENGTH],
            rank.identity.role,
            place.get(rank.stages, 0),
            len(row_NC),
            rank.silent_s,
            rank.idle_s,
            rank.has_left,
        )
        for rank, row_NC in zip(found.ranks, kept, strict=True)
    )
    stored = StoredSteps(
        version=VERSION,
        run_id=found.run_id,
        at_ns=found.at_ns,
        world_size=found.world_size,
        layouts=tuple(place),
        ranks=ranks,
        rows=b"".join(np.ascontiguousarray(row_NC, "<i8").tobytes() for row_NC in kept),
    )
    return write_atomic(path, _ENCODER.encode(stored), sync=False)


def read_newest_steps(path: Path) -> LiveRows:
    """Return the content of a file.

    Raises:
        OSError: it does not exist or cannot be read.
        MetricsError: it is damaged, too long, or of a newer version.
    """
    with open_regular(path) as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise MetricsError(f"{path} is longer than {MAX_BYTES} bytes")
    try:
        stored = _DECODER.decode(content)
    except UNREADABLE_JSON as error:
        raise MetricsError(f"{path} is damaged: {error}") from error
    if stored.version > VERSION:
        raise MetricsError(f"{path} has version {stored.version}; this sfapp reads up to {VERSION}")
    ranks = {rank.identity.rank: rank for rank in _ranks(stored, path)}
    ordered = tuple(ranks[rank] for rank in sorted(ranks) if rank < stored.world_size)
    return LiveRows(stored.run_id, stored.at_ns, stored.world_size, ordered)


def _layouts(ranks: Sequence[LiveRank]) -> dict[tuple[str, ...], int]:
    """Return the position of each list of stages, as many as the file has room for: names come from ranks."""
    found: dict[tuple[str, ...], int] = {}
    names = 0
    for stages in dict.fromkeys(rank.stages for rank in ranks):
        names += len(stages)
        if found and (len(found) == MOST_LAYOUTS or names > _MOST_NAMES):
            break
        found[stages] = len(found)
    return found


def _kept_rows(rows: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """Return the newest rows of every rank, as many as the file has room for."""
    step_bytes = 8 * max(1, sum(row_NC.shape[1] for row_NC in rows if len(row_NC)))
    steps = min(max(LEAST_STEPS, ROW_BYTES // step_bytes), MAX_BYTES // 2 // step_bytes)
    return [row_NC[max(0, len(row_NC) - steps) :] for row_NC in rows]


def _ranks(stored: StoredSteps, path: Path) -> list[LiveRank]:
    """Return the ranks with their rows.

    Raises:
        MetricsError: the rows do not fit the ranks, or a rank's steps do not ascend.
    """
    cells = np.frombuffer(stored.rows[: len(stored.rows) // 8 * 8], "<i8")
    if len(cells) and (cells.min() < 0 or cells.max() > _LONGEST):
        raise MetricsError(f"{path} is damaged: a row holds a negative number, or one too large to add up")
    found, begin = [], 0
    for rank in stored.ranks:
        if rank.layout >= len(stored.layouts):
            raise MetricsError(f"{path} is damaged: rank {rank.rank} has no stages")
        stages = stored.layouts[rank.layout]
        columns = FIRST_STAGE + len(stages)
        end = begin + rank.rows * columns
        if end > len(cells):
            raise MetricsError(f"{path} is damaged: of rank {rank.rank}'s {rank.rows} rows some are missing")
        row_NC = cells[begin:end].reshape(-1, columns)
        identity = RankIdentity(rank.rank, rank.local_rank, rank.node_rank, rank.hostname, rank.role)
        found.append(LiveRank(identity, stages, row_NC, rank.silent_s, rank.idle_s, rank.has_left))
        begin = end
    _check_order(found, path)
    return found


def _check_order(ranks: Sequence[LiveRank], path: Path) -> None:
    """Check that the step numbers of each rank ascend.

    Raises:
        MetricsError: those of a rank do not.
    """
    with_rows = [rank for rank in ranks if len(rank.row_NC)]
    if not with_rows:
        return
    step_M = np.concatenate([rank.row_NC[:, 0] for rank in with_rows])
    last_K = np.cumsum([len(rank.row_NC) for rank in with_rows])
    falls_M = np.diff(step_M) <= 0
    falls_M[last_K[:-1] - 1] = False  # from one rank to the next
    if falls_M.any():
        rank = with_rows[int(np.searchsorted(last_K, int(falls_M.argmax()), side="right"))]
        raise MetricsError(f"{path} is damaged: the steps of rank {rank.identity.rank} do not ascend")
