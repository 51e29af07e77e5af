"""Import NCCL Inspector logs, JSON lines per process: the duration of every collective on every rank.

The logs contain neither steps nor call times. Ranks leave a collective together, so the rank that spends
least time in it called it last. Each collective is taken as a step; lateness is measured from the first rank,
and no clocks are compared.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from sfapp.errors import TraceError
from sfapp.importers.collective_arrivals import TRANSFER, WAIT, WORK, CollectiveEvents
from sfapp.importers.duration_table import cut
from sfapp.importers.import_result import (
    ImportedWindow,
    ImportNote,
    ImportOptions,
    ImportResult,
    guarded,
)
from sfapp.importers.source_files import open_source
from sfapp.importers.table import run_names
from sfapp.importers.window_builder import WindowInfo, build_window
from sfapp.model import Lane, Operators, RankIdentity
from sfapp.model.operators import NONE
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.packets.packet_layout import MAX_WORLD_SIZE
from sfapp.terminal import first_line

MAX_LINE = 2**20
MAX_RECORDS = 2**22
"""Largest number of collectives over all ranks of a run."""

_US = 1000
_LONGEST_US = 2**50


class _Header(msgspec.Struct, frozen=True):
    id: str
    rank: int
    n_ranks: int


class _Metadata(msgspec.Struct, frozen=True):
    dump_timestamp_us: int
    hostname: str = ""


class _Performance(msgspec.Struct, frozen=True):
    coll: str
    coll_sn: int
    coll_exec_time_us: int


class Record(msgspec.Struct, frozen=True):
    """One collective on one rank of one communicator."""

    header: _Header
    metadata: _Metadata
    coll_perf: _Performance


Group = dict[int, dict[int, Record]]
"""Records of one communicator, by sequence number and rank."""


def read(paths: Sequence[Path], options: ImportOptions) -> ImportResult:
    """Read logs as windows: the logs of one folder are one run, and its largest communicator is the
    window."""
    runs: dict[Path, dict[str, Group]] = {}
    refused: list[TraceError] = []
    for path in options.each(paths):
        with guarded(refused, path):
            found = list(_records(path))
            groups = runs.setdefault(path.parent, {})
            for record in found:
                calls = groups.setdefault(record.header.id, {}).setdefault(record.coll_perf.coll_sn, {})
                calls[record.header.rank] = record
    windows: list[ImportedWindow] = []
    for folder, run_id in run_names([folder for folder, groups in runs.items() if groups]).items():
        with guarded(refused, folder):
            windows += _windows(run_id, runs[folder])
    return ImportResult(tuple(windows), tuple(refused))


def _records(path: Path) -> Iterator[Record]:
    """Yield the records of a log.

    Raises:
        TraceError: a line is not a record, is too long, or there are too many lines; with its number.
    """
    decoder = msgspec.json.Decoder(Record)
    number = 0
    try:
        with open_source(path) as file:
            while line := file.readline(MAX_LINE + 1):
                number += 1
                if len(line) > MAX_LINE or number > MAX_RECORDS:
                    raise TraceError("is too long for an NCCL Inspector log", place=f"line {number}")
                if line.strip():
                    record = decoder.decode(line)
                    _check(record, number)
                    yield record
    except UNREADABLE_JSON as error:
        reason = f"is not an NCCL Inspector record (one JSON object per line): {first_line(str(error))}"
        raise TraceError(reason, place=f"line {number}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"cannot be read: {first_line(str(error))}", place=f"line {number}") from error


def _check(record: Record, line: int) -> None:
    header, call, at = record.header, record.coll_perf, record.metadata.dump_timestamp_us
    if not 0 <= header.rank < header.n_ranks <= MAX_WORLD_SIZE:
        raise TraceError(f"rank {header.rank} of {header.n_ranks}", place=f"line {line}")
    if not (0 <= call.coll_exec_time_us < _LONGEST_US and 0 <= at < 2**52 and 0 <= call.coll_sn < 2**62):
        raise TraceError("a time or sequence number is out of range", place=f"line {line}")


def _windows(run_id: str, groups: dict[str, Group]) -> list[ImportedWindow]:
    if sum(len(calls) for group in groups.values() for calls in group.values()) > MAX_RECORDS:
        raise TraceError(f"more than {MAX_RECORDS:,} collectives: import fewer files at a time")
    ranks_of = {name: {rank for calls in group.values() for rank in calls} for name, group in groups.items()}
    main = max(groups, key=lambda name: (len(ranks_of[name]), len(groups[name])))
    ranks = sorted(ranks_of[main])
    common = [number for number in sorted(groups[main]) if len(groups[main][number]) == len(ranks)]
    if not common:
        raise TraceError("no collective is in the logs of all ranks")
    first = groups[main][common[0]][ranks[0]].header
    notes = [
        ImportNote("guessed", "each collective is taken as a step, because the log has no steps"),
        ImportNote(
            "derived",
            "ranks are assumed to leave a collective together: the rank that spends least in it arrived last",
        ),
        ImportNote("missing", "work between collectives and all times except that of the dump"),
    ]
    if len(groups) > 1:
        notes.append(ImportNote("skipped", f"{len(groups) - 1} smaller communicators: events only"))
    if len(common) < len(groups[main]):
        what = f"{len(groups[main]) - len(common):,} collectives that are not in the logs of all ranks"
        notes.append(ImportNote("skipped", what))
    took_KR = _US * np.asarray(
        [[groups[main][number][rank].coll_perf.coll_exec_time_us for rank in ranks] for number in common],
        np.int64,
    )
    longest_K1, least_K1 = took_KR.max(axis=1, keepdims=True), took_KR.min(axis=1, keepdims=True)
    planes = np.stack([longest_K1 - took_KR, took_KR - least_K1, np.broadcast_to(least_K1, took_KR.shape)])
    wall_KR = longest_K1.repeat(len(ranks), axis=1)
    last = groups[main][common[-1]]
    identities = [RankIdentity(rank, 0, 0, last[rank].metadata.hostname[:256]) for rank in ranks]
    events = _operators(groups, main, common)
    windows = []
    for number, part in enumerate(cut(len(common))):
        about = WindowInfo(run_id=run_id, window=number, world_size=first.n_ranks, backend="nccl")
        step_N = np.arange(part.start, part.stop)
        window = build_window(
            about, (WORK, WAIT, TRANSFER), planes[:, part], wall_KR[part], step_N, identities
        )
        mine = events.select(np.isin(events.step_E, step_N) | ((events.step_E < 0) & (number == 0)))
        windows.append(ImportedWindow(window, mine, tuple(notes)))
    return windows


def _operators(groups: dict[str, Group], main: str, common: Sequence[int]) -> Operators:
    """Return every collective as an event that ends at its dump time, the only time that is known."""
    step_of = {number: step for step, number in enumerate(common)}
    made = CollectiveEvents()
    for name, group in groups.items():
        for number, calls in group.items():
            step = step_of.get(number, NONE) if name == main else NONE
            end_ns = _US * min(record.metadata.dump_timestamp_us for record in calls.values())
            for rank, record in calls.items():
                lane = Lane(rank, f"communicator {name}"[:64], True)
                start_ns = end_ns - _US * record.coll_perf.coll_exec_time_us
                made.add(record.coll_perf.coll, lane, name, number, step, start_ns, end_ns)
    return made.operators()
