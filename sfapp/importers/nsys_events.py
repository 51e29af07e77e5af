"""Read the events of an Nsight Systems SQLite export by process. Missing tables are noted.

Tables with the environment, the command line and the machine's settings are not read, except for the host
name.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfapp.errors import TraceError
from sfapp.importers.import_result import ImportNote
from sfapp.importers.sqlite_reader import SqliteDatabase, open_database
from sfapp.model.operators import COLLECTIVE, COPY, HOST, KERNEL, NONE, OTHER, RUNTIME

PUSH_POP, START_END = 59, 60
"""NVTX event types that are ranges (ENUM_NSYS_EVENT_TYPE)."""

MAX_EVENTS = 2**23
"""Largest number of events read from one file; further tables are left out, with a note."""

MAX_CHARACTERS = 2**26
"""Maximum number of characters of names in one table."""

MAX_STRINGS = 2**22
"""Maximum number of names in the table of names."""

MAX_PROCESSES = 2**12
"""Maximum number of processes of one file; each takes about 2 kB."""

MAX_LANES = 2**16
"""Maximum number of threads and streams of all processes of one file."""

_NVTX, _STRINGS, _KERNELS = "NVTX_EVENTS", "StringIds", "CUPTI_ACTIVITY_KIND_KERNEL"
_RUNTIME, _COPIES, _FILLS = (
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
)
_SYSTEM_CALLS = "OSRT_API"
_SESSION, _SYSTEM = "TARGET_INFO_SESSION_START_TIME", "TARGET_INFO_SYSTEM_ENV"
_COPY_KINDS = {1: "host to device", 2: "device to host", 8: "device to device", 10: "peer to peer"}

# PyTorch's emit_nvtx adds what differs from call to call: "aten::add, seq = 12, op_id = 34".
_TORCH = re.compile(
    r"(?P<name>.+?)(?:, (?:seq = (?P<seq>\d{1,18})|op_id = \d+|sizes = .*|input_op_ids = .*)){1,4}\Z",
    re.DOTALL,
)
_COLLECTIVE = re.compile(r"(?:nccl|rccl)", re.IGNORECASE)


def _column() -> array[int]:
    return array("q")


@dataclass(slots=True)
class ProcessEvents:
    """Events of one process, as lists of columns; times in ns since the begin of the session."""

    names: dict[str, int]
    name: array[int] = field(default_factory=_column)
    category: array[int] = field(default_factory=_column)
    lane: array[int] = field(default_factory=_column)
    start: array[int] = field(default_factory=_column)
    end: array[int] = field(default_factory=_column)
    correlation: array[int] = field(default_factory=_column)
    sequence: array[int] = field(default_factory=_column)
    lanes: dict[tuple[str, bool], int] = field(default_factory=dict)
    ranged_lanes: dict[int, int] = field(default_factory=dict)
    devices: set[int] = field(default_factory=set)

    def add(
        self,
        name: str,
        category: int,
        lane: tuple[str, bool],
        start: int,
        end: int,
        correlation: int,
        seq: int,
    ) -> None:
        """Add one event."""
        self.name.append(self.names.setdefault(name, len(self.names)))
        self.category.append(category)
        self.lane.append(self.lanes.setdefault(lane, len(self.lanes)))
        self.start.append(start)
        self.end.append(end)
        self.correlation.append(correlation)
        self.sequence.append(seq)


@dataclass(slots=True)
class NsysExport:
    """Content of one file.

    Attributes:
        path: the file.
        processes: events by process, the key is ``globalTid`` without the thread.
        host: host name, empty if the export has none.
        began_ns: begin of the session, ns since 1970, None if the export has none.
        notes: notes on missing or skipped information.
    """

    path: Path
    processes: dict[int, ProcessEvents] = field(default_factory=dict)
    host: str = ""
    began_ns: int | None = None
    notes: list[ImportNote] = field(default_factory=list)
    bad: int = 0

    def of(self, global_id: int) -> ProcessEvents:
        """Return the process of a ``globalTid`` or ``globalPid``: bits 24 and up."""
        return self.processes.setdefault(global_id >> 24, ProcessEvents({}))


def read_export(path: Path, scratch: Path | None) -> NsysExport:
    """Read the events of one export.

    Args:
        scratch: folder for temporary files.

    Raises:
        TraceError: it is not an Nsight Systems export, is damaged, or has too many NVTX ranges.
    """
    export = NsysExport(path)
    with open_database(path, scratch) as found:
        if not {_NVTX, _KERNELS, _RUNTIME, "META_DATA_EXPORT", _STRINGS} & found.columns.keys():
            raise TraceError(
                "is not an Nsight Systems export: none of its tables is present. Create one with "
                "`nsys export --type sqlite report.nsys-rep`",
                path=str(path),
            )
        export.began_ns = _began(found)
        export.host = _host(found)
        strings = _strings(found)
        left = MAX_EVENTS
        for table, take in ((_NVTX, _take_ranges), (_RUNTIME, _take_calls), (_KERNELS, _take_kernels)):
            left = _take(export, found, table, take, strings, left)
        for table in (_COPIES, _FILLS):
            left = _take(export, found, table, _take_copies, strings, left)
        if not export.processes:
            _take(export, found, _SYSTEM_CALLS, _take_calls, strings, left)
    if export.bad:
        export.notes.append(
            ImportNote(
                "skipped", f"{export.bad:,} events without an end, or with an end before the start", path.name
            )
        )
    return export


Taker = Callable[[NsysExport, SqliteDatabase, str, dict[int, str]], None]


def _take(
    export: NsysExport, found: SqliteDatabase, table: str, take: Taker, strings: dict[int, str], left: int
) -> int:
    if table not in found.columns:
        export.notes.append(ImportNote("missing", f"no table {table}", export.path.name))
        return left
    count = found.count(table)
    if count > left:
        if table == _NVTX:
            raise TraceError(
                f"{count:,} rows, more than {MAX_EVENTS:,}: export fewer seconds (nsys export --times)",
                path=str(export.path),
                place=f"table {table}",
            )
        what = f"{count:,} rows of {table}: the total would exceed {MAX_EVENTS:,} events"
        export.notes.append(ImportNote("skipped", what, export.path.name))
        return left
    take(export, found, table, strings)
    return left - count


def _counted(export: NsysExport, found: SqliteDatabase, table: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield batches of rows of a table of events, while their processes and lanes are few.

    Raises:
        TraceError: there are too many of them.
    """
    for batch in batches:
        yield batch
        processes = export.processes.values()
        for count, most, what in (
            (len(processes), MAX_PROCESSES, "processes"),
            (sum(len(process.lanes) for process in processes), MAX_LANES, "threads and streams"),
        ):
            if count > most:
                raise TraceError(f"more than {most:,} {what}", path=str(found.path), place=f"table {table}")


