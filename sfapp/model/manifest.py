"""The packet's manifest: all data of a window other than numbers per step and rank (packet.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from sfapp.model.reduced import Reduction

FORMAT = 1
"""The packet format that this version writes, and the newest that it reads."""

DIMENSIONS = ("dp", "pp", "tp", "ep", "cp")
"""Dimensions of a parallel layout: data, pipeline, tensor, expert and context parallelism."""

MAX_WORLD_SIZE = 2**20
"""Largest world size, so that a few bytes of manifest cannot claim billions of missing ranks."""

ClosedBy = Literal[
    "full", "schema_change", "world_change", "accumulation_change", "role_change", "flush", "shutdown"
]
Wrapper = Literal["single", "ddp", "fsdp1", "fsdp2", "zero1", "other"]
Prefetch = Literal["aligned", "unaligned", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulation:
    """Gradient accumulation: ``factor`` micro-steps per step; ``ordered`` if they are recorded separately."""

    factor: int = 1
    ordered: bool = True
    sync: str = "every"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Declared degrees of data, tensor, pipeline, expert and context parallelism."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    cp: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderInfo:
    """The program that wrote the packet, and when its rank's recorder was created (RFC 3339)."""

    version: str = ""
    torch: str = ""
    backend: str = ""
    host: str = ""
    started_at: str | UnsetType | None = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """The recorder's own cost in this window, and the training time of the same steps, ns."""

    gather_ns: int = 0
    record_ns: int = 0
    train_ns: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """One label of a diagnosis with its machine-readable reasons (accounting.md §7)."""

    label: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The JSON under the Parquet footer key ``sfapp.packet``. Unknown keys are ignored on reading.

    ``labels`` are the recorder's own conclusions, if any; the accounting never reads them. ``reduced`` is
    present if the rows are those of a few ranks and the frontier that of all ranks. ``attempt`` and
    ``process`` are those of a streamed job; with a process, ``window`` is the rank's own number.
    ``layout`` and ``attributes`` exist in files only, ascending by rank: in memory, ``RankTable`` holds them.
    """

    format: int = FORMAT
    run_id: str
    window: int
    stages: tuple[str, ...]
    stage_hash: str
    world_size: int
    missing_ranks: tuple[int, ...] = ()
    gather_ok: bool = True
    gather_error: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    closed_by: ClosedBy = "full"
    accumulation: Accumulation = Accumulation()
    parallelism: Parallelism = Parallelism()
    wrapper: Wrapper = "other"
    model_fit: bool = False
    prefetch: Prefetch = "unknown"
    recorder: RecorderInfo = RecorderInfo()
    overhead: Overhead = Overhead()
    faults: tuple[str, ...] = ()
    labels: tuple[Label, ...] = ()
    reduced: Reduction | None = None
    attempt: str | None = None
    process: str | None = None
    layout: dict[str, tuple[int, ...]] | None = None
    attributes: dict[str, tuple[str, ...]] | None = None
    extra: dict[str, Any] = field(default_factory=dict)
