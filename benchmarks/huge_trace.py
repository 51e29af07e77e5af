"""Measure the memory for Kineto files of 5 GB, made by repetition, with skipped and with kept events."""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from benchmarks.costs import IMPORT, cost
from benchmarks.harness import Result
from benchmarks.kineto_job import Shape, write_job

SIZE = 5_000_000_000
SHAPE = Shape(ranks=1, steps=20, layers=288)
_PART = 2**26

BYTES_AN_EVENT = 400.0
"""Our own bar: the numbers of an event take some 60 bytes; the rest is needed to sort and write them."""


def run(size: int = SIZE) -> Iterator[Result]:
    """Yield the memory compared with a small file of the same events, and per event if all are kept."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (small,) = write_job(root / "small", SHAPE, packed=False)
        lines = small.read_bytes().splitlines(keepends=True)
        alone = cost(sys.executable, IMPORT, small.parent, root / "of-small")[1]
        stacks = _packed(root, lines, size)
        seconds, memory = cost(sys.executable, IMPORT, stacks.parent, root / "of-stacks")
        name = f"{size / 1e9:g} GB of JSON, packed"
        print(f"{name}: {seconds:.0f} s", file=sys.stderr)
        yield Result(f"{name}, most of it Python's call stacks", memory, 1.1, "B", alone)
        stacks.unlink()
        usual, events = _plain(root, lines, size)
        seconds, memory = cost(sys.executable, IMPORT, usual.parent, root / "of-usual")
        name = f"{size / 1e9:g} GB of JSON, {events / 1e6:.1f} million events kept"
        print(f"{name}: {seconds:.0f} s", file=sys.stderr)
        yield Result(f"{name}: of each", (memory - alone) / events, BYTES_AN_EVENT, "B")


def _packed(root: Path, lines: Sequence[bytes], size: int) -> Path:
    """Write the file with many repeated Python stack frames after its events, as one packed part,
    repeated."""
    frame: dict[str, object] = {
        "ph": "X",
        "cat": "python_function",
        "name": "torch/nn/modules/module.py(1532): _call_impl",
    }
    frame |= {"pid": 1, "tid": 1, "ts": 1_000.5, "dur": 12.25, "args": {"Python id": 1, "Ev Idx": 1}}
    line = b",\n  " + json.dumps(frame).encode()
    part = gzip.compress(line * (_PART // len(line)), compresslevel=1)
    path = root / "stacks" / "rank0.json.gz"
    path.parent.mkdir()
    end = _end_of_events(lines)
    with path.open("wb") as file:
        file.write(gzip.compress(b"".join(lines[:end])))
        for _ in range(size // _PART):
            file.write(part)
        file.write(gzip.compress(b"".join(lines[end:])))
    return path


def _plain(root: Path, lines: Sequence[bytes], size: int) -> tuple[Path, int]:
    """Write the file with its events repeated, and return the number of kept events."""
    begin = next(place for place, line in enumerate(lines) if b'"traceEvents"' in line) + 1
    end = _end_of_events(lines)
    body = b"".join(lines[begin:end])
    times = size // len(body)
    path = root / "usual" / "rank0.json"
    path.parent.mkdir()
    with path.open("wb") as file:
        file.write(b"".join(lines[:begin]))
        _repeat(file, body, times)
        file.write(b"".join(lines[end:]))
    return path, times * body.count(b'"ph": "X"')


def _repeat(file: IO[bytes], body: bytes, times: int) -> None:
    for number in range(times):
        file.write(body if number == 0 else b"," + body)


def _end_of_events(lines: Sequence[bytes]) -> int:
    return next(place for place, line in enumerate(lines) if line.strip() == b"],")
