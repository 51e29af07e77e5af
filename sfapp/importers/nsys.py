"""Import Nsight Systems SQLite exports: NVTX ranges as steps and stages, calls and kernels as operator
events.

Steps are ranges with a number (``ProfilerStep#7``, ``Warm-up Step 3``, ``iteration 12``), or ranges that a
mapping names. Within a step, the outermost ranges of its thread are the stages, by the mapping or by their
names. Without steps, the whole capture is one step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sfapp.errors import TraceError
from sfapp.importers.device_waits import is_device_wait, waits_for_collectives
from sfapp.importers.duration_table import DurationMatrix, DurationTable, cut, duration_matrix
from sfapp.importers.import_result import (
    ImportedWindow,
    ImportNote,
    ImportOptions,
    ImportResult,
    guarded,
)
from sfapp.importers.kineto.ranges import Range, outermost, stage_of
from sfapp.importers.mapping import Mapping
from sfapp.importers.nsys_events import NsysExport, ProcessEvents, read_export
from sfapp.importers.run_names import run_names
from sfapp.importers.spans import IntervalUnion
from sfapp.importers.window_builder import WindowInfo, build_window
from sfapp.model import Lane, Operators, RankIdentity
from sfapp.model.operators import COLLECTIVE, NONE, RUNTIME, STAGE
from sfapp.model.stages import BACKWARD, DATA, FORWARD, OPTIMIZER, RESIDUAL
from sfapp.model.window import NOT_MEASURED

Ints = npt.NDArray[np.int64]

_STEP = re.compile(
    r"(?:.*\W)?(?:profiler)?(?:train(?:ing)?[ _]?)?(?:step|iter(?:ation)?|batch)\W{0,2}_?(\d{1,15})\W?", re.I
)
_NUMBER = re.compile(r"(\d{1,15})\D*\Z")
_RANK = re.compile(r"(?P<job>.*?)[._-]?rank[._-]?(?P<rank>\d{1,7})(?!\d)", re.IGNORECASE | re.DOTALL)

# Common names of hand-marked parts of a step; they must match whole names, in any case.
_PLAIN = (
    (re.compile(r"(?:model[ ._])?(?:forward|fwd)(?:[ _]pass)?", re.I), FORWARD),
    (re.compile(r"(?:loss[ ._])?(?:backward|bwd)(?:[ _]pass)?", re.I), BACKWARD),
    (re.compile(r"optim(?:izer)?(?:[ ._]step)?|zero[ _]grad", re.I), OPTIMIZER),
    (re.compile(r"data(?:[ _]?load(?:er|ing)?)?|load[ _](?:data|batch)|(?:get|next)[ _]batch", re.I), DATA),
)


@dataclass(slots=True, eq=False)
class _RankEvents:
    """One process as a rank: the times of its steps on their thread, and the stages in them."""

    rank: int
    export: NsysExport
    events: ProcessEvents
    lane: int = 0
    step_N: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    start_N: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    end_N: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    marked: list[tuple[int, Range]] = field(default_factory=list)
    notes: list[ImportNote] = field(default_factory=list)


def read(paths: Sequence[Path], options: ImportOptions) -> ImportResult:
    """Read exports as windows: files whose names differ only in the rank are one run, other files one run
    each."""
    runs: dict[tuple[Path, str], list[tuple[int | None, NsysExport]]] = {}
    refused: list[TraceError] = []
    for path in options.each(paths):
        stem = path.name.removesuffix(".gz").removesuffix(".sqlite")
        match = _RANK.match(stem)
        job, rank = (match["job"], int(match["rank"])) if match else (stem, None)
        with guarded(refused, path):
            export = read_export(path, options.scratch)
            runs.setdefault((path.parent, job), []).append((rank, export))
    windows: list[ImportedWindow] = []
    sources: dict[str, Path] = {}
    names = run_names([folder.resolve() / job for folder, job in runs])
    for run_id, exports in zip(names, runs.values(), strict=True):
        rank, path = exports[0][0], exports[0][1].path
        sources[run_id] = path if rank is None else path.parent
        with guarded(refused, path):
            windows += _windows(run_id, exports, options.mapping)
    return ImportResult(tuple(windows), tuple(refused), sources=sources)


def _windows(
    run_id: str, exports: Sequence[tuple[int | None, NsysExport]], mapping: Mapping
) -> list[ImportedWindow]:
    ranks = _ranks(exports)
    notes = [note for _, export in exports for note in export.notes]
    if len(ranks) > 1 and len(exports) > 1 and any(export.began_ns is None for _, export in exports):
        notes.append(
            ImportNote("missing", "the begin of a session: times of different files cannot be compared")
        )
    for rank in ranks:
        _find_steps(rank, mapping)
    stepped = [rank for rank in ranks if len(rank.step_N)]
    if not stepped:
        notes.append(ImportNote("guessed", "no range is a step: the whole capture is taken as one step"))
        _one_step(ranks)
    elif len(stepped) < len(ranks):
        idle = ", ".join(str(rank.rank) for rank in ranks if not len(rank.step_N))
        notes.append(ImportNote("skipped", f"processes without a step are left out: ranks {idle}"))
        ranks = stepped
    for rank in ranks:
        _find_stages(rank, mapping)
        notes += rank.notes
    stages = mapping.ordered(found.stage for rank in ranks for _, found in rank.marked)
    absent = [stage for stage in (DATA, FORWARD, BACKWARD, OPTIMIZER) if stage not in stages]
    if absent:
        what = f"no range in a step is {', '.join(absent)}: name such ranges under [ranges] of a mapping"
        notes.append(ImportNote("missing", what))
    matrix, wall_NR = _matrix(ranks, stages, run_id)
    return _build(run_id, ranks, stages, matrix, wall_NR, [*notes, *matrix.notes])


def _ranks(exports: Sequence[tuple[int | None, NsysExport]]) -> list[_RankEvents]:
    """Return every process with ranges or device events as a rank.

    The rank comes from the file's name, or else from the order of devices and process numbers.

    Raises:
        TraceError: no process has such events.
    """
    found: list[_RankEvents] = []
    for rank, export in exports:
        busy = sorted(
            (min(events.devices, default=1 << 20), process, events)
            for process, events in export.processes.items()
            if len(events.start)
        )
        if not busy:
            raise TraceError("contains no process with NVTX ranges, CUDA calls, kernels or system calls")
        named = rank is not None and len(busy) == 1
        for place, (device, _, events) in enumerate(busy):
            number = rank if named and rank is not None else len(found)
            each = _RankEvents(number, export, events)
            if not named and (len(busy) > 1 or len(exports) > 1):
                by = "device" if device < 1 << 20 else "process number"
                what = f"process {place} of the file, by {by}, is taken as rank {number}"
                each.notes.append(ImportNote("guessed", what, export.path.name))
            found.append(each)
    if len({each.rank for each in found}) != len(found):
        raise TraceError("several files belong to the same rank: import the files of one job at a time")
    return sorted(found, key=lambda each: each.rank)


def _find_steps(rank: _RankEvents, mapping: Mapping) -> None:
    """Find the ranges that are steps, on the thread with the most of them."""
    events = rank.events
    number_of = {code: _step_number(name, mapping) for name, code in events.names.items()}
    steps = [
        (events.lane[place], events.start[place], events.end[place], number_of[code])
        for place, code in enumerate(events.name)
        if number_of[code] is not None and events.category[place] != RUNTIME
    ]
    if not steps:
        return
    rank.lane = Counter(lane for lane, *_ in steps).most_common(1)[0][0]
    mine = sorted((start, end, number or 0) for lane, start, end, number in steps if lane == rank.lane)
    kept: list[tuple[int, int, int]] = []
    for each in mine:
        if not kept or each[0] >= kept[-1][1]:
            kept.append(each)
    if len(kept) < len(mine):
        what = f"{len(mine) - len(kept):,} steps that begin inside another step"
        rank.notes.append(ImportNote("skipped", what, rank.export.path.name))
    numbers = np.asarray([number for _, _, number in kept], np.int64)
    if (np.diff(numbers) <= 0).any():
        numbers = np.arange(len(kept))
        rank.notes.append(
            ImportNote("derived", "step numbers repeat: steps are counted from 0", rank.export.path.name)
        )
    rank.step_N = numbers
    rank.start_N = np.asarray([start for start, _, _ in kept], np.int64)
    rank.end_N = np.asarray([end for _, end, _ in kept], np.int64)


def _step_number(name: str, mapping: Mapping) -> int | None:
    """Return the step number in a range's name, None if it is not a step."""
    if mapping.step is not None:
        match = _NUMBER.search(name) if mapping.is_step(name) else None
        return int(match[1]) if match else (0 if mapping.is_step(name) else None)
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def _one_step(ranks: Sequence[_RankEvents]) -> None:
    """Take the whole capture as one step of every rank."""
    start = min(min(rank.events.start) for rank in ranks)
    end = max(max(rank.events.end) for rank in ranks)
    for rank in ranks:
        counts = rank.events.ranged_lanes
        rank.lane = max(counts, key=lambda lane: counts[lane]) if counts else 0
        rank.step_N, rank.start_N, rank.end_N = (np.asarray([at], np.int64) for at in (0, start, end))


