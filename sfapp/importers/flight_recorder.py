"""PyTorch Flight Recorder dumps, one file a rank: pickle (of plain data alone) or JSON.

A dump knows collectives, not steps. The window is made of the group with most of them: a rank's own time
until it calls the next, and its wait until the last rank calls. Calls are compared over ranks by wall clock:
lags below the distance of the hosts' clocks mean nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from sfapp.errors import TraceError
from sfapp.importers.collective_arrivals import WAIT, WORK, Arrivals, Calls, period
from sfapp.importers.column_reader import expand
from sfapp.importers.duration_table import cut
from sfapp.importers.import_result import Imported, ImportedWindow, ImportNote, Options
from sfapp.importers.safe_pickle import plain_data
from sfapp.importers.table import run_names
from sfapp.importers.window_builder import About, build_window
from sfapp.model import Lane, Operators, RankIdentity
from sfapp.model.operators import NONE
from sfapp.packets.packet_layout import MAX_RANK_VALUE, MAX_WORLD_SIZE
from sfapp.terminal import first_line

Ints = npt.NDArray[np.int64]

MAX_BYTES = 2**28
"""Largest dump: torch keeps 2,000 collectives of some hundred bytes by default."""

_RANK = re.compile(r"(\d{1,9})(?:\.[A-Za-z]+)*\Z")
_LATEST = 2**62


class Entry(msgspec.Struct, frozen=True):
    """One collective of one rank; times in ns since 1970, on the rank's host."""

    profiling_name: str
    collective_seq_id: int
    time_created_ns: int
    process_group: tuple[str, str]
    is_p2p: bool = False
    time_discovered_started_ns: int | None = None
    time_discovered_completed_ns: int | None = None
    input_sizes: list[list[int]] = []
    thread_name: str = ""
    thread_id: str | int = ""


class Group(msgspec.Struct, frozen=True):
    """A process group: the global ranks in it, written as a list."""

    desc: str = ""
    ranks: str = ""


class Dump(msgspec.Struct, frozen=True):
    """What one rank left."""

    version: str
    entries: list[Entry]
    pg_config: dict[str, Group] = {}


def read(paths: Sequence[Path], options: Options) -> Imported:
    """Dumps as windows: those of one folder are one run."""
    runs: dict[Path, dict[int, Dump]] = {}
    refused: list[TraceError] = []
    for path in options.each(paths):
        try:
            rank, dump = rank_of(path), read_dump(path)
            if rank in runs.get(path.parent, {}):
                raise TraceError(
                    f"there is another dump of rank {rank} in its folder: give each dump of a job its own"
                )
        except TraceError as error:
            refused.append(TraceError(error.reason, path=str(path), place=error.place))
            continue
        runs.setdefault(path.parent, {})[rank] = dump
    windows: list[ImportedWindow] = []
    for folder, run_id in run_names(list(runs)).items():
        try:
            windows += _windows(run_id, runs[folder])
        except TraceError as error:
            refused.append(TraceError(error.reason, path=str(folder), place=error.place))
    return Imported("flight-recorder", tuple(windows), tuple(refused))


def rank_of(path: Path) -> int:
    """The rank that a dump's name ends in, as torch names them: ``nccl_trace_rank_3``.

    Raises:
        TraceError: it ends in none.
    """
    match = _RANK.search(path.name)
    if match is None or int(match[1]) > MAX_RANK_VALUE:
        raise TraceError("its name does not end in the rank: nccl_trace_rank_3, or dump_3.json")
    return int(match[1])


def read_dump(path: Path) -> Dump:
    """One file, by what it begins with: JSON or a pickle.

    Raises:
        TraceError: it is neither, would run code, or does not hold what a dump does; with the place.
    """
    data = expand(path, MAX_BYTES)
    try:
        if data.lstrip()[:1] == b"{":
            dump = msgspec.json.decode(data, type=Dump, strict=False)
        else:
            dump = msgspec.convert(plain_data(data), Dump, strict=False)
    except msgspec.ValidationError as error:
        what, _, place = str(error).rpartition(" - at `")
        raise TraceError(
            f"is no dump of the Flight Recorder as torch 2.5 and later write it: {what or place}",
            place=place.rstrip("`") if what else None,
        ) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise TraceError(f"is no JSON: {first_line(str(error))}") from error
    for place_, entry in enumerate(dump.entries):
        if not (0 <= entry.time_created_ns < _LATEST and 0 <= entry.collective_seq_id < _LATEST):
            raise TraceError("its time or sequence number is out of range", place=f"$.entries[{place_}]")
    return dump


