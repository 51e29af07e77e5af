"""Read the Flight Recorder dumps of one stalled job: the calls of each rank.

Only calls that have not completed and the newest sequence number of each group are kept, so that memory is
bounded by the pending calls and not by the size of the recorder's buffers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeGuard

import msgspec

from sfapp.errors import TraceError
from sfapp.importers.call_groups import MAX_TEXT, CallGroups
from sfapp.importers.flight_recorder_dump import (
    MOST_MEMBERS,
    CollectiveEntry,
    Count,
    FlightRecorderDump,
    rank_of,
    read_dump,
)
from sfapp.importers.import_formats import find_files
from sfapp.importers.import_result import ImportNote, ImportOptions
from sfapp.model.calls import ROOTED, CallGroup, JobCalls, PendingCall, RankCalls
from sfapp.model.manifest import MAX_WORLD_SIZE
from sfapp.terminal import quoted

MOST_GROUPS = 4096
"""Groups with entries in one dump: a rank is in some dozens."""

_MOST_SNAPSHOTS = 64  # of the newest numbers of all groups, one for each group with a pending call
_MOST_COUNTED = 2**62
_MOST_AXES = 16
_WHOLE = re.compile(r"[0-9]{1,9}\Z")
_PEERS = re.compile(r"(send|recv) (\d{1,9})(->|<-)(\d{1,9})\Z")
_EQUAL_SIZES = frozenset(
    (
        *("all_reduce", "allreduce_coalesced", "broadcast", "_all_gather_base", "_reduce_scatter_base"),
        *("all_gather_single", "reduce_scatter_single"),
    )
)
"""Collectives that need the same number of elements on every rank."""


class HangEntry(CollectiveEntry, frozen=True):
    """The fields of an entry on its completion and its ranks."""

    pg_id: Annotated[int, msgspec.Meta(ge=-1, lt=2**31)] = -1
    p2p_seq_id: Count = 0
    state: str = ""
    retired: bool = False
    output_sizes: tuple[list[Count], ...] = ()
    input_dtypes: tuple[str, ...] = ()


class HangDump(FlightRecorderDump, frozen=True):
    """A dump with its watchdog's state of each group, by the process's own number of the group."""

    entries: list[HangEntry]  # type: ignore[assignment]  # narrower than the base
    pg_status: Any = None


def read_calls(
    paths: Sequence[Path], options: ImportOptions, ranks: Iterable[int] = ()
) -> tuple[JobCalls, tuple[ImportNote, ...], tuple[Path, ...]]:
    """Return the calls of a job, notes on files that were left out, and the dumps that were read.

    Args:
        ranks: ranks that the job is known to have, with or without a dump.

    Raises:
        TraceError: no file is a dump, or two files are dumps of one rank.
    """
    reader = CallReader()
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
            reader.check(rank, dump)
        except TraceError as error:
            at = f"{error.place}: " if error.place else ""
            notes.append(ImportNote("skipped", f"{at}{error.reason}", str(path)))
            continue
        if rank in files:
            raise TraceError(
                f"is a second dump of rank {rank}, after {files[rank]}: name the dumps of one job only",
                path=str(path),
            )
        files[rank] = path
        reader.add(rank, dump)
    if not files:
        where = ", ".join(map(str, paths))
        why = f" (skipped {notes[0]})" if notes else ""
        raise TraceError(
            f"no Flight Recorder dump under {where}{why}. torch writes one file per rank when a collective "
            "times out; this needs TORCH_NCCL_DUMP_ON_TIMEOUT=1 and TORCH_FR_BUFFER_SIZE above 0"
        )
    return reader.job(ranks), tuple(notes), tuple(files[rank] for rank in sorted(files))


@dataclass(frozen=True, slots=True)
class _ReadDump:
    """The part of one dump that is kept.

    Attributes:
        calls: from the entries, without the watchdog's counters.
        counters: newest enqueued and completed number, by the process's own number of a group.
        groups: the group of each of these numbers, according to entries.
        created: the same, according to the order in which groups were created; empty if not known.
        newest: by group, its own number and the newest number of a collective.
        transfers: groups with sends or receives.
    """

    calls: RankCalls
    counters: dict[int, tuple[int, int]]
    groups: dict[int, int]
    created: dict[int, int]
    newest: dict[int, tuple[int, int]]
    transfers: frozenset[int]


class CallReader:
    """Collector of a job's dumps, read one by one; it keeps only pending calls and the newest numbers of
    each."""

    def __init__(self) -> None:
        self._groups = CallGroups()
        self._read: dict[int, _ReadDump] = {}

    def check(self, rank: int, dump: HangDump) -> None:
        """Check the number of groups and of the ranks that they list, because what is kept of a dump grows
        with them; and that the rank is in the groups that it calls.

        Raises:
            TraceError: there are too many in the dump, or with those of the dumps before; or it is the dump
                of another rank.
        """
        groups = {entry.process_group[0] for entry in dump.entries}
        if len(groups) > MOST_GROUPS:
            raise TraceError(f"has entries of {len(groups):,} groups, more than {MOST_GROUPS:,}")
        for name in groups & dump.pg_config.keys():
            listed = self._groups.listed(name, dump.pg_config[name].ranks)
            if listed and rank not in listed:
                raise TraceError(
                    f"its name ends in rank {rank}, and it has calls of group {quoted(name)}, which lists "
                    "other ranks only: it is the dump of another rank"
                )
        members = self._groups.members_with(dump.pg_config)
        if members > MOST_MEMBERS:
            raise TraceError(f"lists, with the dumps before, {members:,} ranks, more than {MOST_MEMBERS:,}")

    def add(self, rank: int, dump: HangDump) -> None:
        """Add the dump of one rank, which was checked."""
        numbers = _group_numbers(dump, self._groups)
        newest: dict[int, tuple[int, int]] = {}
        transfers = set()
        for entry in dump.entries:
            group = numbers[entry.process_group[0]]
            self._groups.called_by.setdefault(group, set()).add(rank)
            if entry.is_p2p:
                transfers.add(group)
            else:
                newest[group] = entry.pg_id, max(newest.get(group, (0, -1))[1], entry.collective_seq_id)
        self._read[rank] = _ReadDump(
            _calls(rank, dump, numbers, self._groups.found),
            _counters(dump),
            {entry.pg_id: numbers[entry.process_group[0]] for entry in dump.entries},
            {own: numbers[name] for own, name in _in_order(dump).items()},
            newest,
            frozenset(transfers),
        )

    def job(self, ranks: Iterable[int] = ()) -> JobCalls:
        """Return the calls of each rank and which are pending; ``ranks`` as of ``read_calls``."""
        world = self._groups.world([*self._read, *ranks])
        groups = self._groups.complete(world)
        counters = _counters_by_group(self._read)
        calls = {}
        for rank, read in sorted(self._read.items()):
            called, completed = dict(read.calls.called), dict(read.calls.completed)
            for group, (enqueued, finished) in counters[rank].items():
                called[group] = max(called.get(group, -1), enqueued)
                completed[group] = max(completed.get(group, -1), finished)
            calls[rank] = replace(read.calls, called=called, completed=completed)
        return JobCalls(groups, calls, world)


def _group_numbers(dump: HangDump, groups: CallGroups) -> dict[str, int]:
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


def _calls(rank: int, dump: HangDump, numbers: dict[str, int], groups: Sequence[CallGroup]) -> RankCalls:
    """Return the calls in the entries of a dump."""
    pending: list[PendingCall] = []
    called: dict[int, int] = {}
    completed: dict[int, int] = {}
    before: dict[str, int] = {}
    waits: set[int] = set()
    counters = _counters(dump)
    for batch in _batches(dump.entries):
        last = batch[-1]
        group = numbers[last.process_group[0]]
        done = _is_done(last)
        if last.is_p2p:
            each_done = done or (len(batch) > 1 and last.p2p_seq_id <= _completed_transfer(counters, last))
            if not each_done:
                pending += [call for entry in batch if (call := _transfer(entry, group, groups[group], rank))]
            continue
        sequence = last.collective_seq_id
        kind = _kind(last)
        if not done:
            snapshot = {} if group in waits or len(waits) >= _MOST_SNAPSHOTS else dict(before)
            waits.add(group)
            started = last.state == "started" or last.time_discovered_started_ns is not None
            pending.append(
                PendingCall(group, sequence, kind, None, started, _signature(last, kind), snapshot)
            )
        elif kind not in ROOTED:
            completed[group] = max(completed.get(group, -1), sequence)
        called[group] = max(called.get(group, -1), sequence)
        before[groups[group].description or groups[group].name] = sequence
    for call in reversed(pending) if not any(map(_is_done, dump.entries)) else ():
        # The dump has pending calls only. A group completes its calls in order, so all before the first one
        # here have completed, unless it fell out of the buffer.
        if call.peer is None:
            completed[call.group] = call.sequence - 1
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


def _counters(dump: HangDump) -> dict[int, tuple[int, int]]:
    """Return the newest enqueued and completed number by the process's own number of a group."""
    found = {}
    for number, status in dump.pg_status.items() if isinstance(dump.pg_status, dict) else ():
        if isinstance(number, str) and _WHOLE.match(number) and isinstance(status, dict):
            enqueued, done = status.get("last_enqueued_collective"), status.get("last_completed_collective")
            if _is_counter(enqueued) and _is_counter(done):
                found[int(number)] = enqueued, done
    return found


