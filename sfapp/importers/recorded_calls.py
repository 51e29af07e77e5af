"""Read the Flight Recorder dumps of one job that stands still: which rank has called what.

Only calls that have not completed are kept, and the newest sequence number of each group, so that memory is
bounded by what is pending and not by the size of the recorder's buffers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfapp.errors import TraceError
from sfapp.importers.flight_recorder_dump import CollectiveEntry, FlightRecorderDump, rank_of, read_dump
from sfapp.importers.formats import find_files
from sfapp.importers.import_result import ImportNote, ImportOptions
from sfapp.model.calls import ROOTED, CallGroup, JobCalls, PendingCall, RankCalls
from sfapp.packets.packet_layout import MAX_WORLD_SIZE

MAX_TEXT = 256
"""Longest name of a group or call; longer ones are cut."""

_MOST_AXES = 16
_PEERS = re.compile(r"(send|recv) (\d{1,9})(->|<-)(\d{1,9})\Z")
_EQUAL_SIZES = frozenset(
    (
        *("all_reduce", "allreduce_coalesced", "broadcast", "_all_gather_base", "_reduce_scatter_base"),
        *("all_gather_single", "reduce_scatter_single"),
    )
)
"""Collectives that need the same number of elements on every rank."""


class HangEntry(CollectiveEntry, frozen=True):
    """The fields of an entry that say whether it has completed, and with whom."""

    pg_id: int = -1
    p2p_seq_id: int = 0
    state: str = ""
    retired: bool = False
    output_sizes: tuple[list[int], ...] = ()
    input_dtypes: tuple[str, ...] = ()


class HangDump(FlightRecorderDump, frozen=True):
    """A dump with what its watchdog knew of each group, by the process's own number of the group."""

    entries: list[HangEntry]  # type: ignore[assignment]  # narrower than the base
    pg_status: Any = None


@dataclass(slots=True)
class _Groups:
    """Groups by name and list of ranks, numbered in the order in which they are first seen."""

    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    found: list[CallGroup] = field(default_factory=list)
    called_by: dict[int, set[int]] = field(default_factory=dict)

    def number(self, name: str, description: str, ranks: str) -> int:
        key = (name, ranks)
        if key not in self.numbers:
            members = _members(ranks)
            self.numbers[key] = len(self.found)
            self.found.append(CallGroup(name[:MAX_TEXT], description[:MAX_TEXT], members, bool(members)))
        return self.numbers[key]

    def complete(self) -> tuple[CallGroup, ...]:
        """Return the groups; one that no dump lists has the ranks that called it."""
        return tuple(
            each
            if each.listed
            else CallGroup(each.name, each.description, _sorted(self.called_by, at), False)
            for at, each in enumerate(self.found)
        )


def _sorted(called_by: dict[int, set[int]], group: int) -> tuple[int, ...]:
    return tuple(sorted(called_by.get(group, ())))


def _members(text: str) -> tuple[int, ...]:
    try:
        ranks = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return ()
    if not isinstance(ranks, list) or len(ranks) > MAX_WORLD_SIZE:
        return ()
    whole = [each for each in ranks if type(each) is int and 0 <= each < MAX_WORLD_SIZE]
    return tuple(whole) if len(whole) == len(ranks) == len(set(whole)) else ()


def read_calls(
    paths: Sequence[Path], options: ImportOptions
) -> tuple[JobCalls, tuple[ImportNote, ...], tuple[Path, ...]]:
    """Return the calls of a job, notes on files that were left out, and the dumps that were read.

    Raises:
        TraceError: no file is a dump, or two files are dumps of one rank.
    """
    dumps: dict[int, HangDump] = {}
    files: dict[int, Path] = {}
    notes = []
    for path in options.each(find_files(paths, ("",))):
        try:
            rank = rank_of(path)
            if rank >= MAX_WORLD_SIZE:
                raise TraceError(
                    f"rank {rank:,} is larger than any job: the largest rank is {MAX_WORLD_SIZE - 1:,}"
                )
            dump = read_dump(path, HangDump)
        except TraceError as error:
            at = f"{error.place}: " if error.place else ""
            notes.append(ImportNote("skipped", f"{at}{error.reason}", str(path)))
            continue
        if rank in files:
            raise TraceError(
                f"is a second dump of rank {rank}, after {files[rank]}: name the dumps of one job only",
                path=str(path),
            )
        dumps[rank], files[rank] = dump, path
    if not dumps:
        where = ", ".join(map(str, paths))
        why = f" (skipped {notes[0]})" if notes else ""
        raise TraceError(
            f"no Flight Recorder dump under {where}{why}. torch writes one file per rank when a collective "
            "times out; this needs TORCH_NCCL_DUMP_ON_TIMEOUT=1 and TORCH_FR_BUFFER_SIZE above 0"
        )
    return calls_of(dumps), tuple(notes), tuple(files[rank] for rank in sorted(files))