def _stage(name: str, mapping: Mapping) -> str | None:
    mapped = stage_of(name, mapping)
    if mapped is not None:
        return mapped
    return next((stage for pattern, stage in _PLAIN if pattern.fullmatch(name)), None)


def _find_stages(rank: _RankEvents, mapping: Mapping) -> None:
    """Find the outermost stage ranges on the step's thread, cut at the ends of steps."""
    events = rank.events
    stage_by_code = {code: _stage(name, mapping) for name, code in events.names.items()}
    ranges = outermost(
        Range(events.start[place], events.end[place], stage_by_code[code] or "")
        for place, code in enumerate(events.name)
        if stage_by_code[code] and events.lane[place] == rank.lane
    )
    outside = 0
    for each in ranges:
        step = int(np.searchsorted(rank.start_N, each.start, "right")) - 1
        if step < 0 or each.start >= rank.end_N[step]:
            outside += 1
            continue
        rank.marked.append((step, Range(each.start, min(each.end, int(rank.end_N[step])), each.stage)))
    if outside:
        what = f"{outside:,} stage ranges outside any step"
        rank.notes.append(ImportNote("skipped", what, rank.export.path.name))


def _matrix(ranks: Sequence[_RankEvents], stages: Sequence[str], run_id: str) -> tuple[DurationMatrix, Ints]:
    """Return the planes of the stages and each rank's step times. Times never mix clocks of two ranks."""
    place = {stage: index for index, stage in enumerate(stages)}
    parts = []
    for rank in ranks:
        steps = len(rank.step_N)
        whole = np.full(steps, rank.rank), np.full(steps, len(stages)), rank.end_N - rank.start_N
        parts.append(DurationTable(rank.step_N, *whole))
        if rank.marked:
            at = np.asarray([step for step, _ in rank.marked])
            kind = np.asarray([place[each.stage] for _, each in rank.marked], np.int64)
            spent = np.asarray([each.end - each.start for _, each in rank.marked], np.int64)
            parts.append(DurationTable(rank.step_N[at], np.full(len(at), rank.rank), kind, spent))
    matrix = duration_matrix(DurationTable.concat(parts), len(stages) + 1, run_id)
    return matrix, matrix.duration_KNR[-1]


