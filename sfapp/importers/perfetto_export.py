"""A window's operator events for Perfetto: Chrome JSON, one file a rank, and a manifest that puts each on its
node, in one archive that ui.perfetto.dev opens (perfetto.dev/docs/reference/perfetto-manifest).

Viewers that know no archives open the ranks' files one by one: all count from the same moment.
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
"""Of each rank, above its threads and streams: which step events belong to."""


def slice_of(operators: Operators, steps: Sequence[int] = (), ranks: Sequence[int] = ()) -> Operators:
    """The events of some steps and ranks, of all of them where none are named.

    Raises:
        TraceError: there are none of these.
    """
    kept = operators.select(_within(operators.step_E, steps) & _within(operators.rank_E, ranks))
    if not len(kept):
        raise TraceError(
            f"no events of these steps and ranks: the window has steps {_told(operators.steps)} "
            f"of ranks {_told(operators.ranks)}"
        )
    return kept


def write_perfetto(operators: Operators, ranks: RankTable, path: Path, note: str = "") -> int:
    """Write events as ``perfetto_archive`` makes them; returns the file's size in bytes.

    Raises:
        TraceError: as ``perfetto_archive``.
        PacketError: the file cannot be written.
    """
    return write_whole(path, perfetto_archive(operators, ranks, note))


def perfetto_archive(operators: Operators, ranks: RankTable, note: str = "") -> bytes:
    """Events of some ranks and steps as one archive.

    Args:
        ranks: where the ranks run.
        note: what the events cannot tell, for whoever looks at them.

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


def _told(numbers: Sequence[int]) -> str:
    """``4–9``; ascending numbers between which some may be missing."""
    return "none" if not numbers else str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"


def _file_of(rank: int) -> str:
    return f"rank{rank:05d}.json"


def _manifest(shown: tuple[int, ...], ranks: RankTable) -> dict[str, Any]:
    """Which machine each file is of. Chrome's times have no clock: all are taken to be of the same one."""
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
    """One rank's file, event by event."""
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
    """A number for each tie that both a launch and something on a device have. Ranks tie with the same
    numbers, and a viewer puts all files together: these are no other rank's."""
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
    """What a track is called, or where it stands."""
    kind = "sort_index" if what.endswith("sort_index") else "name"
    return {"ph": "M", "pid": rank, "tid": thread, "name": what, "args": {kind: value}}


def _us(ns: Any) -> float:
    return int(ns) / 1_000
