"""Counters of the training thread at the end of each step, in a page beside the timers' page of rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # The system does not count by thread, or has no such module.
    getrusage = None  # type: ignore[assignment]  # there is no other object of its type

from sfapp.packets.window_rows import FIRST_STAGE_COLUMN, WALL_COLUMN

if TYPE_CHECKING:
    from sfapp.recorder.timing.timers import StepState

HOST_CELLS = 6
"""Number of counters: ns of garbage collections, ns runnable without a core, voluntary and involuntary
switches, major and minor page faults, each since the thread began."""

NOT_READ = -1
"""Value of a counter that was not read."""


def read_host(state: StepState, reads_all: bool) -> None:
    """Read the counters into the current step's row. The compiled timers have this function in C.

    Args:
        reads_all: whether to ask the system; otherwise only the collections are noted.

    Raises:
        IndexError: the step has no row.
        OSError, ValueError: the system refuses them.
    """
    place = state.base // state.width * HOST_CELLS
    state.host_page[place] = state.gc_ns
    if not reads_all:
        return
    for offset, value in enumerate(counters(state.gc_ns, state.schedstat, state.reads_usage)):
        state.host_page[place + offset] = value


def counters(gc_ns: int, schedstat: int, reads_usage: bool) -> tuple[int, ...]:
    """Return the counters of this thread.

    Args:
        gc_ns: ns of garbage collections.
        schedstat: open file of the thread's scheduling statistics; -1 for none.
        reads_usage: whether to read switches and faults.

    Raises:
        OSError: the system refuses them.
    """
    try:
        runnable = int(os.pread(schedstat, 96, 0).split()[1]) if schedstat >= 0 else NOT_READ
    except (IndexError, OSError, ValueError):  # Training has closed it, or it is another file since.
        runnable = NOT_READ
    return gc_ns, runnable, *(thread_usage() if reads_usage else (NOT_READ,) * 4)


def thread_usage() -> tuple[int, int, int, int]:
    """Return voluntary and involuntary switches and major and minor page faults of this thread so far.

    Raises:
        OSError: the system counts only those of the process.
    """
    if getrusage is None:
        raise OSError("the system does not count them by thread")
    usage = getrusage(RUSAGE_THREAD)
    return usage.ru_nvcsw, usage.ru_nivcsw, usage.ru_majflt, usage.ru_minflt


@dataclass(frozen=True, slots=True)
class StepEvidence:
    """Host evidence of a step that was timed elsewhere.

    Attributes:
        wall_cpu_ns: CPU time of the thread in the whole step.
        micro_steps: per micro-step the CPU time of its stages by name, ns.
        counters: counters of the thread at its end (``counters``); empty if they were not read.
    """

    wall_cpu_ns: int
    micro_steps: Sequence[Mapping[str, int]]
    counters: Sequence[int] = ()


def add_evidence(
    state: StepState, evidence: StepEvidence | None, column_of: Sequence[Mapping[str, int]], end: int
) -> None:
    """Add host evidence to the row of a step that was timed elsewhere and ended at ``end`` (clock).

    Args:
        column_of: per micro-step, the column of each stage by name.
    """
    cpu = [NOT_READ if column == WALL_COLUMN else 0 for column in range(state.width)]
    if evidence is not None:
        cpu[WALL_COLUMN] = evidence.wall_cpu_ns
        for stages, columns in zip_longest(evidence.micro_steps, column_of[: len(evidence.micro_steps)]):
            for name, ns in (stages or {}).items():
                column = (columns or column_of[-1]).get(name)
                if column is not None:
                    cpu[FIRST_STAGE_COLUMN + column] += ns
    counted: Sequence[int] = () if evidence is None else evidence.counters
    if not counted and state.reads_host:
        counted = counters(state.gc_ns, state.schedstat, state.reads_usage)
    set_host_row(state, cpu if state.reads_cpu else (), counted if state.reads_host else ())
    if end >= state.host_due and state.on_host is not None:
        state.on_host(end)


def host_row(state: StepState) -> tuple[list[int], list[int]]:
    """Return the CPU times of the current step's row, by cell, and its counters."""
    place = state.base // state.width * HOST_CELLS
    cpu = state.cpu_page[state.base : state.base + state.width]
    return list(cpu), list(state.host_page[place : place + HOST_CELLS])


def set_host_row(state: StepState, cpu: Sequence[int], host: Sequence[int]) -> None:
    """Set the CPU times of the current step's row and its counters; ignored where they have no row.

    Raises:
        TypeError, OverflowError: a value is no 64-bit integer.
    """
    place = state.base // state.width * HOST_CELLS
    for page, begin, values in ((state.cpu_page, state.base, cpu), (state.host_page, place, host)):
        if begin + len(values) <= len(page):
            for offset, value in enumerate(values):
                page[begin + offset] = value
