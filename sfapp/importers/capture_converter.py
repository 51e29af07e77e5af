"""Convert a trace taken by a recorder to operator events next to the packets.

``python -m sfapp.importers.capture_converter`` reads a request from stdin and writes the result to stdout,
both as JSON. It runs in its own process so that training keeps its core and its interpreter. The parent
starts it with the lowest priority, and it limits its own memory and CPU time.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping as Table
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from sfapp.errors import SfappError, TraceError
from sfapp.importers.kineto.event_columns import read_columns
from sfapp.importers.kineto.operators import JobOperators
from sfapp.importers.kineto.processes import processes_of
from sfapp.importers.mapping import NO_MAPPING
from sfapp.model import Operators
from sfapp.model.operators import NONE
from sfapp.packets.captured_operators import write_captured
from sfapp.process_limits import limit_process

MEMORY_BYTES, CPU_SECONDS = 4 << 30, 300
"""Limits of this process."""

COLLECTIVES_A_STEP = 2**20
"""Range of collective numbers per step. Each rank's trace is read separately, and a collective that one rank
lacks must not shift the numbers of later steps."""


class ConversionRequest(msgspec.Struct, frozen=True):
    """Request to convert one trace.

    Attributes:
        trace: the trace file.
        root, run_id, rank: where the events belong.
        window_of: (step, window) of the recorded steps.
    """

    trace: str
    root: str
    run_id: str
    rank: int
    window_of: list[tuple[int, int]]


class ConversionResult(msgspec.Struct, frozen=True):
    """Result of a conversion: the number of events and their files, or why there are none."""

    events: int = 0
    files: list[str] = []
    why: str = ""


def convert(order: ConversionRequest) -> ConversionResult:
    """Write the events of each window's steps next to its packet.

    Raises:
        TraceError: the trace cannot be read, or lacks a step.
        PacketError: events cannot be written.
    """
    operators = captured_operators(Path(order.trace), order.rank, [step for step, _ in order.window_of])
    events, files = 0, []
    for window, steps in steps_by_window(dict(order.window_of)).items():
        inside = operators.select(np.isin(operators.step_E, np.asarray(steps, np.int64)))
        if not len(inside):
            continue
        path = write_captured(inside, Path(order.root), order.run_id, window, order.rank)
        events += len(inside)
        files.append(path.name)
    if not events:
        raise TraceError("no event lies in a recorded step", path=order.trace)
    return ConversionResult(events, files)


def captured_operators(path: Path, rank: int, steps: list[int]) -> Operators:
    """Return one rank's operator events in these steps, from a trace taken by its recorder.

    Raises:
        TraceError: the trace cannot be read, or lacks one of the steps.
    """
    columns = read_columns(path)
    process = max(processes_of(columns, NO_MAPPING, cut=False), key=lambda found: len(found.step_N))
    lacking = sorted(set(steps) - set(process.step_N.tolist()))
    if lacking:
        raise TraceError(f"lacks step {lacking[0]} of {len(steps)} recorded steps", path=str(path))
    gathered = JobOperators(len(columns.start_E))
    gathered.add(process, rank, NO_MAPPING)
    operators, _ = gathered.operators()
    inside = operators.select(np.isin(operators.step_E, np.asarray(steps, np.int64)))
    return _numbered_by_step(inside)


def steps_by_window(window_of: Table[int, int]) -> dict[int, list[int]]:
    """Return the steps of each window."""
    found: dict[int, list[int]] = {}
    for step, window in window_of.items():
        found.setdefault(window, []).append(step)
    return found


def _numbered_by_step(operators: Operators) -> Operators:
    """Number collectives by step and by position among those of their group in the step."""
    place_C = np.flatnonzero(operators.sequence_E != NONE)
    group_C, step_C = operators.group_E[place_C], operators.step_E[place_C]
    sequence_E = operators.sequence_E.copy()
    order = np.lexsort((sequence_E[place_C], group_C, step_C))
    key = np.stack([step_C[order], group_C[order]])
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (key[:, 1:] != key[:, :-1]).any(axis=0)
    at = np.arange(len(order))
    since = at - np.maximum.accumulate(np.where(begins, at, 0)) if len(order) else at
    sequence_E[place_C[order]] = step_C[order] * COLLECTIVES_A_STEP + since
    return replace(operators, sequence_E=sequence_E)


def limit_resources() -> None:
    """Limit memory and CPU time; if memory runs out, the kernel ends this process before training."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    limit_process(MEMORY_BYTES, CPU_SECONDS)


def main() -> int:
    """Convert the request on stdin; return 0 on success."""
    limit_resources()
    try:
        answer = convert(msgspec.json.decode(sys.stdin.buffer.read(), type=ConversionRequest))
    except SfappError as error:
        answer = ConversionResult(why=str(error))
    except MemoryError:
        answer = ConversionResult(why=f"the trace needs more than {MEMORY_BYTES >> 30} GiB to be read")
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 1 if answer.why else 0


if __name__ == "__main__":
    sys.exit(main())