def calls_of(dumps: dict[int, HangDump]) -> JobCalls:
    """Return what each rank has called and what is pending."""
    groups = _Groups()
    resolved = {rank: _group_numbers(dump, groups) for rank, dump in dumps.items()}
    for rank, dump in dumps.items():
        for entry in dump.entries:
            groups.called_by.setdefault(resolved[rank][entry.process_group[0]], set()).add(rank)
    found = groups.complete()
    world = {rank for group in found for rank in group.ranks} | set(dumps)
    if not any(group.listed for group in found):
        world |= set(range(max(dumps) + 1))  # Gloo's dumps list no groups; ranks are numbered from 0
    statuses = _statuses(dumps, resolved)
    calls = {
        rank: _calls(rank, dump, resolved[rank], found, statuses[rank])
        for rank, dump in sorted(dumps.items())
    }
    return JobCalls(found, calls, tuple(sorted(world)))


def _group_numbers(dump: HangDump, groups: _Groups) -> dict[str, int]:
    """Return the number of each group of a dump by its name."""
    numbers = {
        name: groups.number(name, each.desc, each.ranks) for name, each in dump.pg_config.items() if name
    }
    for entry in dump.entries:
        name, description = entry.process_group
        if name not in numbers:
            numbers[name] = groups.number(name, description, "")
    return numbers


def _batches(entries: Iterable[HangEntry]) -> list[list[HangEntry]]:
    """Return the entries of each call: calls of one batch share a group and a number, and the last entry
    (``coalesced``) alone has the state."""
    batches: dict[tuple[str, bool, int], list[HangEntry]] = {}
    for entry in entries:
        number = entry.p2p_seq_id if entry.is_p2p else entry.collective_seq_id
        batches.setdefault((entry.process_group[0], entry.is_p2p, number), []).append(entry)
    return list(batches.values())


def _is_done(entry: HangEntry) -> bool:
    return entry.state == "completed" or entry.retired or entry.time_discovered_completed_ns is not None


def _calls(
    rank: int,
    dump: HangDump,
    numbers: dict[str, int],
    groups: Sequence[CallGroup],
    status: dict[int, tuple[int, int]],
) -> RankCalls:
    pending: list[PendingCall] = []
    called: dict[int, int] = {}
    completed: dict[int, int] = {}
    before: dict[str, int] = {}
    waits: set[int] = set()
    for batch in _batches(dump.entries):
        last = batch[-1]
        group = numbers[last.process_group[0]]
        done = _is_done(last)
        if last.is_p2p:
            each_done = done or (len(batch) > 1 and last.p2p_seq_id <= _completed_p2p(dump, last))
            if not each_done:
                pending += [call for entry in batch if (call := _transfer(entry, group, groups[group], rank))]
            continue
        sequence = last.collective_seq_id
        kind = _kind(last)
        if not done:
            snapshot = {} if group in waits else dict(before)
            waits.add(group)
            started = last.state == "started" or last.time_discovered_started_ns is not None
            pending.append(
                PendingCall(group, sequence, kind, None, started, _signature(last, kind), snapshot)
            )
        elif kind not in ROOTED:
            completed[group] = max(completed.get(group, -1), sequence)
        called[group] = max(called.get(group, -1), sequence)
        before[groups[group].description or groups[group].name] = sequence
    for group, (enqueued, finished) in status.items():
        called[group] = max(called.get(group, -1), enqueued)
        completed[group] = max(completed.get(group, -1), finished)
    return RankCalls(rank, len(dump.entries), tuple(pending), called, completed)


def _kind(entry: HangEntry) -> str:
    return entry.profiling_name.partition(":")[2][:MAX_TEXT] or entry.profiling_name[:MAX_TEXT]


