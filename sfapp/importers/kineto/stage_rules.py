"""Derive the stages of one rank's steps by rules (docs/traces.md, Kineto): each moment belongs to one stage.

Stages that the main thread's named ranges do not cover are derived: backward from autograd's nodes and the
collectives after them, forward from the wrapped model's forward or from the gap before backward.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sfapp.importers.import_result import NoteKind
from sfapp.importers.kineto.event_columns import ANNOTATION, HOST, EventColumns
from sfapp.importers.kineto.ranges import (
    DEVICE_COLLECTIVE,
    HOST_COLLECTIVE,
    NODE,
    OLD_NODE,
    WRAPPED_FORWARD,
    Range,
    outermost,
    outside_closures,
    stage_of,
    without,
)
from sfapp.importers.mapping import Mapping
from sfapp.importers.spans import IntervalUnion
from sfapp.importers.window_builder import IntArray
from sfapp.model.stages import BACKWARD, DATA, FORWARD, OPTIMIZER

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(slots=True)
class Process:
    """One training process of a file.

    Attributes:
        columns: the file's events.
        of_process_E: bool, which of them belong to this process.
        pid: its number in the file.
        main_lane: the thread that takes the steps, index into the file's lanes.
        step_N: int64, ascending; start_N, end_N: int64 ns.
        notes: notes on derived, guessed, missing or skipped information.
    """

    columns: EventColumns
    of_process_E: Bools
    pid: str
    main_lane: int
    step_N: IntArray
    start_N: IntArray
    end_N: IntArray
    notes: list[tuple[NoteKind, str]] = field(default_factory=list)

    def note(self, kind: NoteKind, what: str) -> None:
        """Add a note."""
        self.notes.append((kind, what))


def stage_ranges(process: Process, mapping: Mapping) -> list[Range]:
    """Return the rank's time by stage, ascending and disjoint; the rest is the residual."""
    explicit, wrapped = _explicit(process, mapping)
    ranges = explicit
    segments: list[Range] = []
    if not any(each.stage == BACKWARD for each in explicit):
        ranges, segments = _with_backward(process, explicit)
    if any(each.stage == FORWARD for each in explicit):
        if wrapped:
            ranges = _with_loss(process, ranges)
    elif segments:
        ranges = _with_gap(process, ranges, segments)
    _note_missing(process, ranges)
    return ranges


def _explicit(process: Process, mapping: Mapping) -> tuple[list[Range], bool]:
    """Return the main thread's outermost named ranges, and whether forward is the wrapped model's only.

    Autograd's nodes take part, so that ranges inside them (a checkpoint's second forward) do not become
    stages.
    """
    columns = process.columns
    stage_by_name = [stage_of(name, mapping) for name in columns.names]
    named = [code for code, stage in enumerate(stage_by_name) if stage]
    ranged_E = (columns.kind_E == ANNOTATION) | (columns.kind_E == HOST)
    here_E = process.of_process_E & (columns.lane_E == process.main_lane) & ranged_E
    found = [
        Range(start, end, stage_by_name[name] or "")
        for start, end, name in _rows(columns, here_E & columns.of_names(named))
    ]
    nodes = _rows(columns, here_E & nodes_E(process))
    kept = [
        each
        for each in outermost([*outside_closures(found), *(Range(start, end, "") for start, end, _ in nodes)])
        if each.stage
    ]
    names = {columns.names[int(code)] for code in np.unique(columns.name_E[here_E])}
    forwards = {name for name in names if stage_of(name, mapping) == FORWARD}
    return kept, bool(forwards) and forwards <= set(WRAPPED_FORWARD)


def _rows(columns: EventColumns, mask_E: Bools) -> list[tuple[int, int, int]]:
    return list(
        zip(
            columns.start_E[mask_E].tolist(),
            columns.end_E[mask_E].tolist(),
            columns.name_E[mask_E].tolist(),
            strict=True,
        )
    )


def nodes_E(process: Process) -> Bools:
    """Return autograd's nodes on any host thread, bool [E]."""
    columns = process.columns
    nodes = [code for code, name in enumerate(columns.names) if NODE.match(name)]
    if not nodes:
        nodes = [code for code, name in enumerate(columns.names) if OLD_NODE.match(name)]
    found_E: Bools = process.of_process_E & (columns.kind_E == HOST) & columns.of_names(nodes)
    return found_E


def collectives_E(process: Process) -> Bools:
    """Return the collectives, bool [E]: device kernels, and those executed by a host thread."""
    columns = process.columns
    device = [code for code, name in enumerate(columns.names) if DEVICE_COLLECTIVE.match(name)]
    host = [code for code, name in enumerate(columns.names) if HOST_COLLECTIVE.match(name)]
    on_device_E = columns.is_device_E & columns.of_names(device)
    return process.of_process_E & (on_device_E | (~columns.is_device_E & columns.of_names(host)))


