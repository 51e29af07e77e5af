"""What a recorder's own trace holds, as operator events beside the packets.

``python -m sfapp.importers.capture_converter`` reads an order from stdin, as JSON, and
says on stdout what came of it. A
process of its own, so that training keeps its core and its Python: whoever starts it gives it the lowest
priority, and it keeps within bounds of memory and time.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Mapping as Table
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from sfapp.errors import SfappError, TraceError
from sfapp.importers.kineto.event_columns import read_columns
from sfapp.importers.kineto.operators import Gathered
from sfapp.importers.kineto.processes import processes_of
from sfapp.importers.mapping import NO_MAPPING
from sfapp.model import Operators
from sfapp.model.operators import NONE
from sfapp.packets import operators_path, write_operators

MEMORY_BYTES, CPU_SECONDS = 4 << 30, 300
"""What this process may take, whoever started it."""

COLLECTIVES_A_STEP = 2**20
"""Collectives of a group are numbered by step and place in it: each rank's trace is read by itself, and a
collective that one rank lacks must not shift the numbers of later steps."""


class Order(msgspec.Struct, frozen=True):
    """What to read, and what it is.

    Attributes:
        trace: the trace file.
        root, run_id, rank: where its events belong.
        window_of: (step, window) of the steps that were recorded.
    """

    trace: str
    root: str
    run_id: str
    rank: int
    window_of: list[tuple[int, int]]


class Answer(msgspec.Struct, frozen=True):
    """What came of it: how many events were written, in which files; or why none were."""

    events: int = 0
    files: list[str] = []
    why: str = ""


def convert(order: Order) -> Answer:
    """Write the events of each window's steps beside its packet.

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
        path = operators_path(Path(order.root), order.run_id, window, order.rank)
        write_operators(inside, order.run_id, window, path)
        events += len(inside)
        files.append(path.name)
    if not events:
        raise TraceError("no event lies in a step that was recorded", path=order.trace)
    return Answer(events, files)


def captured_operators(path: Path, rank: int, steps: list[int]) -> Operators:
    """The operator events of one rank in these steps, from a trace that its recorder took.

    Raises:
        TraceError: the trace cannot be read, or lacks one of the steps.
    """
    columns = read_columns(path)
    process = max(processes_of(columns, NO_MAPPING, cut=False), key=lambda found: len(found.step_N))
    lacking = sorted(set(steps) - set(process.step_N.tolist()))
    if lacking:
        raise TraceError(f"lacks step {lacking[0]}, of {len(steps)} that were recorded", path=str(path))
    gathered = Gathered(len(columns.start_E))
    gathered.add(process, rank, NO_MAPPING)
    operators, _ = gathered.operators()
    inside = operators.select(np.isin(operators.step_E, np.asarray(steps, np.int64)))
    return _numbered_by_step(inside)


def steps_by_window(window_of: Table[int, int]) -> dict[int, list[int]]:
    """The steps of each window."""
    found: dict[int, list[int]] = {}
    for step, window in window_of.items():
        found.setdefault(window, []).append(step)
    return found


def _numbered_by_step(operators: Operators) -> Operators:
    """Collectives numbered by their step and their place among those of their group in it."""
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


def step_back() -> None:
    """Let training have the memory: where that runs out, it is this process that ends."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    for kind, most in ((resource.RLIMIT_DATA, MEMORY_BYTES), (resource.RLIMIT_CPU, CPU_SECONDS)):
        _, hard = resource.getrlimit(kind)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))


def main() -> int:
    """Do what stdin asks for; 0 if it was done."""
    step_back()
    try:
        answer = convert(msgspec.json.decode(sys.stdin.buffer.read(), type=Order))
    except SfappError as error:
        answer = Answer(why=str(error))
    except MemoryError:
        answer = Answer(why=f"the trace needs more than {MEMORY_BYTES >> 30} GiB to be read")
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 1 if answer.why else 0


if __name__ == "__main__":
    sys.exit(main())
