"""Read host evidence of one rank and its peers from a window (accounting.md §21)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sfapp.accounting.late_ranks import Flags, Floats, broad_own
from sfapp.accounting.measures import Measures
from sfapp.model import RankTable, Window
from sfapp.model.arrays import Array, to_numpy
from sfapp.model.explanation import CauseKind
from sfapp.model.host_evidence import (
    BLOCK_IO,
    CPU_PRESSURE,
    EVIDENCE,
    EVIDENCE_PREFIX,
    GC,
    INVOLUNTARY,
    IO_PRESSURE,
    MAJOR_FAULTS,
    MEMORY_PRESSURE,
    MINOR_FAULTS,
    RUNNABLE,
    THROTTLED,
    VOLUNTARY,
    cpu_channel,
)

MOST_PEERS = 255
"""Number of other ranks, evenly spaced, that a rank is compared with."""

BLOCKED = "blocked"
"""Name of the time in the stage without CPU time, which follows from two measurements."""

MS = 1e6

_MOST_VALUE = 1e12  # ms or counts in one step: 31 years

CAUSE_OF: dict[str, CauseKind | None] = {
    THROTTLED: "throttled",
    GC: "gc",
    MAJOR_FAULTS: "page_faults",
    MINOR_FAULTS: "page_faults",
    MEMORY_PRESSURE: "page_faults",
    BLOCK_IO: "storage",
    IO_PRESSURE: "storage",
    RUNNABLE: "no_core",
    CPU_PRESSURE: "no_core",
    VOLUNTARY: None,
    INVOLUNTARY: None,
}
"""Class of causes that each channel of a whole step supports."""


OF_MACHINE = (MEMORY_PRESSURE, IO_PRESSURE, CPU_PRESSURE)
"""Channels of a whole machine or control group: without them, a rank may still be affected."""


@dataclass(frozen=True, slots=True, eq=False)
class HostChannel:
    """One kind of evidence of a rank and its peers.

    Attributes:
        name: the channel. cause: the class of causes that it supports.
        value_NR: ms or counts per step, the late rank first; NaN where not recorded.
        is_time: whether it is a time, ms.
        starts_N: positions of the steps at which an interval of the late rank begins; None if every step has
            a value of its own.
    """

    name: str
    cause: CauseKind | None
    value_NR: Floats
    is_time: bool
    starts_N: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class HostRecord:
    """What was recorded about a rank in one stage.

    Attributes:
        own_NR: own time in the stage, ms, the late rank first.
        channels: those that were recorded on this rank.
    """

    own_NR: Floats
    channels: tuple[HostChannel, ...]


def has_host_evidence(window: Window) -> bool:
    """Return whether a window has any channel of host evidence."""
    return any(name.startswith(EVIDENCE_PREFIX) for name in window.side)


def host_record(measures: Measures, broad: int, place: int) -> HostRecord:
    """Return the evidence of the rank at a position and of its peers, in one broad stage.

    Peers are ranks of the same role, since roles do different work.
    """
    window = measures.window
    columns = _columns(window.ranks, place)
    few = replace(
        window,
        duration_SNR=window.duration_SNR[:, :, columns],
        wall_NR=window.wall_NR[:, columns],
        ranks=window.ranks.select(columns),
        side={},
        waits={stage: wait_NR[:, columns] for stage, wait_NR in window.waits.items()},
    )
    split_SN = np.zeros((len(window.stages), measures.steps), dtype=bool)
    if measures.own is not None:
        split_SN = measures.own.split_SN
    members = measures.members(broad)
    own_NR = to_numpy(broad_own(few, members, split_SN)) / MS
    stages = [window.stages[stage] for stage in members]
    channels = [*_stage_channels(window, stages, columns, own_NR), *_step_channels(window, columns)]
    return HostRecord(own_NR, tuple(channels))


def _columns(ranks: RankTable, place: int) -> list[int]:
    """Return the positions of a rank and, after it, of its peers."""
    role = ranks.role[place]
    peers = [other for other, its in enumerate(ranks.role) if its == role and other != place]
    return [place, *peers[:: max(1, -(-len(peers) // MOST_PEERS))]]


def _stage_channels(
    window: Window, stages: Sequence[str], columns: Sequence[int], own_NR: Floats
) -> list[HostChannel]:
    """Return CPU time in the stage and the rest of its own time."""
    names = [cpu_channel(stage) for stage in stages]
    if not all(name in window.side for name in names):
        return []
    cpu_NR = np.sum([_possible(window.side[name].value_NR[:, columns]) for name in names], axis=0)
    if not _is_known(cpu_NR[:, 0]).any():
        return []
    return [
        HostChannel(names[0], "computing", cpu_NR, True),
        HostChannel(BLOCKED, "blocked", own_NR - cpu_NR, True),
    ]


def _step_channels(window: Window, columns: Sequence[int]) -> list[HostChannel]:
    """Return the channels of a whole step, intervals spread evenly over the steps that they cover."""
    found = []
    for channel in (one for kind in EVIDENCE.values() for one in kind):
        if channel.name not in CAUSE_OF or channel.name not in window.side:
            continue
        value_NR = _possible(window.side[channel.name].value_NR[:, columns])
        if not _is_known(value_NR[:, 0]).any():
            continue
        starts = None
        if channel.scope == "interval":
            starts = _starts(_is_known(value_NR[:, 0]))
            value_NR = np.stack([_spread(value_NR[:, column]) for column in range(len(columns))], axis=1)
        found.append(
            HostChannel(channel.name, CAUSE_OF[channel.name], value_NR, channel.unit == "ms", starts)
        )
    return found


def _possible(value_NR: Array) -> Floats:
    """Return evidence with NaN for values that no counter has: negative ones, and huge ones."""
    values = np.array(to_numpy(value_NR), dtype=np.float64)
    values[~((values >= 0.0) & (values <= _MOST_VALUE))] = np.nan
    return values


def _is_known(value_N: Floats) -> Flags:
    return np.asarray(~np.isnan(value_N))


def _starts(known_N: Flags) -> tuple[int, ...]:
    """Return where each interval begins: at the first step, and after each step with a value but the last."""
    ends = np.flatnonzero(known_N).tolist()
    return (0, *(end + 1 for end in ends[:-1]))


def _spread(value_N: Floats) -> Floats:
    """Return increases since the previous reading, spread evenly over the steps since then; NaN after the
    last reading."""
    spread_N = np.full(len(value_N), np.nan)
    begin = 0
    for end in np.flatnonzero(_is_known(value_N)).tolist():
        spread_N[begin : end + 1] = value_N[end] / (end + 1 - begin)
        begin = end + 1
    return spread_N