def _signature(entry: HangEntry, kind: str) -> str:
    if kind not in _EQUAL_SIZES:
        return ""
    sizes = [
        [math.prod(size[:_MOST_AXES]) for size in side[:4]]
        for side in (entry.input_sizes, entry.output_sizes)
    ]
    if kind not in ("_all_gather_base", "_reduce_scatter_base", "all_gather_single", "reduce_scatter_single"):
        sizes = sizes[:1]
    elements = " → ".join(", ".join(f"{each:,}" for each in side) for side in sizes)
    return f"{elements} elements {', '.join(entry.input_dtypes[:4])}".strip()[:MAX_TEXT]


def _transfer(entry: HangEntry, number: int, group: CallGroup, rank: int) -> PendingCall | None:
    """Return a send or receive; None for the entry that closes a batch, and for names that do not fit."""
    match = _PEERS.search(entry.profiling_name)
    if match is None:
        return None
    at = int(match[4])
    if not group.listed or at >= len(group.ranks) or group.ranks[at] == rank:
        return None
    return PendingCall(number, entry.p2p_seq_id, match[1], group.ranks[at])


def _status_of(dump: HangDump, number: object) -> tuple[int, int] | None:
    """Return the numbers of the last call and of the last completed one of a group."""
    status = dump.pg_status.get(str(number)) if isinstance(dump.pg_status, dict) else None
    if not isinstance(status, dict):
        return None
    values = status.get("last_enqueued_collective"), status.get("last_completed_collective")
    if not all(type(each) is int for each in values):
        return None
    return values  # type: ignore[return-value]


def _completed_p2p(dump: HangDump, entry: HangEntry) -> int:
    status = _status_of(dump, entry.pg_id)
    return -1 if status is None or status[0] < entry.p2p_seq_id else status[1]


def _statuses(
    dumps: dict[int, HangDump], resolved: dict[int, dict[str, int]]
) -> dict[int, dict[int, tuple[int, int]]]:
    """Return by rank and group the last call and the last completed one, where the watchdog's counters count
    collectives.

    The counters are listed by the process's own number of a group. Entries say which group that is. Without
    an entry, groups are taken in the order in which they were created, which both lists follow; this is used
    only if no entry of any dump contradicts it. A counter may count sends and receives, too: the counters of
    groups with such entries, or with a counter that differs from the newest entry, are not used.
    """
    by_order: dict[int, dict[int, str]] = {}
    unfit: set[int] = set()
    confirmed: set[int] = set()
    order_holds = True
    for rank, dump in dumps.items():
        by_order[rank] = _in_order(dump)
        newest: dict[int, tuple[int, int]] = {}
        for entry in dump.entries:
            group = resolved[rank][entry.process_group[0]]
            if entry.is_p2p:
                unfit.add(group)
                continue
            order_holds &= by_order[rank].get(entry.pg_id, entry.process_group[0]) == entry.process_group[0]
            _, sequence = newest.get(group, (0, -1))
            newest[group] = entry.pg_id, max(sequence, entry.collective_seq_id)
        for group, (number, sequence) in newest.items():
            status = _status_of(dump, number)
            if status is not None:
                (confirmed if status[0] == sequence else unfit).add(group)
    statuses: dict[int, dict[int, tuple[int, int]]] = {}
    for rank, dump in dumps.items():
        names = dict(by_order[rank]) if order_holds else {}
        names |= {entry.pg_id: entry.process_group[0] for entry in dump.entries}
        statuses[rank] = {
            resolved[rank][name]: status
            for number, name in names.items()
            if resolved[rank][name] in confirmed - unfit and (status := _status_of(dump, number)) is not None
        }
    return statuses


def _in_order(dump: HangDump) -> dict[int, str]:
    """Return the name of each group by the process's number of it, both in the order of their creation."""
    names = [name for name in dump.pg_config if name]
    numbers = list(dump.pg_status) if isinstance(dump.pg_status, dict) else []
    whole = all(
        isinstance(each, str) and each.isascii() and each.isdigit() and len(each) < 10
        for each in names + numbers
    )
    if not whole or len(names) != len(numbers):
        return {}
    return dict(zip(sorted(map(int, numbers)), sorted(names, key=int), strict=True))
