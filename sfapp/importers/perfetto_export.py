"""Export a window's operator events for Perfetto, as an archive that ui.perfetto.dev opens.

The archive holds Chrome JSON, one file per rank, and a manifest that assigns each file to its node
(perfetto.dev/docs/reference/perfetto-manifest). Viewers without support for archives can open the files one
by one: all times count from the same origin.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import RawIOBase
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sfapp.errors import TraceError
from sfapp.model import CATEGORIES, Operators, RankTable
from sfapp.model.operators import COLUMNS, NONE
from sfapp.packets.write import write_output

MANIFEST = "perfetto_manifest.json"
_MANIFEST_VERSION = 1

_STEPS_THREAD = 0
"""Thread id of the track that shows each rank's steps, above its threads and streams."""

MAX_RANKS = 2_048
MAX_EVENTS = 1_000_000
"""Maximum ranks and events of an archive from the app: 60 s of work, and the limit of ui.perfetto.dev's
memory."""


_CHUNK = 1 << 17
"""Bytes of an archive after which a part is returned, so that a disconnect stops the work soon."""


def slice_of(operators: Operators, steps: Sequence[int] = (), ranks: Sequence[int] = ()) -> Operators:
    """Return the events of some steps and ranks; all of them by default.

    Raises:
        TraceError: there are no such events.
    """
    kept = operators.select(_within(operators.step_E, steps) & _within(operators.rank_E, ranks))
    if not len(kept):
        raise TraceError(
            f"no events of these steps and ranks: the window has steps {_span(operators.steps)} "
            f"of ranks {_span(operators.ranks)}"
        )
    return kept


def is_within_limits(ranks: int, events: int) -> bool:
    """Return whether an archive is within the limits of the app."""
    return ranks <= MAX_RANKS and events <= MAX_EVENTS


def check_size(ranks: int, events: int) -> None:
    """Check that an archive is within the limits of the app.

    Raises:
        TraceError: it is larger.
    """
    if not is_within_limits(ranks, events):
        raise TraceError(
            f"{events:,} events of {ranks:,} ranks are too many for one archive, which holds up to "
            f"{MAX_EVENTS:,} of {MAX_RANKS:,}: choose some with ranks=3,5 and step=12, or write a file with "
            "`sfapp export perfetto`"
        )


def write_perfetto(operators: Operators, ranks: RankTable, path: Path, note: str = "") -> int:
    """Write the archive of ``perfetto_chunks`` and return its size in bytes.

    Raises:
        TraceError: as ``perfetto_chunks``.
        PacketError: the file cannot be written.
    """
    return write_output(path, b"".join(perfetto_chunks(operators, ranks, note)))


def perfetto_chunks(operators: Operators, ranks: RankTable, note: str = "") -> Iterator[bytes]:
    """Return the events as one archive, in parts that are created on demand, one per rank.

    Args:
        ranks: identities of the ranks.
        note: limitations of the events, stored in the files.

    Raises:
        TraceError: there are no events.
    """
    if not len(operators):
        raise TraceError("there are no events to write for Perfetto")
    return _chunks(operators, ranks, note)


def _chunks(operators: Operators, ranks: RankTable, note: str) -> Iterator[bytes]:
    origin_ns = int(operators.start_ns_E.min())
    written = _Written()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, json.dumps(_manifest(operators.ranks, ranks)))
        for rank, events, threads in _by_rank(operators):
            with archive.open(_file_of(rank), "w") as file:
                for line in _lines(events, rank, origin_ns, note, threads):
                    file.write(line.encode())
                    if len(written) >= _CHUNK:
                        yield written.take()
            yield written.take()
    yield written.take()


class _Written(RawIOBase):
    """File without seeking whose content is taken out as it is written."""

    def __init__(self) -> None:
        super().__init__()
        self._content = bytearray()

    def __len__(self) -> int:
        return len(self._content)

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._content += content
        return len(content)

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        content = bytes(self._content)
        self._content.clear()
        return content


def _by_rank(operators: Operators) -> Iterator[tuple[int, Operators, Sequence[int]]]:
    """Yield each rank, its events without other ranks' lanes, and the thread number of each lane."""
    rank_E = operators.rank_E
    bounds = [0, *(np.flatnonzero(np.diff(rank_E)) + 1).tolist(), len(rank_E)]
    for begin, end in pairwise(bounds):
        lanes, lane_E = np.unique(operators.lane_E[begin:end], return_inverse=True)
        columns = {column: getattr(operators, column)[begin:end] for column in COLUMNS}
        columns["lane_E"] = lane_E.astype(np.int32)
        own = tuple(operators.lanes[lane] for lane in lanes)
        yield int(rank_E[begin]), replace(operators, lanes=own, **columns), (lanes + 1).tolist()


def _within(values_E: npt.NDArray[np.int64], asked: Sequence[int]) -> npt.NDArray[np.bool_]:
    return np.isin(values_E, asked) if asked else np.ones(len(values_E), np.bool_)