def _is_counter(value: object) -> TypeGuard[int]:
    """Return whether a value of a dump is a sequence number; −1 stands for none."""
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value < _MOST_COUNTED


def _completed_transfer(counters: dict[int, tuple[int, int]], entry: HangEntry) -> int:
    enqueued, done = counters.get(entry.pg_id, (-1, -1))
    return done if enqueued >= entry.p2p_seq_id else -1


def _counters_by_group(read: dict[int, _ReadDump]) -> dict[int, dict[int, tuple[int, int]]]:
    """Return the watchdog's counters by rank and group, if they count collectives.

    Entries show to which group a counter belongs. Without an entry, groups are taken in the order of their
    creation, if no entry of any dump contradicts it. A counter may also count sends and receives: counters of
    groups with such entries, or that differ from the newest entry, are not used.
    """
    order_holds = all(
        each.created.get(own, group) == group for each in read.values() for own, group in each.groups.items()
    )
    unfit = {group for each in read.values() for group in each.transfers}
    confirmed: set[int] = set()
    for each in read.values():
        for group, (own, sequence) in each.newest.items():
            if own in each.counters:
                (confirmed if each.counters[own][0] == sequence else unfit).add(group)
    usable = confirmed - unfit
    return {
        rank: {
            group: each.counters[own]
            for own, group in ((each.created if order_holds else {}) | each.groups).items()
            if group in usable and own in each.counters
        }
        for rank, each in read.items()
    }


def _in_order(dump: HangDump) -> dict[int, str]:
    """Return the name of each group by the process's own number of it; both follow the order of creation."""
    names = [name for name in dump.pg_config if name]
    numbers = list(dump.pg_status) if isinstance(dump.pg_status, dict) else []
    whole = all(isinstance(each, str) and _WHOLE.match(each) for each in names + numbers)
    if not whole or len(names) != len(numbers):
        return {}
    return dict(zip(sorted(map(int, numbers)), sorted(names, key=int), strict=True))
