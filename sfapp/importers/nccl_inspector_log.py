"""Read an NCCL Inspector log: JSON lines, each a record or the marker at the begin of a dump.

Up to format 4.2 each record carries the ``header`` (communicator and rank) and the ``metadata`` (host and
time) of its dump. From format 4.3 on only the marker (``dump_stats``) does, and the records after it inherit
them. Markers exist since format 4.1. Source: NVIDIA/nccl, plugins/profiler/inspector, README.md and
inspector_json_reader.py (commit 08618d4).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sfapp.errors import TraceError
from sfapp.importers.source_files import open_source
from sfapp.model.manifest import MAX_WORLD_SIZE
from sfapp.model.operators import NONE
from sfapp.model.parse import UNREADABLE_JSON
from sfapp.terminal import first_line

MAX_RECORDS = 2**22
"""Largest number of collectives and point-to-point records over all logs of an import."""
MAX_LINE = 2**20
MAX_LINES = 2**24
"""Largest number of lines of a log; a proxy trace has many for one collective."""
MAX_BYTES = 2**36
"""Largest size of a log's text, unpacked."""

_TOO_MANY = f"an import reads up to {MAX_RECORDS:,} records: import fewer files at a time"
_MAX_ID = 256
_MOST_NAMES = 2**16
_LONGEST_US = 2**50


class _CommunicatorHeader(msgspec.Struct, frozen=True):
    id: str
    rank: int
    n_ranks: int


class _Metadata(msgspec.Struct, frozen=True):
    dump_timestamp_us: int
    hostname: str = ""


class _DumpStats(msgspec.Struct, frozen=True):
    """Numbers of a dump's records, and of those that were overwritten before any dump since the job began."""

    coll_records: int
    p2p_records: int
    coll_dropped_total: int


class _Collective(msgspec.Struct, frozen=True):
    coll: str
    coll_sn: int
    coll_exec_time_us: float


class _PointToPoint(msgspec.Struct, frozen=True):
    p2p: str
    p2p_exec_time_us: float


class _InspectorLine(msgspec.Struct, frozen=True):
    """A line; without any of the last three members it is a record of another kind (``proxy_trace``, …)."""

    header: _CommunicatorHeader | None = None
    metadata: _Metadata | None = None
    dump_stats: _DumpStats | None = None
    coll_perf: _Collective | None = None
    p2p_perf: _PointToPoint | None = None


class InspectorDump(msgspec.Struct, frozen=True):
    """Origin of a record: one rank of one communicator, and the time of the dump."""

    communicator: str
    rank: int
    n_ranks: int
    host: str
    at_us: int


class InspectorCall(msgspec.Struct, frozen=True):
    """A collective, or one end of a point-to-point operation, on one rank.

    Attributes:
        number: of the collective in its communicator, the same on all ranks; -1 for point-to-point.
    """

    dump: InspectorDump
    kind: str
    number: int
    took_ns: int