def _windows(run_id: str, dumps: dict[int, Dump]) -> list[ImportedWindow]:
    groups: dict[str, dict[int, dict[int, Entry]]] = {}
    for rank, dump in dumps.items():
        for entry in dump.entries:
            if not entry.is_p2p:
                of_group = groups.setdefault(entry.process_group[0], {})
                of_group.setdefault(rank, {})[entry.collective_seq_id] = entry
    if not groups:
        raise TraceError("no dump holds a collective: was TORCH_FR_BUFFER_SIZE above 0?")
    world = _world_size(dumps)
    notes = _stuck(groups)
    main = max(groups, key=lambda name: (len(groups[name]), sum(map(len, groups[name].values()))))
    arrivals, first, length, more = _arrivals(groups[main])
    notes += more
    if len(groups) > 1:
        others = ", ".join(sorted(name for name in groups if name != main))
        notes.append(ImportNote("skipped", f"the window is made of group {main!r} alone; others: {others}"))
    notes.append(
        ImportNote(
            "derived",
            "waits are until the last rank called a collective, by the wall clocks of the hosts; how long it "
            "took from there is not in a dump",
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
        about = About(
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


def _arrivals(ranks: dict[int, dict[int, Entry]]) -> tuple[Arrivals, int, int, list[ImportNote]]:
    """What all ranks of a group called, where its cycle begins and how long it is."""
    common = sorted(set.intersection(*(set(entries) for entries in ranks.values())))
    if not common:
        raise TraceError("no collective is in the dumps of all ranks: were they taken at the same time?")
    order = sorted(ranks)
    kinds = tuple(_kind(ranks[order[0]][sequence]) for sequence in common)
    at_KR = np.asarray(
        [[ranks[rank][sequence].time_created_ns for rank in order] for sequence in common], np.int64
    )
    first, length = period(kinds)
    notes = []
    if length > 1:
        begin = ", ".join(kinds[first : first + min(length, 4)])
        what = f"{length} collectives that repeat ({begin}…) are a step"
        notes.append(ImportNote("guessed", what))
        if first:
            notes.append(ImportNote("skipped", f"{first} collectives before the first whole step"))
    else:
        notes.append(ImportNote("guessed", "no cycle of collectives repeats: each one is taken as a step"))
    arrivals = Arrivals(np.asarray(order, np.int64), np.asarray(common, np.int64), at_KR, kinds)
    return arrivals, first, length, notes


def _kind(entry: Entry) -> str:
    sizes = entry.input_sizes[0] if entry.input_sizes else []
    return f"{entry.profiling_name} {'×'.join(map(str, sizes))}".strip()


def _stuck(groups: dict[str, dict[int, dict[int, Entry]]]) -> list[ImportNote]:
    """The collectives that some ranks of a group called and others, at the end of their dumps, did not."""
    notes = []
    for name, ranks in groups.items():
        last = {rank: max(entries) for rank, entries in ranks.items()}
        newest = max(last.values())
        behind = sorted(rank for rank, sequence in last.items() if sequence < newest)
        if behind:
            rank = min(last, key=lambda each: last[each])
            told = ", ".join(map(str, behind[:20])) + ("…" if len(behind) > 20 else "")
            leader = next(each for each, sequence in last.items() if sequence == newest)
            following = ranks[leader].get(last[rank] + 1)
            called = f" ({_kind(following)})" if following else ""
            what = (
                f"ranks {told} did not call the last collectives of group {name!r}: rank {rank} stopped "
                f"after {last[rank]:,}, others called {last[rank] + 1:,}{called}"
            )
            notes.append(ImportNote("missing", what))
    return notes


def _world_size(dumps: dict[int, Dump]) -> int:
    """Ranks expected: those that any group of any dump lists."""
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


def _backend(ranks: dict[int, dict[int, Entry]]) -> str:
    entry = next(iter(next(iter(ranks.values())).values()))
    return entry.profiling_name.partition(":")[0][:32] if ":" in entry.profiling_name else ""


def _operators(
    groups: dict[str, dict[int, dict[int, Entry]]], first: int, length: int, main: str
) -> Operators:
    """Every collective as an event, from its call to its end, or else to the last rank's call."""
    calls = Calls()
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
