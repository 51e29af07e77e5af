"""What a running job says of itself beside its packets: its machines, devices and processes, and its pace.

For looking at while the job runs, never part of a diagnosis. A sample is sent as it is, kept as a line of
JSON (``sfapp.metrics``) and stored as a row (docs/store.md). What a field means and how the values of several
samples become one with age is said here, once. Names carry the units; None is what could not be read.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec

Thinning = Literal["mean", "max", "sum", "newest", "union"]
"""How several values become one; a mean is weighted by ``steps`` where the sample counts steps."""

_LONGEST = 1024


# Bounds are those of the store's columns.
def _number(thinning: Thinning, meaning: str, least: int = 0) -> msgspec.Meta:
    return msgspec.Meta(description=meaning, ge=least, le=2**63 - 1, extra={"thinning": thinning})


def _signed(thinning: Thinning, meaning: str) -> msgspec.Meta:
    return msgspec.Meta(description=meaning, ge=-(2**63), le=2**63 - 1, extra={"thinning": thinning})


def _place(meaning: str) -> msgspec.Meta:
    return msgspec.Meta(description=meaning, ge=0, le=2**31 - 1, extra={"thinning": "newest"})


def _flag(thinning: Thinning, meaning: str) -> msgspec.Meta:
    return msgspec.Meta(description=meaning, extra={"thinning": thinning})


def _text(thinning: Thinning, meaning: str) -> msgspec.Meta:
    return msgspec.Meta(description=meaning, max_length=_LONGEST, extra={"thinning": thinning})


class Sample(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True):
    """What all samples have. None is trusted: sizes and signs are checked when they are decoded."""

    at_ns: Annotated[
        int, _number("newest", "when, ns since 1970; by the aggregator's clock where offsets are known")
    ]
    node_rank: Annotated[int, _place("which node")]


class NodeSample(Sample, frozen=True, tag="node", kw_only=True):
    """One node at one moment; rates are since the sample before."""

    hostname: Annotated[str, _text("newest", "its host name")]
    cpu_percent: Annotated[float, _number("mean", "of all its cores together, 0 to 100")] | None = None
    load_1min: Annotated[float, _number("mean", "processes that ran or waited, over a minute")] | None = None
    memory_used_bytes: Annotated[int, _number("max", "what is not available to new processes")] | None = None
    memory_total_bytes: Annotated[int, _number("newest", "what it has")] | None = None
    disk_read_bytes_per_s: Annotated[float, _number("mean", "from all its disks")] | None = None
    disk_written_bytes_per_s: Annotated[float, _number("mean", "to all its disks")] | None = None
    network_received_bytes_per_s: (
        Annotated[float, _number("mean", "by all its interfaces but loopback")] | None
    ) = None
    network_sent_bytes_per_s: (
        Annotated[float, _number("mean", "by all its interfaces but loopback")] | None
    ) = None
    clock_offset_ns: (
        Annotated[float, _signed("newest", "what its clock lacks to the aggregator's, ns")] | None
    ) = None
    clock_uncertainty_ns: Annotated[float, _number("max", "by how much that may be wrong, ns")] | None = None
    clock_drift_ppm: (
        Annotated[float, _signed("newest", "how much faster the aggregator's clock is, in millionths")] | None
    ) = None
    clock_jumps: Annotated[int, _number("max", "how often one of the two was seen to be set")] | None = None
    no_gpu_because: (
        Annotated[str, _text("newest", "why nothing is known of GPUs; null where it is")] | None
    ) = None


class GpuSample(Sample, frozen=True, tag="gpu", kw_only=True):
    """One GPU of a node at one moment, as NVML says."""

    gpu: Annotated[int, _place("its index on the node, as NVML counts")]
    name: Annotated[str, _text("newest", "its model")] = ""
    utilisation_percent: (
        Annotated[float, _number("mean", "part of the last moments in which a kernel ran, 0 to 100")] | None
    ) = None
    memory_used_bytes: Annotated[int, _number("max", "allocated on it, by any process")] | None = None
    memory_total_bytes: Annotated[int, _number("newest", "what it has")] | None = None
    temperature_celsius: Annotated[float, _number("max", "of the chip")] | None = None
    power_watts: Annotated[float, _number("mean", "drawn by the board")] | None = None
    sm_clock_mhz: Annotated[float, _number("mean", "of its multiprocessors")] | None = None
    memory_clock_mhz: Annotated[float, _number("mean", "of its memory")] | None = None
    throttle_reasons: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=64)], ...],
        msgspec.Meta(
            description="why its clocks were lower than they could be",
            max_length=32,
            extra={"thinning": "union"},
        ),
    ] = ()


class ProcessSample(Sample, frozen=True, tag="process", kw_only=True):
    """The process of one rank at one moment; rates are since the sample before."""

    rank: Annotated[int, _place("which rank")]
    cpu_percent: Annotated[float, _number("mean", "of one core, so beyond 100 with threads")] | None = None
    rss_bytes: Annotated[int, _number("max", "resident memory")] | None = None
    threads: Annotated[int, _number("max", "how many threads")] | None = None
    open_files: Annotated[int, _number("max", "how many file descriptors")] | None = None
    read_bytes_per_s: Annotated[float, _number("mean", "from storage")] | None = None
    written_bytes_per_s: Annotated[float, _number("mean", "to storage")] | None = None


class PaceSample(Sample, frozen=True, tag="pace", kw_only=True):
    """The steps that one rank finished in one stretch of time; at least one."""

    rank: Annotated[int, _place("which rank")]
    step: Annotated[int, _number("max", "the newest of them")]
    steps: Annotated[int, _number("sum", "how many", least=1)]
    wall_mean_ns: Annotated[float, _number("mean", "their mean wall time, ns")]
    wall_max_ns: Annotated[int, _number("max", "the longest of them, ns")]


class LinkSample(Sample, frozen=True, tag="link", kw_only=True, omit_defaults=True):
    """How one rank is heard of, by the aggregator."""

    rank: Annotated[int, _place("which rank")]
    local_rank: Annotated[int, _place("its place on the node")]
    hostname: Annotated[str, _text("newest", "its host name")]
    world_size: Annotated[int, _number("newest", "how many ranks the job has", least=1)]
    silent_s: Annotated[float, _number("max", "seconds since anything was heard of it")]
    has_left: Annotated[bool, _flag("newest", "whether it said goodbye")] = False
    lost_steps: Annotated[int, _number("max", "steps that a full spool has discarded")] = 0
    duplicates: Annotated[int, _number("max", "steps that came again and were dropped")] = 0


class AggregatorSample(Sample, frozen=True, tag="aggregator", kw_only=True):
    """What the aggregator has taken and refused, whatever run it was of; ``node_rank`` is 0."""

    messages: Annotated[int, _number("max", "messages that came")] = 0
    malformed: Annotated[int, _number("max", "messages that could not be read")] = 0
    oversized: Annotated[int, _number("max", "messages that were too long")] = 0
    newer_version: Annotated[int, _number("max", "messages of a version to come")] = 0
    last_fault: Annotated[str, _text("newest", "who sent the newest of those, and what was wrong")] = ""


AnySample = NodeSample | GpuSample | ProcessSample | PaceSample | LinkSample | AggregatorSample

SAMPLES: tuple[type[Sample], ...] = get_args(AnySample)

SUBJECTS: dict[type[Sample], tuple[str, ...]] = {
    NodeSample: ("node_rank",),
    GpuSample: ("node_rank", "gpu"),
    ProcessSample: ("rank",),
    PaceSample: ("rank",),
    LinkSample: ("rank",),
    AggregatorSample: ("node_rank",),
}
"""What a sample is of: the fields that samples of one subject share."""


def described(kind: type[Sample]) -> dict[str, tuple[str, Thinning]]:
    """Per field of a kind of sample, in order: what it means and how it is thinned."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: _described(hints[name]) for name in kind.__struct_fields__}


def _described(hint: Any) -> tuple[str, Thinning]:
    annotated = next((part for part in get_args(hint) if hasattr(part, "__metadata__")), hint)
    (meta,) = annotated.__metadata__
    return meta.description, meta.extra["thinning"]