def _with_backward(process: Process, explicit: list[Range]) -> tuple[list[Range], list[Range]]:
    """Add backward, from the first autograd node to the end of the last collective before the optimizer.

    A named range that begins between two nodes splits it into segments. The segments are returned as well,
    with the ranges inside them.
    """
    columns = process.columns
    nodes = sorted((start, end) for start, end, _ in _rows(columns, nodes_E(process)))
    if not nodes:
        return explicit, []
    starts = [each.start for each in explicit]
    segments: list[list[int]] = []
    for start, end in nodes:
        last = segments[-1] if segments else None
        if last is not None and not _broken(process, starts, last[1], start):
            last[1] = max(last[1], end)
        else:
            segments.append([start, end])
    waits = sorted((start, end) for start, end, _ in _rows(columns, collectives_E(process)))
    extended = _extend(process, segments, starts, waits)
    process.note("derived", "backward lasts from autograd's first node to its last")
    if extended:
        process.note("derived", "backward is extended to the end of the last collective before the optimizer")
    found = [Range(start, end, BACKWARD) for start, end in segments]
    return outermost([*explicit, *without(outermost(found), explicit)]), found


def _broken(process: Process, starts: Sequence[int], end: int, begin: int) -> bool:
    """Return whether a named range or a step begins between two nodes."""
    first_step = np.searchsorted(process.start_N, end)
    last_step = np.searchsorted(process.start_N, begin, "right")
    return bisect_right(starts, begin) > bisect_left(starts, end) or bool(last_step > first_step)


def _extend(
    process: Process, segments: list[list[int]], starts: Sequence[int], waits: Sequence[tuple[int, int]]
) -> bool:
    """Extend each segment to the end of the last collective that began in or after it.

    The limit is the next named range, the next segment or the end of the step.
    """
    wait_starts = [start for start, _ in waits]
    extended = False
    for place, segment in enumerate(segments):
        step = int(np.searchsorted(process.start_N, segment[0], "right")) - 1
        limits = [int(process.end_N[step])] if step >= 0 else [segment[1]]
        behind = bisect_left(starts, segment[1])
        if behind < len(starts):
            limits.append(starts[behind])
        if place + 1 < len(segments):
            limits.append(segments[place + 1][0])
        limit = min(limits)
        within = waits[bisect_left(wait_starts, segment[0]) : bisect_left(wait_starts, limit)]
        end = min(limit, max((end for _, end in within), default=segment[1]))
        if end > segment[1]:
            segment[1] = end
            extended = True
    return extended


def _with_loss(process: Process, ranges: list[Range]) -> list[Range]:
    """Extend forward to the next range of its step: the loss is computed there."""
    longer = []
    for each, following in zip(ranges, [*ranges[1:], None], strict=True):
        if each.stage == FORWARD and following is not None:
            step = int(np.searchsorted(process.start_N, each.start, "right")) - 1
            if step >= 0 and following.start <= process.end_N[step]:
                each = Range(each.start, following.start, FORWARD)
        longer.append(each)
    if longer != ranges:
        process.note(
            "derived",
            "forward is extended from the wrapped model's forward to the next stage, to include the loss",
        )
    return longer


def _with_gap(process: Process, ranges: list[Range], segments: list[Range]) -> list[Range]:
    """Take the gap before backward as forward, without other stages.

    The gap begins at the last batch, the last segment of backward or the begin of the step.
    """
    has_data = any(each.stage == DATA for each in ranges)
    process.note(
        "derived" if has_data else "guessed",
        "forward is the gap between data and backward"
        if has_data
        else "forward is the gap before backward, which may include a data wait that the trace does not show",
    )
    edges = sorted([each.end for each in ranges if each.stage in (DATA, BACKWARD)] + process.start_N.tolist())
    gaps = []
    for segment in segments:
        before = bisect_right(edges, segment.start)
        begin = edges[before - 1] if before else segment.start
        gaps.append(Range(begin, segment.start, FORWARD))
    return outermost([*ranges, *without(outermost(gaps), ranges)])


def _note_missing(process: Process, ranges: Sequence[Range]) -> None:
    for stage, why in (
        (DATA, "no data wait: neither a range that a data loader marks nor a mapped one"),
        (FORWARD, "no forward: neither a range, nor a backward that would end a gap"),
        (BACKWARD, "no backward: neither a range nor autograd's nodes"),
        (OPTIMIZER, "no optimizer: neither Optimizer.step nor a mapped range"),
    ):
        if not any(each.stage == stage for each in ranges):
            process.note("missing", why)


def durations(
    ranges: Sequence[Range], process: Process, stages: Sequence[str], within: IntervalUnion | None = None
) -> IntArray:
    """Return the time that each step spends in each stage, int64 ns [S, N].

    Args:
        within: spans outside which no time counts.
    """
    place = {stage: index for index, stage in enumerate(stages)}
    spent_SN = np.zeros((len(stages), len(process.step_N)), np.int64)
    for each in ranges:
        first = max(int(np.searchsorted(process.end_N, each.start, "right")), 0)
        for step in range(first, len(process.step_N)):
            begin, end = max(each.start, int(process.start_N[step])), min(each.end, int(process.end_N[step]))
            if int(process.start_N[step]) >= each.end:
                break
            if end > begin:
                spent_SN[place[each.stage], step] += (
                    end - begin if within is None else within.within(np.array([begin]), np.array([end]))[0]
                )
    return spent_SN
