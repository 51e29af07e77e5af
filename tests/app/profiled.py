"""A job that was profiled, imported: rank 5 of eight waits 60 ms longer for data in each of six steps."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from benchmarks.kineto_job import Shape, write_job
from sfapp.importers import ImportOptions, read_traces, write_imported

PROFILED = "profiled"
"""The run."""

LONG_NAMES = "long-names"
WINDOW = f"/w/{PROFILED}/0"
SHAPE = Shape(steps=6, layers=4)
STEP = 8
"""In this step kernels of rank 2 take 1 ms longer as well, for which nothing waits."""


def put_profiled(root: Path, folder: Path) -> None:
    """Write its packet below ``root``, with its operator events beside it.

    Args:
        folder: for the traces.
    """
    traces = write_job(folder / PROFILED, SHAPE)
    _lengthen(traces[2])
    written = write_imported(read_traces("kineto", [folder / PROFILED], ImportOptions()), root)
    assert not written.refused


def put_long_names(root: Path, folder: Path) -> None:
    """Write a packet of the run ``LONG_NAMES`` below ``root``: long names of operators, without spaces."""
    traces = write_job(folder / LONG_NAMES, SHAPE)
    for trace in traces:
        document = json.loads(gzip.decompress(trace.read_bytes()))
        for event in document["traceEvents"]:
            if event.get("cat") in ("kernel", "cpu_op", "python_function"):
                event["name"] += "_" + "GemmUniversalWithBroadcast" * 6
        trace.write_bytes(gzip.compress(json.dumps(document).encode()))
    written = write_imported(read_traces("kineto", [folder / LONG_NAMES], ImportOptions()), root)
    assert not written.refused


def _lengthen(trace: Path) -> None:
    """Let the forward kernels of one step take longer."""
    document = json.loads(gzip.decompress(trace.read_bytes()))
    kernels = [event for event in document["traceEvents"] if event.get("name", "").startswith("void cutlass")]
    first = 2 * SHAPE.layers * (STEP - 5)
    for kernel in kernels[first : first + SHAPE.layers]:
        kernel["dur"] += 1_000
    trace.write_bytes(gzip.compress(json.dumps(document).encode()))
