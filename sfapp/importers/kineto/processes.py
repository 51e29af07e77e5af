"""Find the training processes of a file and their steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from sfapp.errors import TraceError
from sfapp.importers.kineto.event_columns import ANNOTATION, HOST, NONE, RUNTIME, EventColumns
from sfapp.importers.kineto.ranges import STEP
from sfapp.importers.kineto.stage_rules import Bools, Process
from sfapp.importers.mapping import Mapping, fits
from sfapp.importers.window_builder import IntArray

MAX_PROCESSES = 1_024
"""Number of processes of one file that may take steps. The profiler writes one file per process; each process
of a file is compared with the others, which for tens of thousands takes hours."""

_CUT_STEP = 0.05
"""Share of the median step below which a first or last step counts as truncated by the profiler."""

_NUMBER = re.compile(r"(\d{1,18})\D*\Z")


def processes_of(columns: EventColumns, mapping: Mapping, *, cut: bool = True) -> list[Process]:
    """Return every process of the file that takes steps, by pid.

    Args:
        cut: whether to leave out a first or last step that the profiler truncated.

    Raises:
        TraceError: no process takes steps, or too many do.
    """
    marks_E, number_by_name = _step_marks(columns, mapping)
    lanes = sorted(set(columns.lane_E[marks_E].tolist()), key=lambda lane: columns.lanes[lane])
    pids = list(dict.fromkeys(columns.lanes[lane][0] for lane in lanes))
    if not pids:
        return [_by_optimizer(columns)]
    if len(pids) > MAX_PROCESSES:
        raise TraceError(
            f"contains steps of {len(pids):,} processes, but at most {MAX_PROCESSES:,} of a file are read: "
            "import one file per process",
            path=str(columns.path),
        )
    found = []
    for pid, of_process_E in zip(pids, _shares(columns, pids), strict=True):
        own = [lane for lane in lanes if columns.lanes[lane][0] == pid]
        main = max(own, key=lambda lane: int(np.count_nonzero(marks_E & (columns.lane_E == lane))))
        mask_E = marks_E & (columns.lane_E == main)
        steps = _numbered(columns, mask_E, number_by_name)
        process = _process(columns, of_process_E, main, steps, cut)
        if len(steps) < np.count_nonzero(mask_E):
            process.note("skipped", "a step number occurs more than once: its longest range counts")
        found.append(process)
    return found


def _step_marks(columns: EventColumns, mapping: Mapping) -> tuple[Bools, dict[int, int | None]]:
    """Return which events are steps, and the step number in each name (None if it has none)."""
    numbers: dict[int, int | None] = {}
    for code, name in enumerate(columns.names):
        if mapping.step is not None:
            if mapping.is_step(name):
                number = _NUMBER.search(name)
                numbers[code] = int(number[1]) if number else None
        elif match := STEP.match(name):
            numbers[code] = int(match[1])
    if mapping.step is not None and len(numbers) == 1:
        numbers = dict.fromkeys(
            numbers, None
        )  # one name for all steps: a number in it is not the step number
    ranged_E = (columns.kind_E == ANNOTATION) | (columns.kind_E == HOST)
    return ranged_E & columns.of_names(numbers), numbers


def _numbered(
    columns: EventColumns, mask_E: Bools, numbers: dict[int, int | None]
) -> list[tuple[int, int, int]]:
    """Return (number, start, end) of each step in order of time; numbered by order if names have no
    numbers."""
    rows = sorted(
        zip(
            columns.start_E[mask_E].tolist(),
            columns.end_E[mask_E].tolist(),
            [numbers[code] for code in columns.name_E[mask_E].tolist()],
            strict=True,
        ),
        key=lambda row: row[:2],
    )
    if any(number is None for _, _, number in rows):
        return [(order, start, end) for order, (start, end, _) in enumerate(rows)]
    longest: dict[int, tuple[int, int]] = {}
    for start, end, number in rows:
        if number is None:
            continue
        kept = longest.get(number)
        if kept is None or end - start > kept[1] - kept[0]:
            longest[number] = (start, end)
    return sorted(((number, *span) for number, span in longest.items()), key=lambda row: row[1])


def _by_optimizer(columns: EventColumns) -> Process:
    """Return the process of a file without step marks: each optimizer step ends a step.

    Raises:
        TraceError: there is no optimizer step.
    """
    named = [code for code, name in enumerate(columns.names) if fits(name, "Optimizer.step#*")]
    marks_E = ((columns.kind_E == ANNOTATION) | (columns.kind_E == HOST)) & columns.of_names(named)
    if not marks_E.any():
        raise TraceError(
            "has no steps: call profiler.step() in the training loop, or name the range of a step in a "
            "mapping file",
            path=str(columns.path),
        )
    lanes, counts = np.unique(columns.lane_E[marks_E], return_counts=True)
    main = int(lanes[counts.argmax()])
    of_main_E = columns.lane_E == main
    ends = np.unique(columns.end_E[marks_E & of_main_E])
    starts = np.concatenate([[int(columns.start_E[of_main_E].min())], ends[:-1]])
    steps = list(zip(range(len(ends)), starts.tolist(), ends.tolist(), strict=True))
    process = _process(columns, np.ones(len(columns.start_E), np.bool_), main, steps)
    process.note("guessed", "no ProfilerStep: each Optimizer.step is taken as the end of a step")
    return process


def _process(
    columns: EventColumns,
    of_process_E: Bools,
    main: int,
    steps: Sequence[tuple[int, int, int]],
    cut: bool = True,
) -> Process:
    """Return a process with its steps, ascending by number, without truncated steps.

    Raises:
        TraceError: step numbers run backwards, or steps overlap.
    """
    for (number, _, end), (following, start, _) in pairwise(steps):
        if following <= number or start < end - 1000:  # a float's rounding
            raise TraceError(
                f"steps {number} and {following} overlap or run backwards", path=str(columns.path)
            )
    kept = list(steps)
    lengths = [end - start for _, start, end in kept]
    left_out = []
    for place in (-1, 0) if cut else ():
        others = lengths[:-1] if place else lengths[1:]
        if others and lengths[place] < _CUT_STEP * float(np.median(others)):
            left_out.append(kept.pop(place))
            lengths.pop(place)
    table = np.array(kept, np.int64).reshape(-1, 3)
    process = Process(
        columns, of_process_E, columns.lanes[main][0], main, table[:, 0], table[:, 1], table[:, 2]
    )
    for number, start, end in left_out:
        process.note("skipped", f"step {number}, truncated by the profiler to {(end - start) / 1e6:.3f} ms")
    return process


def _shares(columns: EventColumns, pids: Sequence[str]) -> Iterator[Bools]:
    """Yield, for each process, which events belong to it.

    A single process owns all events, because a step mark may carry another process number than the operators.
    With several processes, threads belong to their process number, and a device lane to the process that
    launches on it.
    """
    if len(pids) == 1:
        yield np.ones(len(columns.start_E), np.bool_)
        return
    devices = sorted({columns.lanes[lane][0] for lane in set(columns.lane_E[columns.is_device_E].tolist())})
    answers = {
        each: {pid: _answered(columns, each, pid) for pid in pids} for each in devices if each not in pids
    }
    for pid in pids:
        own = {pid, *(device for device, count in answers.items() if _most(count) == pid)}
        table = np.array([lane[0] in own for lane in columns.lanes], np.bool_)
        yield table[columns.lane_E]


def _most(count: dict[str, int]) -> str | None:
    pid = max(count, key=count.__getitem__)
    return pid if count[pid] else None


def _answered(columns: EventColumns, device: str, pid: str) -> int:
    """Return how many of a device's events match an earlier launch of a process."""
    on_device = np.array([lane[0] == device for lane in columns.lanes], np.bool_)[columns.lane_E]
    of_pid = np.array([lane[0] == pid for lane in columns.lanes], np.bool_)[columns.lane_E]
    work_E = on_device & columns.is_device_E & (columns.correlation_E != NONE)
    launch_E = of_pid & (columns.kind_E == RUNTIME) & (columns.correlation_E != NONE)
    begun = launch_times(columns, launch_E, columns.correlation_E[work_E])
    return int(np.count_nonzero((begun != NONE) & (begun <= columns.end_E[work_E])))


def launch_times(columns: EventColumns, launch_E: Bools, correlation: IntArray) -> IntArray:
    """Return the begin of each correlation's launch, ns; -1 for none."""
    launched = columns.correlation_E[launch_E]
    order = np.argsort(launched, kind="stable")
    launched, begun = launched[order], columns.start_E[launch_E][order]
    if not len(launched):
        return np.full(len(correlation), NONE, np.int64)
    place = np.minimum(np.searchsorted(launched, correlation), len(launched) - 1)
    return np.where(launched[place] == correlation, begun[place], NONE)