def _began(found: SqliteDatabase) -> int | None:
    if _SESSION not in found.columns:
        return None
    for batch in found.rows(_SESSION, ["utcEpochNs"]):
        for (value,) in batch:
            return value if isinstance(value, int) else None
    return None


def _host(found: SqliteDatabase) -> str:
    """Return the host's name; the rest of that table is not read."""
    if _SYSTEM not in found.columns:
        return ""
    for batch in found.rows(_SYSTEM, ["value", "name"], where="WHERE name = 'Hostname'", texts=["value"]):
        for value, _ in batch:
            return value[:256] if isinstance(value, str) else ""
    return ""


def _strings(found: SqliteDatabase) -> dict[int, str]:
    strings: dict[int, str] = {}
    if _STRINGS in found.columns:
        kept = 0
        if (count := found.count(_STRINGS)) > MAX_STRINGS:
            raise TraceError(
                f"{count:,} rows, more than {MAX_STRINGS:,}", path=str(found.path), place=f"table {_STRINGS}"
            )
        for batch in found.rows(_STRINGS, ["id", "value"], texts=["value"]):
            mine = {key: value for key, value in batch if isinstance(value, str)}
            kept = _with_texts(kept, mine.values(), found, _STRINGS)
            strings |= mine
    return strings


def _with_texts(kept: int, more: Iterable[str], found: SqliteDatabase, table: str) -> int:
    """Return the number of characters of names, these included.

    Raises:
        TraceError: there are too many.
    """
    kept += sum(map(len, more))
    if kept > MAX_CHARACTERS:
        raise TraceError(
            f"more than {MAX_CHARACTERS:,} characters of names", path=str(found.path), place=f"table {table}"
        )
    return kept


