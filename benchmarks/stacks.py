"""Measure stacks: a rank's stacks, and those of 64 ranks read from their files and merged."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.harness import Result, side_by_side
from sfapp.model.stacks import RankStacks, StackFrame, ThreadStack
from sfapp.operators.stacks import merge_stacks
from sfapp.packets.captures import new_stacks_request
from sfapp.packets.stack_files import encode_stacks, read_stacks, write_file
from sfapp.views.text.stacks import stack_lines

RANKS, THREADS, FRAMES = 64, 24, 40


def run() -> Iterator[Result]:
    """Yield the time for reading and merging (bar: 2 s), with all threads and all stacks different."""
    request = new_stacks_request("run", range(RANKS))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for rank in range(RANKS):
            write_file(root, request, "stacks", rank, encode_stacks(_stacks(rank)))

        def merge() -> None:
            merged = merge_stacks(read_stacks(root, request), all_threads=True)
            assert len(list(stack_lines(merged, ()))) > RANKS

        (seconds,) = side_by_side(merge, runs=5)
    yield Result(f"stacks of {RANKS} ranks × {THREADS} threads read and merged", seconds, 2.0)


def _stacks(rank: int) -> RankStacks:
    """Return stacks in which the training threads of all ranks differ in their innermost line."""
    outer = tuple(
        StackFrame(f"/job/package/module_{at}.py", f"function_{at}", at) for at in range(FRAMES - 1)
    )
    training = ThreadStack("MainThread", (StackFrame("/job/train.py", "step", rank), *outer), True)
    others = [replace(training, name=f"worker-{at}", is_training=False) for at in range(THREADS - 1)]
    return RankStacks(
        rank=rank,
        taken_at=datetime.now(UTC),
        source="interpreter",
        process=threading.get_native_id(),
        threads=(training, *others),
    )
