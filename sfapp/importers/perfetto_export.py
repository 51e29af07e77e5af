"""Export a window's operator events for Perfetto, as an archive that ui.perfetto.dev opens.

The archive holds Chrome JSON, one file per rank, and a manifest that assigns each file to its node
(perfetto.dev/docs/reference/perfetto-manifest). Viewers without support for archives can open the files one
by one: all times count from the same origin.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sfapp.errors import TraceError
from sfapp.model import CATEGORIES, Operators, RankTable
from sfapp.model.operators import NONE
from sfapp.packets.write import write_whole

MANIFEST = "perfetto_manifest.json"
_MANIFEST_VERSION = 1

_STEPS_THREAD = 0
"""Thread id of the track that shows each rank's steps, above its threads and streams."""


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


def write_perfetto(operators: Operators, ranks: RankTable, path: Path, note: str = "") -> int:
    """Write the archive of ``perfetto_archive`` and return its size in bytes.

    Raises:
        TraceError: as ``perfetto_archive``.
        PacketError: the file cannot be written.
    """
    return write_whole(path, perfetto_archive(operators, ranks, note))


def perfetto_archive(operators: Operators, ranks: RankTable, note: str = "") -> bytes:
    """Return the events as one archive.

    Args:
        ranks: identities of the ranks.
        note: limitations of the events, stored in the files.

    Raises:
        TraceError: there are no events.
    """
    if not len(operators):
        raise TraceError("there are no events to write for Perfetto")
    origin_ns = int(operators.start_ns_E.min())
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, json.dumps(_manifest(operators.ranks, ranks)))
        for rank in operators.ranks:
            with archive.open(_file_of(rank), "w") as file:
                for line in _lines(operators.of_rank(rank), rank, origin_ns, note):
                    file.write(line.encode())
    return content.getvalue()


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


def _lines(operators: Operators, rank: int, origin_ns: int, note: str) -> Iterator[str]:
    """Yield the lines of one rank's file."""
    head = {"displayTimeUnit": "ns", "baseTimeNanoseconds": origin_ns, "note": note}
    yield json.dumps(head)[:-1] + ', "traceEvents": [\n'
    separator = ""
    for event in _events(operators, rank, origin_ns):
        yield separator + json.dumps(event)
        separator = ",\n"
    yield "\n]}\n"


def _events(operators: Operators, rank: int, origin_ns: int) -> Iterator[dict[str, Any]]:
    lanes = np.unique(operators.lane_E).tolist()
    yield _named(rank, _STEPS_THREAD, "process_name", f"rank {rank}")
    yield _named(rank, _STEPS_THREAD, "process_sort_index", rank)
    yield _named(rank, _STEPS_THREAD, "thread_name", "steps")
    for lane in lanes:
        yield _named(rank, lane + 1, "thread_name", operators.lanes[lane].name)
        yield _named(rank, lane + 1, "thread_sort_index", lane + 1)
    yield from _steps(operators, rank, origin_ns)
    arrows = _arrows(operators, rank)
    for event in range(len(operators)):
        lane = int(operators.lane_E[event])
        at = {
            "pid": rank,
            "tid": lane + 1,
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
    for step in operators.steps:
        of_step = operators.of_step(step)
        begin, end = int(of_step.start_ns_E.min()), int(of_step.end_ns_E.max())
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