def _waits(ranks: Sequence[_RankEvents], stages: Sequence[str], step_N: Ints) -> dict[str, Ints]:
    """Return how long each rank was blocked in group communication, int64 ns [N, R], by the stages in which
    any was; ``NOT_MEASURED`` on ranks whose exports do not show it."""
    wait_SNR = np.full((len(stages), len(step_N), len(ranks)), NOT_MEASURED, np.int64)
    for index, rank in enumerate(ranks):
        blocked = _blocked(rank)
        if blocked is None:
            continue
        wait_SNR[:, :, index] = 0
        place = {int(number): at for at, number in enumerate(step_N.tolist())}
        for step, each in rank.marked:
            at = place.get(int(rank.step_N[step]))
            if at is not None:
                waited = blocked.within(np.array([each.start]), np.array([each.end]))[0]
                wait_SNR[stages.index(each.stage), at, index] += waited
    return {stage: wait_NR for stage, wait_NR in zip(stages, wait_SNR, strict=True) if (wait_NR > 0).any()}


def _blocked(rank: _RankEvents) -> IntervalUnion | None:
    """Return when the step's thread waits for collectives on the device; None if the export has no collective
    or no calls of the runtime."""
    events = rank.events
    category_E, lane_E = np.asarray(events.category, np.int64), np.asarray(events.lane, np.int64)
    on_device_E = np.asarray([on_device for _, on_device in events.lanes], np.bool_)[lane_E]
    collectives_E = on_device_E & (category_E == COLLECTIVE)
    calls_E = category_E == RUNTIME
    if not collectives_E.any() or not calls_E.any():
        return None
    waits = [code for name, code in events.names.items() if is_device_wait(name)]
    waits_E = calls_E & (lane_E == rank.lane) & np.isin(np.asarray(events.name, np.int64), waits)
    start_E, end_E = np.asarray(events.start, np.int64), np.asarray(events.end, np.int64)
    calls, collectives, others = (
        IntervalUnion.of(start_E[mask_E], end_E[mask_E])
        for mask_E in (waits_E, collectives_E, on_device_E & ~collectives_E)
    )
    return waits_for_collectives(calls, collectives, others)


