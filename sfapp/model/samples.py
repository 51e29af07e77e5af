"""Samples of a running job: its machines, devices, processes and pace.

They serve monitoring and are never part of a diagnosis. A sample is streamed, kept as a line of JSON
(``sfapp.metrics``) and stored as a row (docs/store.md). The meaning of each field, and how several values are
aggregated when samples age, is defined here only. Names carry the units; None means that a value could not be
read.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec

Aggregation = Literal["mean", "max", "sum", "newest", "union"]
"""How several values are merged; a mean is weighted by ``steps`` in samples that count steps."""

_LONGEST = 1024
_LONGEST_DOCUMENT = 1 << 20


# The bounds are those of the store's column types.
def _number(aggregation: Aggregation, meaning: str, least: int = 0) -> msgspec.Meta:
    return msgspec.Meta(description=meaning, ge=least, le=2**63 - 1, extra={"aggregation": aggregation})


def _signed(aggregation: Aggregation, meaning: str) -> msgspec.Meta:
    return msgspec.Meta(description=meaning, ge=-(2**63), le=2**63 - 1, extra={"aggregation": aggregation})


def _index(meaning: str) -> msgspec.Meta:
    return msgspec.Meta(description=meaning, ge=0, le=2**31 - 1, extra={"aggregation": "newest"})


def _flag(aggregation: Aggregation, meaning: str) -> msgspec.Meta:
    return msgspec.Meta(description=meaning, extra={"aggregation": aggregation})


def _text(aggregation: Aggregation, meaning: str) -> msgspec.Meta:
    return msgspec.Meta(description=meaning, max_length=_LONGEST, extra={"aggregation": aggregation})


class Sample(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True):
    """Fields of all samples. Samples are not trusted: sizes and signs are checked when they are decoded."""

    at_ns: Annotated[
        int,
        _number("newest", "ns since 1970, by the aggregator's clock where offsets are known"),
    ]
    node_rank: Annotated[int, _index("rank of the node")]


class NodeSample(Sample, frozen=True, tag="node", kw_only=True):
    """State of one node at one moment; rates are since the previous sample."""

    hostname: Annotated[str, _text("newest", "host name")]
    cpu_percent: Annotated[float, _number("mean", "CPU use of all cores together, 0 to 100")] | None = None
    load_1min: Annotated[float, _number("mean", "load average over one minute")] | None = None
    memory_used_bytes: Annotated[int, _number("max", "memory not available to new processes")] | None = None
    memory_total_bytes: Annotated[int, _number("newest", "memory installed")] | None = None
    disk_read_bytes_per_s: Annotated[float, _number("mean", "read from all disks")] | None = None
    disk_written_bytes_per_s: Annotated[float, _number("mean", "written to all disks")] | None = None
    network_received_bytes_per_s: (
        Annotated[float, _number("mean", "received by all interfaces except loopback")] | None
    ) = None
    network_sent_bytes_per_s: (
        Annotated[float, _number("mean", "sent by all interfaces except loopback")] | None
    ) = None
    clock_offset_ns: (
        Annotated[float, _signed("newest", "add it to the node's clock to get the aggregator's, ns")] | None
    ) = None
    clock_uncertainty_ns: Annotated[float, _number("max", "largest error of that offset, ns")] | None = None
    clock_drift_ppm: (
        Annotated[float, _signed("newest", "how much faster the aggregator's clock runs, ppm")] | None
    ) = None
    clock_jumps: Annotated[int, _number("max", "how often one of the two clocks was set")] | None = None
    no_gpu_because: (
        Annotated[str, _text("newest", "why no GPU can be read; null if GPUs are read")] | None
    ) = None


class GpuSample(Sample, frozen=True, tag="gpu", kw_only=True):
    """State of one GPU at one moment, read from NVML."""

    gpu: Annotated[int, _index("index of the GPU on the node, as NVML counts")]
    name: Annotated[str, _text("newest", "model of the GPU")] = ""
    utilisation_percent: (
        Annotated[float, _number("mean", "share of recent time in which a kernel ran, 0 to 100")] | None
    ) = None
    memory_used_bytes: Annotated[int, _number("max", "memory allocated by all processes")] | None = None
    memory_total_bytes: Annotated[int, _number("newest", "memory installed")] | None = None
    temperature_celsius: Annotated[float, _number("max", "temperature of the chip")] | None = None
    power_watts: Annotated[float, _number("mean", "power drawn by the board")] | None = None
    sm_clock_mhz: Annotated[float, _number("mean", "clock of the multiprocessors")] | None = None
    memory_clock_mhz: Annotated[float, _number("mean", "clock of the memory")] | None = None
    throttle_reasons: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=64)], ...],
        msgspec.Meta(
            description="why the clocks were throttled",
            max_length=32,
            extra={"aggregation": "union"},
        ),
    ] = ()


class ProcessSample(Sample, frozen=True, tag="process", kw_only=True):
    """State of one rank's process at one moment; rates are since the previous sample."""

    rank: Annotated[int, _index("global rank")]
    cpu_percent: Annotated[float, _number("mean", "percent of one core; above 100 with threads")] | None = (
        None
    )
    rss_bytes: Annotated[int, _number("max", "resident memory")] | None = None
    threads: Annotated[int, _number("max", "number of threads")] | None = None
    open_files: Annotated[int, _number("max", "number of open file descriptors")] | None = None
    read_bytes_per_s: Annotated[float, _number("mean", "read from storage")] | None = None
    written_bytes_per_s: Annotated[float, _number("mean", "written to storage")] | None = None


