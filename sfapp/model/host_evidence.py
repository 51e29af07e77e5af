"""Names of host evidence: what the operating system says about the training thread (packet.md, ``host.*``).

They are side channels, never part of the accounting; ``Window.side`` has them without ``side.``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

EVIDENCE_PREFIX = "host."
"""Prefix of every channel of host evidence."""

EVIDENCE_KEY = "host_evidence"
"""Key of ``Manifest.extra`` under which a packet states what was recorded and what was unavailable."""

CPU_PREFIX, CPU_SUFFIX = "host.cpu.", "_ms"

GC = "host.gc_ms"
RUNNABLE = "host.runnable_ms"
VOLUNTARY, INVOLUNTARY = "host.voluntary_switches", "host.involuntary_switches"
MAJOR_FAULTS, MINOR_FAULTS = "host.major_faults", "host.minor_faults"
BLOCK_IO = "host.block_io_ms"
THROTTLED = "host.throttled_ms"
CPU_PRESSURE, MEMORY_PRESSURE = "host.cpu_pressure_ms", "host.memory_pressure_ms"
IO_PRESSURE = "host.io_pressure_ms"

EvidenceKind = Literal["cpu", "gc", "runnable", "switches", "faults", "block_io", "throttled", "pressure"]
EvidenceUnit = Literal["ms", "count"]
EvidenceScope = Literal["stage", "step", "interval"]

Attributes = Mapping[str, str]
"""Attributes of one rank by name, such as ``{"kernel": "6.8.0"}``."""

KERNEL, CPU_MODEL, GPU_MODEL, GPU_DRIVER, IMAGE = "kernel", "cpu_model", "gpu_model", "gpu_driver", "image"

MODEL_ATTRIBUTES = (KERNEL, CPU_MODEL, GPU_MODEL, GPU_DRIVER)
"""Attributes that name products and neither machines nor users."""

MAX_ATTRIBUTES = 32
"""Maximum number of attributes of a packet."""

MAX_ATTRIBUTE_LENGTH = 256
"""Maximum number of characters of an attribute's name or value."""


@dataclass(frozen=True, slots=True)
class EvidenceChannel:
    """A side channel of host evidence.

    Attributes:
        name: the channel; for ``cpu`` a pattern with ``<stage>``, see ``cpu_channel``.
        unit: unit of the values.
        scope: ``stage``: within one stage of one step; ``step``: since the end of the previous recorded step;
            ``interval``: since the previous value of the channel, which other steps do not have.
        meaning: what it measures, as a phrase.
    """

    name: str
    unit: EvidenceUnit
    scope: EvidenceScope
    meaning: str


EVIDENCE: Mapping[EvidenceKind, tuple[EvidenceChannel, ...]] = {
    "cpu": (
        EvidenceChannel(
            f"{CPU_PREFIX}<stage>{CPU_SUFFIX}",
            "ms",
            "stage",
            "CPU time of the training thread within the stage; the rest of it is blocked, or without a core",
        ),
    ),
    "gc": (EvidenceChannel(GC, "ms", "step", "garbage collections on the training thread"),),
    "runnable": (
        EvidenceChannel(RUNNABLE, "ms", "interval", "the training thread could run but had no core"),
    ),
    "switches": (
        EvidenceChannel(VOLUNTARY, "count", "interval", "times the training thread waited for something"),
        EvidenceChannel(INVOLUNTARY, "count", "interval", "times the training thread lost its core"),
    ),
    "faults": (
        EvidenceChannel(MAJOR_FAULTS, "count", "interval", "page faults that read from storage"),
        EvidenceChannel(MINOR_FAULTS, "count", "interval", "page faults without reading from storage"),
    ),
    "block_io": (
        EvidenceChannel(BLOCK_IO, "ms", "interval", "the training thread waited for a block device"),
    ),
    "throttled": (
        EvidenceChannel(THROTTLED, "ms", "interval", "the control group had used up its quota of CPU time"),
    ),
    "pressure": (
        EvidenceChannel(CPU_PRESSURE, "ms", "interval", "some task waited for a processor core"),
        EvidenceChannel(MEMORY_PRESSURE, "ms", "interval", "some task waited for memory"),
        EvidenceChannel(IO_PRESSURE, "ms", "interval", "some task waited for input or output"),
    ),
}
"""Every kind of evidence with its channels."""

EVIDENCE_KINDS: tuple[EvidenceKind, ...] = tuple(EVIDENCE)


def cpu_channel(stage: str) -> str:
    """Return the channel of the CPU time within a recorded stage."""
    return f"{CPU_PREFIX}{stage}{CPU_SUFFIX}"


def cpu_channels(stages: Sequence[str]) -> list[str]:
    """Return the channel of each recorded stage's CPU time."""
    return [cpu_channel(stage) for stage in stages]


def kinds_among(names: Collection[str]) -> tuple[EvidenceKind, ...]:
    """Return the kinds among these names, in the order of ``EVIDENCE``."""
    return tuple(kind for kind in EVIDENCE_KINDS if kind in names)


def evidence_channels(kinds: Collection[str], stages: Sequence[str]) -> list[str]:
    """Return the channels of these kinds in a window with these recorded stages."""
    found: list[str] = []
    for kind in kinds_among(kinds):
        found += cpu_channels(stages) if kind == "cpu" else [channel.name for channel in EVIDENCE[kind]]
    return found
