"""Derive how long a rank is blocked in group communication within its stages (docs/traces.md, Kineto).

A call that starts a collective returns at once, so its own duration tells nothing. What counts is time in
which the thread demonstrably waits for a collective to end; where a trace does not show that, nothing counts.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from sfapp.importers.device_waits import is_device_wait, waits_for_collectives
from sfapp.importers.kineto.event_columns import ANNOTATION, HOST, RUNTIME
from sfapp.importers.kineto.ranges import WRAPPED_FORWARD, Range
from sfapp.importers.kineto.stage_rules import Bools, Process, collectives_E, nodes_E
from sfapp.importers.spans import IntervalUnion
from sfapp.model.stages import BACKWARD, FORWARD

_DATA_PARALLEL = WRAPPED_FORWARD[0]
_WAIT_TENSOR = re.compile(r"_?c10d_functional::wait_tensor\Z")


def blocked_time(process: Process, ranges: Sequence[Range]) -> IntervalUnion | None:
    """Return when the rank is blocked in group communication; None if its trace does not tell.

    Args:
        ranges: the rank's time by stage, ascending and disjoint.
    """
    columns = process.columns
    found_E = collectives_E(process)
    on_device_E, on_host_E = found_E & columns.is_device_E, found_E & ~columns.is_device_E
    backward = [each for each in ranges if each.stage == BACKWARD]
    parts = []
    if on_device_E.any() and (process.of_process_E & (columns.kind_E == RUNTIME)).any():
        names = [code for code, name in enumerate(columns.names) if is_device_wait(name)]
        calls = _on_threads(process, columns.of_names(names), backward)
        other_E = process.of_process_E & columns.is_device_E & ~on_device_E
        parts.append(waits_for_collectives(calls, _union(process, on_device_E), _union(process, other_E)))
    if on_host_E.any():
        collectives = _union(process, on_host_E)
        wait_tensor = [code for code, name in enumerate(columns.names) if _WAIT_TENSOR.match(name)]
        if wait_tensor:
            calls = _on_threads(process, columns.of_names(wait_tensor), backward)
            parts.append(IntervalUnion.common((calls, collectives)))
        if _DATA_PARALLEL in columns.names:
            parts.append(_after_last_gradients(process, ranges, collectives))
    if not parts:
        return None
    return IntervalUnion.of(
        np.concatenate([part.start_M for part in parts]), np.concatenate([part.end_M for part in parts])
    )


def _union(process: Process, mask_E: Bools) -> IntervalUnion:
    return IntervalUnion.of(process.columns.start_E[mask_E], process.columns.end_E[mask_E])


def _on_threads(process: Process, mask_E: Bools, backward: Sequence[Range]) -> IntervalUnion:
    """Return when the step's thread is in these events, or autograd's thread during backward: the step's
    thread waits for it there."""
    columns = process.columns
    main_E = columns.lane_E == process.main_lane
    mine = _union(process, process.of_process_E & mask_E & main_E)
    autograd_E = np.isin(columns.lane_E, np.unique(columns.lane_E[nodes_E(process)])) & ~main_E
    theirs = _union(process, process.of_process_E & mask_E & autograd_E)
    within = IntervalUnion.of(
        np.array([each.start for each in backward], np.int64),
        np.array([each.end for each in backward], np.int64),
    )
    inside = IntervalUnion.common((theirs, within))
    return IntervalUnion.of(np.append(mine.start_M, inside.start_M), np.append(mine.end_M, inside.end_M))


def _after_last_gradients(
    process: Process, ranges: Sequence[Range], collectives: IntervalUnion
) -> IntervalUnion:
    """Return when DistributedDataParallel waits for collectives of host threads: from the last node of a
    backward to its end, while a collective runs and its thread records nothing."""
    columns = process.columns
    nodes = np.flatnonzero(nodes_E(process))
    order = nodes[np.argsort(columns.start_E[nodes], kind="stable")]
    starts = columns.start_E[order].tolist()
    ends = np.maximum.accumulate(columns.end_E[order]).tolist() if len(order) else []
    tails = []
    for place, each in enumerate(ranges):
        last = bisect_left(starts, each.end) - 1
        if each.stage != BACKWARD or last < 0 or starts[last] < each.start or ends[last] >= each.end:
            continue
        step = bisect_right(process.start_N.tolist(), each.start) - 1
        following = next((later for later in ranges[place + 1 :] if later.stage in (FORWARD, BACKWARD)), None)
        # A backward that goes on after another range in it waits at its very end only.
        goes_on = following is not None and following.stage == BACKWARD
        if following is None or not goes_on or step < 0 or following.start >= process.end_N[step]:
            tails.append((ends[last], each.end))
    start, end = np.array(tails, np.int64).reshape(-1, 2).T
    tail = IntervalUnion.of(start, end)
    kinds_E = (columns.kind_E == HOST) | (columns.kind_E == ANNOTATION) | (columns.kind_E == RUNTIME)
    here_E = process.of_process_E & kinds_E & ~collectives_E(process)
    here_E &= np.isin(columns.lane_E, np.append(np.unique(columns.lane_E[nodes]), process.main_lane))
    busy_E = here_E & tail.covers(columns.start_E)
    return IntervalUnion.common((tail, collectives), (_union(process, busy_E),))
