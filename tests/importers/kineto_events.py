"""Kineto traces made from a few events, and what an import makes of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sfapp.importers import ImportOptions, ImportResult, Mapping, read_traces

MS = 1000.0  # µs, a trace's unit


MAIN = 100


def event(name: str, start: float, end: float, cat: str = "user_annotation", **more: Any) -> dict[str, Any]:
    """One event of thread 100 of process 100, between these milliseconds."""
    place = {"pid": MAIN, "tid": MAIN, "ts": start * MS, "dur": (end - start) * MS}
    return {"ph": "X", "cat": cat, "name": name} | place | more


def trace(path: Path, events: Sequence[dict[str, Any]], **header: Any) -> Path:
    content = json.dumps({"schemaVersion": 1, **header, "traceEvents": list(events)})
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content.encode()))
    else:
        path.write_text(content)
    return path


def of_rank(rank: int, world_size: int = 2) -> dict[str, Any]:
    return {"distributedInfo": {"rank": rank, "world_size": world_size, "backend": "gloo"}}


def imported(*paths: Path, **mapping: Any) -> ImportResult:
    return read_traces("kineto", paths, ImportOptions(mapping=Mapping(**mapping)))


def spent_ms(found: ImportResult, window: int = 0) -> dict[str, list[float]]:
    """Milliseconds of each stage in each step of the first rank."""
    each = found.windows[window].window
    return {
        stage: [round(ns / 1e6, 3) for ns in plane[:, 0].tolist()]
        for stage, plane in zip(each.stages, each.duration_SNR, strict=True)
    }


def notes_text(found: ImportResult, window: int = 0) -> str:
    return "\n".join(f"{note.kind}: {note}" for note in found.windows[window].notes)


NODE = "autograd::engine::evaluate_function: AddmmBackward0"


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


PLAIN_STEP = (
    event("ProfilerStep#3", 0, 100),
    event(LOADER, 0, 20),
    event("aten::linear", 22, 50, "cpu_op"),
    event(NODE, 50, 60, "cpu_op", tid=101),
    event(NODE, 65, 75, "cpu_op", tid=101),
    event("Optimizer.step#SGD.step", 85, 95),
)