@dataclass(slots=True)
class InspectorLog:
    """Content of one log.

    Attributes:
        collectives, transfers: records of collectives and of point-to-point operations.
        others: number of records of other kinds.
        absent: number of records that a dump announces and the log lacks.
        overwritten: number of collectives that were overwritten before a dump, by (communicator, rank).
    """

    collectives: list[InspectorCall] = field(default_factory=list)
    transfers: list[InspectorCall] = field(default_factory=list)
    others: int = 0
    absent: int = 0
    overwritten: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of entries that are kept in memory."""
        return len(self.collectives) + len(self.transfers) + len(self.overwritten)


def read_log(path: Path, left: int = MAX_RECORDS) -> InspectorLog:
    """Read one log.

    Args:
        left: number of records that the import may still keep.

    Raises:
        TraceError: a line is no record, is too long or belongs to no dump, or there are too many lines or
            records; with the line's number.
    """
    reader = _InspectorLogReader()
    number = size = 0
    try:
        with open_source(path) as file:
            while line := file.readline(MAX_LINE + 1):
                number += 1
                size += len(line)
                if len(line) > MAX_LINE or number > MAX_LINES or size > MAX_BYTES:
                    raise TraceError("is too long for an NCCL Inspector log", place=f"line {number}")
                if line.strip():
                    reader.read(line, f"line {number}")
                if reader.log.size > left:
                    raise TraceError(_TOO_MANY, place=f"line {number}")
    except UNREADABLE_JSON as error:
        raise _no_record(first_line(str(error)), f"line {number}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"cannot be read: {first_line(str(error))}", place=f"line {number}") from error
    reader.end_dump()
    return reader.log


class _InspectorLogReader:
    """State of reading one log: the last marker's dump and how many of its records are left."""

    def __init__(self) -> None:
        self.log = InspectorLog()
        self._decoder = msgspec.json.Decoder(_InspectorLine)
        self._names: dict[str, str] = {}
        self._marked: InspectorDump | None = None
        self._collectives_left = 0
        self._transfers_left = 0

    def read(self, text: bytes, place: str) -> None:
        """Read one line.

        Raises:
            TraceError: it belongs to no dump, or holds a value out of range.
            msgspec.DecodeError, UnicodeError, RecursionError: it is no record.
        """
        line = self._decoder.decode(text)
        own = self._own_dump(line, place)
        if line.dump_stats is not None:
            self._begin(own, line.dump_stats, place)
            return
        dump = own or self._marked
        if dump is None:
            raise _no_record(
                "neither the line nor a dump_stats line before it has header and metadata", place
            )
        if line.coll_perf is not None:
            self._collectives_left = self._counted(self._collectives_left, own, place)
            self._add_collective(dump, line.coll_perf, place)
        elif line.p2p_perf is not None:
            self._transfers_left = self._counted(self._transfers_left, own, place)
            transfer = line.p2p_perf
            took_ns = _took_ns(transfer.p2p_exec_time_us, place)
            self.log.transfers.append(InspectorCall(dump, self._once(transfer.p2p[:_MAX_ID]), NONE, took_ns))
        else:
            self.log.others += 1

    def end_dump(self) -> None:
        """End the last marker's dump: what it announced and did not follow is absent."""
        self.log.absent += self._collectives_left + self._transfers_left
        self._collectives_left = self._transfers_left = 0

    def _own_dump(self, line: _InspectorLine, place: str) -> InspectorDump | None:
        """Return the dump that a line itself states, None if it states none."""
        header, metadata = line.header, line.metadata
        if header is None and metadata is None:
            return None
        if header is None or metadata is None:
            raise _no_record("header and metadata belong together", place)
        if not 0 <= header.rank < header.n_ranks <= MAX_WORLD_SIZE:
            raise TraceError(f"rank {header.rank} of {header.n_ranks}", place=place)
        if not 0 <= metadata.dump_timestamp_us < 2**52:
            raise _out_of_range(place)
        if len(header.id) > _MAX_ID:
            raise TraceError(f"a communicator's id has more than {_MAX_ID} characters", place=place)
        host = self._once(metadata.hostname[:_MAX_ID])
        return InspectorDump(
            self._once(header.id), header.rank, header.n_ranks, host, metadata.dump_timestamp_us
        )

    def _begin(self, dump: InspectorDump | None, stats: _DumpStats, place: str) -> None:
        """Begin the dump of a marker."""
        if dump is None:
            raise _no_record("a dump_stats line needs header and metadata", place)
        counts = (stats.coll_records, stats.p2p_records, stats.coll_dropped_total)
        if not all(0 <= count < 2**62 for count in counts):
            raise _out_of_range(place)
        self.end_dump()
        self._marked = dump
        self._collectives_left, self._transfers_left = stats.coll_records, stats.p2p_records
        of_rank = (dump.communicator, dump.rank)
        lost = max(self.log.overwritten.get(of_rank, 0), stats.coll_dropped_total)
        if lost:
            self.log.overwritten[of_rank] = lost

    def _counted(self, left: int, own: InspectorDump | None, place: str) -> int:
        """Return how many records of a kind are left in the dump after one more.

        Raises:
            TraceError: the dump has no more of them, so the record belongs to another one, whose marker is
                missing.
        """
        if left == 0 and own is None:
            raise TraceError("follows more records than its dump_stats line announces", place=place)
        return max(left - 1, 0)

    def _add_collective(self, dump: InspectorDump, call: _Collective, place: str) -> None:
        if not 0 <= call.coll_sn < 2**62:
            raise _out_of_range(place)
        took_ns = _took_ns(call.coll_exec_time_us, place)
        kind = self._once(call.coll[:_MAX_ID])
        self.log.collectives.append(InspectorCall(dump, kind, call.coll_sn, took_ns))

    def _once(self, name: str) -> str:
        """Return the same object for equal names, which many records share."""
        if len(self._names) >= _MOST_NAMES:
            self._names.clear()
        return self._names.setdefault(name, name)


def _took_ns(took_us: float, place: str) -> int:
    if not 0 <= took_us < _LONGEST_US:
        raise _out_of_range(place)
    return round(took_us * 1000)


def _no_record(why: str, place: str) -> TraceError:
    return TraceError(f"is not an NCCL Inspector record (one JSON object per line): {why}", place=place)


def _out_of_range(place: str) -> TraceError:
    return TraceError("a time, count or sequence number is out of range", place=place)