def _build(
    run_id: str,
    ranks: Sequence[_RankEvents],
    stages: Sequence[str],
    matrix: DurationMatrix,
    wall_NR: Ints,
    notes: Sequence[ImportNote],
) -> list[ImportedWindow]:
    events = Operators.concat([_operators(rank) for rank in ranks])
    hosts = sorted({rank.export.host for rank in ranks})
    identities = [
        RankIdentity(rank.rank, place, hosts.index(rank.export.host), rank.export.host)
        for place, rank in enumerate(ranks)
    ]
    duration_SNR = matrix.duration_KNR[:-1]
    waits = _waits(ranks, stages, matrix.step_N)
    if RESIDUAL in stages:
        raise TraceError(f"no range can be mapped to {RESIDUAL}: it is the time outside all other stages")
    windows = []
    for number, part in enumerate(cut(len(matrix.step_N))):
        step_N = matrix.step_N[part]
        first, last = ranks[0].step_N.searchsorted([step_N[0], step_N[-1]])
        about = WindowInfo(
            run_id=run_id,
            window=number,
            world_size=max(rank.rank for rank in ranks) + 1,
            started_ns=_since_1970(ranks[0], ranks[0].start_N[first]),
            ended_ns=_since_1970(ranks[0], ranks[0].end_N[last]),
            backend="nccl" if any("nccl" in name.lower() for name in ranks[0].events.names) else "",
        )
        blocked = {stage: wait_NR[part] for stage, wait_NR in waits.items()}
        window = build_window(
            about, stages, duration_SNR[:, part], wall_NR[part], step_N, identities, wait_NR=blocked
        )
        in_none_E = (events.step_E == NONE) & (number == 0)
        mine = events.select(np.isin(events.step_E, step_N) | in_none_E)
        windows.append(ImportedWindow(window, mine if len(mine) else None, tuple(notes)))
    return windows


def _since_1970(rank: _RankEvents, at: int) -> int | None:
    return None if rank.export.began_ns is None else rank.export.began_ns + int(at)


def _operators(rank: _RankEvents) -> Operators:
    """Return the rank's events; a device event belongs to the step of its launch."""
    events = rank.events
    start_E, end_E = np.asarray(events.start, np.int64), np.asarray(events.end, np.int64)
    category_E = np.asarray(events.category, np.int64)
    correlation_E = np.asarray(events.correlation, np.int64)
    lanes = [Lane(rank.rank, name, is_device) for name, is_device in events.lanes]
    lane_E = np.asarray(events.lane, np.int64)
    on_device_E = np.asarray([lane.is_device for lane in lanes], np.bool_)[lane_E]
    step_E = _step_at(rank, start_E)
    calls = np.flatnonzero((category_E == RUNTIME) & (correlation_E != NONE))
    launched = np.flatnonzero(on_device_E & (correlation_E != NONE))
    if len(calls) and len(launched):
        calls = calls[np.argsort(correlation_E[calls], kind="stable")]
        place = np.minimum(np.searchsorted(correlation_E[calls], correlation_E[launched]), len(calls) - 1)
        known = correlation_E[calls][place] == correlation_E[launched]
        step_E[launched[known]] = step_E[calls[place[known]]]
    marks = {code for name, code in events.names.items() if _STEP.fullmatch(name)}
    category_E[np.isin(np.asarray(events.name), list(marks))] = STAGE
    return Operators.of(
        names=tuple(events.names),
        name_E=np.asarray(events.name),
        category_E=category_E,
        lanes=lanes,
        lane_E=lane_E,
        step_E=step_E,
        start_ns_E=start_E + (rank.export.began_ns or 0),
        end_ns_E=end_E + (rank.export.began_ns or 0),
        correlation_E=correlation_E,
        sequence_number_E=np.asarray(events.sequence),
    )


def _step_at(rank: _RankEvents, at_E: Ints) -> Ints:
    """Return the step that contains each of these times, -1 for none."""
    place = np.searchsorted(rank.start_N, at_E, "right") - 1
    inside = (place >= 0) & (at_E <= rank.end_N[np.maximum(place, 0)])
    return np.where(inside, rank.step_N[np.maximum(place, 0)], NONE)