def _span(numbers: Sequence[int]) -> str:
    """Return ``4–9`` for ascending numbers, some of which may be missing."""
    return "none" if not numbers else str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"


def _file_of(rank: int) -> str:
    return f"rank{rank:05d}.json"


def _manifest(shown: tuple[int, ...], ranks: RankTable) -> dict[str, Any]:
    """Return the manifest: the machine of each file, and one clock for all (Chrome JSON names no clock)."""
    places = {rank: place for place, rank in enumerate(ranks.rank)}
    files = []
    for rank in shown:
        place = places.get(rank)
        machine = (
            "?" if place is None else f"node {ranks.node_rank[place]} ({ranks.hostname[place] or 'unnamed'})"
        )
        files.append({"path": _file_of(rank), "machine": {"name": machine}})
    return {
        "perfetto_manifest": {
            "version": _MANIFEST_VERSION,
            "trace_time_clock": "BOOTTIME",
            "files": files,
        }
    }


def _lines(
    operators: Operators, rank: int, origin_ns: int, note: str, threads: Sequence[int]
) -> Iterator[str]:
    """Yield the lines of one rank's file."""
    head = {"displayTimeUnit": "ns", "baseTimeNanoseconds": origin_ns, "note": note}
    yield json.dumps(head)[:-1] + ', "traceEvents": [\n'
    separator = ""
    for event in _events(operators, rank, origin_ns, threads):
        yield separator + json.dumps(event)
        separator = ",\n"
    yield "\n]}\n"


def _events(
    operators: Operators, rank: int, origin_ns: int, threads: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Yield one rank's events; ``threads`` has the thread number of each lane."""
    yield _named(rank, _STEPS_THREAD, "process_name", f"rank {rank}")
    yield _named(rank, _STEPS_THREAD, "process_sort_index", rank)
    yield _named(rank, _STEPS_THREAD, "thread_name", "steps")
    for track, thread in zip(operators.lanes, threads, strict=True):
        yield _named(rank, thread, "thread_name", track.name)
        yield _named(rank, thread, "thread_sort_index", thread)
    yield from _steps(operators, rank, origin_ns)
    arrows = _arrows(operators, rank)
    for event in range(len(operators)):
        lane = int(operators.lane_E[event])
        at = {
            "pid": rank,
            "tid": threads[lane],
            "ts": _us(operators.start_ns_E[event] - origin_ns),
            "cat": CATEGORIES[operators.category_E[event]],
        }
        yield at | {
            "ph": "X",
            "name": operators.name(event),
            "dur": _us(operators.end_ns_E[event] - operators.start_ns_E[event]),
            "args": _details(operators, event),
        }
        tie = int(operators.correlation_E[event])
        if tie in arrows:  # from the launch to what it put on the device
            end = {"ph": "f", "bp": "e"} if operators.lanes[lane].is_device else {"ph": "s"}
            yield at | end | {"name": "launch", "cat": "launch", "id": arrows[tie]}


def _steps(operators: Operators, rank: int, origin_ns: int) -> Iterator[dict[str, Any]]:
    # Sorted once, because a window may have as many steps as events.
    known = operators.step_E != NONE
    order = np.argsort(operators.step_E[known], kind="stable")
    steps, firsts = np.unique(operators.step_E[known][order], return_index=True)
    begins = np.minimum.reduceat(operators.start_ns_E[known][order], firsts)
    ends = np.maximum.reduceat(operators.end_ns_E[known][order], firsts)
    for step, begin, end in zip(steps.tolist(), begins.tolist(), ends.tolist(), strict=True):
        yield {
            "ph": "X",
            "pid": rank,
            "tid": _STEPS_THREAD,
            "ts": _us(begin - origin_ns),
            "dur": _us(end - begin),
            "name": f"step {step}",
            "cat": "step",
        }


def _arrows(operators: Operators, rank: int) -> dict[int, int]:
    """Return a unique number for each correlation of a launch with a device event.

    Ranks use the same correlation numbers and a viewer merges all files, so the rank is part of the number.
    """
    on_device = operators.is_device_E
    ties = operators.correlation_E
    known = ties != NONE
    both = np.intersect1d(ties[known & on_device], ties[known & ~on_device])
    return {tie: (rank << 32) + place for place, tie in enumerate(both.tolist())}


def _details(operators: Operators, event: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (step := int(operators.step_E[event])) != NONE:
        found["step"] = step
    if (group := int(operators.group_E[event])) != NONE:
        found["group"] = operators.groups[group]
    if (sequence := int(operators.sequence_E[event])) != NONE:
        found["sequence"] = sequence
    return found


def _named(rank: int, thread: int, what: str, value: str | int) -> dict[str, Any]:
    """Return a metadata event with the name or position of a track."""
    kind = "sort_index" if what.endswith("sort_index") else "name"
    return {"ph": "M", "pid": rank, "tid": thread, "name": what, "args": {kind: value}}


def _us(ns: Any) -> float:
    return int(ns) / 1_000