def _is_span(export: NsysExport, start: object, end: object) -> bool:
    good = isinstance(start, int) and isinstance(end, int) and -(2**60) < start <= end < 2**60
    export.bad += not good
    return good


def _take_ranges(export: NsysExport, found: SqliteDatabase, table: str, strings: dict[int, str]) -> None:
    needed = ["start", "end", "eventType", "globalTid"]
    where = f"WHERE eventType IN ({PUSH_POP}, {START_END})"
    kept = 0
    for batch in _counted(
        export, found, table, found.rows(table, needed, ["text", "textId"], where, ["text"])
    ):
        kept = _with_texts(kept, {row[4] for row in batch if row[4] is not None}, found, table)
        for start, end, _, thread, text, text_id in batch:
            name = strings.get(text_id) if text is None else text
            if not isinstance(thread, int) or name is None or not _is_span(export, start, end):
                continue
            events = export.of(thread)
            seq = NONE
            if match := _TORCH.match(name):
                name, seq = match["name"], int(match["seq"] or NONE)
            category = COLLECTIVE if _COLLECTIVE.match(name) else HOST if "::" in name else OTHER
            events.add(name, category, (f"thread {thread & 0xFFFFFF}", False), start, end, NONE, seq)
            lane = events.lane[-1]
            events.ranged_lanes[lane] = events.ranged_lanes.get(lane, 0) + 1


def _take_calls(export: NsysExport, found: SqliteDatabase, table: str, strings: dict[int, str]) -> None:
    needed = ["start", "end", "globalTid", "nameId"]
    for batch in _counted(export, found, table, found.rows(table, needed, ["correlationId"])):
        for start, end, thread, name, correlation in batch:
            if isinstance(thread, int) and _is_span(export, start, end):
                lane = (f"thread {thread & 0xFFFFFF}", False)
                called = strings.get(name, "call")
                export.of(thread).add(called, RUNTIME, lane, start, end, _correlation(correlation), NONE)


def _take_kernels(export: NsysExport, found: SqliteDatabase, table: str, strings: dict[int, str]) -> None:
    optional = ["shortName", "demangledName", "streamId", "deviceId", "correlationId", "globalPid"]
    for batch in _counted(export, found, table, found.rows(table, ["start", "end"], optional)):
        for start, end, short, long, stream, device, correlation, process in batch:
            if _is_span(export, start, end):
                name = strings.get(short) or strings.get(long) or "kernel"
                category = COLLECTIVE if _COLLECTIVE.match(name) else KERNEL
                _on_device(export, process, device, stream, name, category, start, end, correlation)


def _take_copies(export: NsysExport, found: SqliteDatabase, table: str, strings: dict[int, str]) -> None:
    optional = ["copyKind", "streamId", "deviceId", "correlationId", "globalPid"]
    for batch in _counted(export, found, table, found.rows(table, ["start", "end"], optional)):
        for start, end, kind, stream, device, correlation, process in batch:
            if _is_span(export, start, end):
                name = "memset" if table == _FILLS else f"memcpy {_COPY_KINDS.get(kind, 'other')}"
                _on_device(export, process, device, stream, name, COPY, start, end, correlation)


def _on_device(
    export: NsysExport,
    process: object,
    device: object,
    stream: object,
    name: str,
    category: int,
    start: int,
    end: int,
    correlation: object,
) -> None:
    events = export.of(process if isinstance(process, int) else 0)
    if isinstance(device, int):
        events.devices.add(device)
    lane = (f"device {device} stream {stream}", True)
    events.add(name, category, lane, start, end, _correlation(correlation), NONE)


def _correlation(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else NONE
