"""Import PyTorch Flight Recorder dumps, one file per rank: pickle (plain data only) or JSON.

A dump knows collectives, not steps. The window is built from the group with the most collectives: each rank's
own time until the next call, and its wait until the last rank calls. Calls are compared across ranks by wall
clock, so lags below the clock offset of the hosts have no meaning.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sfapp.errors import TraceError
from sfapp.importers.collective_arrivals import WAIT, WORK, CollectiveArrivals, CollectiveEvents, period
from sfapp.importers.duration_table import cut
from sfapp.importers.flight_recorder_dump import CollectiveEntry, FlightRecorderDump, rank_of, read_dump
from sfapp.importers.import_result import (
    ImportedWindow,
    ImportNote,
    ImportOptions,
    ImportResult,
    guarded,
)
from sfapp.importers.run_names import named_folders
from sfapp.importers.window_builder import WindowInfo, build_window
from sfapp.model import Lane, Operators, RankIdentity
from sfapp.model.manifest import MAX_WORLD_SIZE
from sfapp.model.operators import NONE

Ints = npt.NDArray[np.int64]


def read(paths: Sequence[Path], options: ImportOptions) -> ImportResult:
    """Read dumps as windows: the dumps of one folder are one run."""
    runs: dict[Path, dict[int, FlightRecorderDump]] = {}
    refused: list[TraceError] = []
    for path in options.each(paths):
        with guarded(refused, path):
            rank, dump = rank_of(path), read_dump(path, FlightRecorderDump)
            if rank in runs.get(path.parent, {}):
                raise TraceError(
                    f"the folder contains another dump of rank {rank}: put the dumps of each job into a "
                    "folder of their own"
                )
            runs.setdefault(path.parent, {})[rank] = dump
    windows: list[ImportedWindow] = []
    sources = named_folders(list(runs))
    for run_id, folder in sources.items():
        with guarded(refused, folder):
            windows += _windows(run_id, runs[folder])
    return ImportResult(tuple(windows), tuple(refused), sources=sources)


def _windows(run_id: str, dumps: dict[int, FlightRecorderDump]) -> list[ImportedWindow]:
    groups: dict[str, dict[int, dict[int, CollectiveEntry]]] = {}
    for rank, dump in dumps.items():
        for entry in dump.entries:
            if not entry.is_p2p:
                of_group = groups.setdefault(entry.process_group[0], {})
                of_group.setdefault(rank, {})[entry.collective_seq_id] = entry
    if not groups:
        raise TraceError("no dump contains a collective: was TORCH_FR_BUFFER_SIZE above 0?")
    world = _world_size(dumps)
    notes = _stuck(groups)
    main = max(groups, key=lambda name: (len(groups[name]), sum(map(len, groups[name].values()))))
    arrivals, first, length, more = _arrivals(groups[main])
    notes += more
    if len(groups) > 1:
        others = ", ".join(sorted(name for name in groups if name != main))
        notes.append(ImportNote("skipped", f"the window uses group {main!r} only; other groups: {others}"))
    notes.append(
        ImportNote(
            "derived",
            "a wait lasts until the last rank called the collective, by the hosts' wall clocks; a dump does "
            "not say how long the collective took after that",
        )
    )
    work_KR, wait_KR = arrivals.split()
    steps = (len(arrivals.sequence_K) - first) // length
    shape = (steps, length, len(arrivals.rank_R))
    planes_SNR = np.stack([plane[first:].reshape(shape).sum(axis=1) for plane in (work_KR, wait_KR)])
    events = _operators(groups, arrivals.sequence_K[first], length, main)
    at_KR = arrivals.at_KR[first:]
    identities = [RankIdentity(rank, 0, 0, "", None) for rank in arrivals.rank_R.tolist()]
    windows = []
    for number, part in enumerate(cut(steps)):
        step_N = np.arange(part.start, part.stop)
        about = WindowInfo(
            run_id=run_id,
            window=number,
            world_size=world,
            started_ns=int(at_KR[part.start * length].min()),
            ended_ns=int(at_KR[part.stop * length - 1].max()),
            backend=_backend(groups[main]),
        )
        planes = planes_SNR[:, part]
        window = build_window(about, (WORK, WAIT), planes, planes.sum(axis=0), step_N, identities)
        mine = events.select(np.isin(events.step_E, step_N) | ((events.step_E == NONE) & (number == 0)))
        windows.append(ImportedWindow(window, mine if len(mine) else None, tuple(notes)))
    return windows


def _arrivals(
    ranks: dict[int, dict[int, CollectiveEntry]],
) -> tuple[CollectiveArrivals, int, int, list[ImportNote]]:
    """Return the collectives that all ranks called, the begin of their cycle, its length, and notes."""
    common = sorted(set.intersection(*(set(entries) for entries in ranks.values())))
    if not common:
        raise TraceError("no collective is in the dumps of all ranks: were the dumps taken at the same time?")
    order = sorted(ranks)
    kinds = tuple(_kind(ranks[order[0]][sequence]) for sequence in common)
    at_KR = np.asarray(
        [[ranks[rank][sequence].time_created_ns for rank in order] for sequence in common], np.int64
    )
    first, length = period(kinds)
    notes = []
    if length > 1:
        begin = ", ".join(kinds[first : first + min(length, 4)])
        what = f"a cycle of {length} collectives ({begin}…) is taken as a step"
        notes.append(ImportNote("guessed", what))
        if first:
            notes.append(ImportNote("skipped", f"{first} collectives before the first whole step"))
    else:
        notes.append(
            ImportNote("guessed", "no cycle of collectives repeats: each collective is taken as a step")
        )
    arrivals = CollectiveArrivals(np.asarray(order, np.int64), np.asarray(common, np.int64), at_KR, kinds)
    return arrivals, first, length, notes


def _kind(entry: CollectiveEntry) -> str:
    sizes = entry.input_sizes[0] if entry.input_sizes else []
    return f"{entry.profiling_name} {'×'.join(map(str, sizes))}".strip()


def _stuck(groups: dict[str, dict[int, dict[int, CollectiveEntry]]]) -> list[ImportNote]:
    """Return notes on collectives that some ranks called and others had not called at the end of their
    dumps."""
    notes = []
    for name, ranks in groups.items():
        last = {rank: max(entries) for rank, entries in ranks.items()}
        newest = max(last.values())
        behind = sorted(rank for rank, sequence in last.items() if sequence < newest)
        if behind:
            rank = min(last, key=lambda each: last[each])
            listed = ", ".join(map(str, behind[:20])) + ("…" if len(behind) > 20 else "")
            leader = next(each for each, sequence in last.items() if sequence == newest)
            following = ranks[leader].get(last[rank] + 1)
            called = f" ({_kind(following)})" if following else ""
            what = (
                f"ranks {listed} did not call the last collectives of group {name!r}: rank {rank} stopped "
                f"after {last[rank]:,}, others called {last[rank] + 1:,}{called}"
            )
            notes.append(ImportNote("missing", what))
    return notes


def _world_size(dumps: dict[int, FlightRecorderDump]) -> int:
    """Return the number of expected ranks: all ranks that any group of any dump lists."""
    listed = set(dumps)
    for dump in dumps.values():
        for group in dump.pg_config.values():
            try:
                ranks = json.loads(group.ranks or "[]")
            except (ValueError, RecursionError):
                continue
            if isinstance(ranks, list):
                listed.update(rank for rank in ranks if isinstance(rank, int) and 0 <= rank < MAX_WORLD_SIZE)
    return max(listed) + 1


def _backend(ranks: dict[int, dict[int, CollectiveEntry]]) -> str:
    entry = next(iter(next(iter(ranks.values())).values()))
    return entry.profiling_name.partition(":")[0][:32] if ":" in entry.profiling_name else ""


def _operators(
    groups: dict[str, dict[int, dict[int, CollectiveEntry]]], first: int, length: int, main: str
) -> Operators:
    """Return every collective as an event, from its call to its end or else to the last rank's call."""
    calls = CollectiveEvents()
    for name, ranks in groups.items():
        last: dict[int, int] = {}
        for entries in ranks.values():
            for sequence, entry in entries.items():
                last[sequence] = max(last.get(sequence, 0), entry.time_created_ns)
        for rank, entries in ranks.items():
            for sequence, entry in entries.items():
                lane = Lane(rank, f"group {name} thread {entry.thread_id}"[:64], False)
                at = sequence - first
                step = at // length if name == main and at >= 0 else NONE
                end_ns = max(entry.time_discovered_completed_ns or last[sequence], entry.time_created_ns)
                calls.add(entry.profiling_name, lane, name, sequence, step, entry.time_created_ns, end_ns)
    return calls.operators()