class PaceSample(Sample, frozen=True, tag="pace", kw_only=True):
    """Steps that one rank finished in one interval; at least one."""

    rank: Annotated[int, _index("global rank")]
    step: Annotated[int, _number("max", "number of the newest of these steps")]
    steps: Annotated[int, _number("sum", "number of steps", least=1)]
    wall_mean_ns: Annotated[float, _number("mean", "mean wall time of a step, ns")]
    wall_max_ns: Annotated[int, _number("max", "longest wall time of a step, ns")]


class LinkSample(Sample, frozen=True, tag="link", kw_only=True, omit_defaults=True):
    """State of one rank's stream on the aggregator."""

    rank: Annotated[int, _index("global rank")]
    local_rank: Annotated[int, _index("rank within the node")]
    hostname: Annotated[str, _text("newest", "host name")]
    world_size: Annotated[int, _number("newest", "number of ranks of the job", least=1)]
    silent_s: Annotated[float, _number("max", "seconds since the last message of the rank")]
    has_left: Annotated[bool, _flag("newest", "whether its recorder was closed")] = False
    lost_steps: Annotated[int, _number("max", "steps that a full send queue discarded")] = 0
    duplicates: Annotated[int, _number("max", "steps that arrived twice; the second copy was dropped")] = 0
    step: (
        Annotated[int, _number("newest", "its current step at its newest heartbeat; between steps, the next")]
        | None
    ) = None
    stage: (
        Annotated[str, _text("newest", "stage it was in; empty between two stages, null outside a step")]
        | None
    ) = None
    call: Annotated[str, _text("newest", "call of torch.distributed it was in")] | None = None
    still_s: Annotated[float, _number("newest", "seconds for which it had been there")] | None = None
    process: (
        Annotated[str, _text("newest", "kernel's state of its process while it is silent; empty: gone")]
        | None
    ) = None


class StandstillSample(Sample, frozen=True, tag="standstill", kw_only=True):
    """A standstill of the job, written when it begins, changes and ends; ``node_rank`` is 0."""

    step: Annotated[int, _number("newest", "step that no rank has finished")]
    began_ns: Annotated[int, _number("newest", "when a rank last finished a step, ns since 1970")]
    limit_s: Annotated[float, _number("newest", "seconds without a finished step that are allowed")]
    has_ended: Annotated[bool, _flag("newest", "whether a step was finished, or all ranks left, later")]
    roll_call: Annotated[
        str,
        msgspec.Meta(
            description="which ranks have arrived, which have not, and which hold the job, JSON",
            max_length=_LONGEST_DOCUMENT,
            extra={"aggregation": "newest"},
        ),
    ]


class AggregatorSample(Sample, frozen=True, tag="aggregator", kw_only=True):
    """Messages that the aggregator received and dropped, of any run; ``node_rank`` is 0."""

    messages: Annotated[int, _number("max", "messages received")] = 0
    malformed: Annotated[int, _number("max", "messages dropped because they could not be parsed")] = 0
    oversized: Annotated[int, _number("max", "messages dropped because they were too long")] = 0
    newer_version: Annotated[int, _number("max", "messages dropped because their version is newer")] = 0
    last_fault: Annotated[str, _text("newest", "sender and reason of the newest dropped message")] = ""


AnySample = (
    NodeSample | GpuSample | ProcessSample | PaceSample | LinkSample | StandstillSample | AggregatorSample
)

SAMPLES: tuple[type[Sample], ...] = get_args(AnySample)

SUBJECTS: dict[type[Sample], tuple[str, ...]] = {
    NodeSample: ("node_rank",),
    GpuSample: ("node_rank", "gpu"),
    ProcessSample: ("rank",),
    PaceSample: ("rank",),
    LinkSample: ("rank",),
    StandstillSample: ("step", "began_ns"),
    AggregatorSample: ("node_rank",),
}
"""Fields that identify the subject of a sample."""


def sample_fields(kind: type[Sample]) -> dict[str, tuple[str, Aggregation]]:
    """Return meaning and aggregation of each field of a sample type, in order."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: _field(hints[name]) for name in kind.__struct_fields__}


def _field(hint: Any) -> tuple[str, Aggregation]:
    annotated = next((part for part in get_args(hint) if hasattr(part, "__metadata__")), hint)
    (meta,) = annotated.__metadata__
    return meta.description, meta.extra["aggregation"]
