"""What importing a Kineto trace costs, beside Holistic Trace Analysis loading the same files.

Eight ranks, about 113 MB of JSON, packed as the profiler's handler packs it. Each tool runs in a process of
its own; libraries are imported before the clock starts. Ours reads, derives stages and writes packets and
operator events; Holistic Trace Analysis loads (``TraceAnalysis``). Memory is the largest sum over a tool's
processes, libraries included, pages that they share counted once. Its dependencies do not fit beside ours,
so it gets an environment of its own; where that cannot be made, its lines are left out.
"""

from __future__ import annotations

import contextlib
import gzip
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from benchmarks.harness import Result
from benchmarks.kineto_job import Shape, write_job

RUNS = 3
SHAPE = Shape(steps=20, layers=288)
HTA = "HolisticTraceAnalysis==0.5.0"

_MEASURED = """
import sys, time
{imports}
begin = time.perf_counter()
{call}
sys.stdout.write("\\n" + repr(time.perf_counter() - begin))
"""
_OURS = _MEASURED.format(
    imports="from pathlib import Path\nimport sfapp.traces.kineto\nfrom sfapp.traces import *",
    call="found = read_traces('kineto', [Path(sys.argv[1])], Options())\n"
    "assert write_imported(found, Path(sys.argv[2])).packets and not found.refused",
)
_HTA = _MEASURED.format(
    imports="from hta.trace_analysis import TraceAnalysis",
    call="assert len(TraceAnalysis(trace_dir=sys.argv[1]).t.traces) == 8",
)


def run() -> Iterator[Result]:
    """Wall time and memory of both, and what four times the text costs in memory."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        files = write_job(root / "traces", SHAPE)
        padded = Shape(steps=SHAPE.steps, layers=SHAPE.layers, padding=2_200)
        write_job(root / "padded", padded)
        print(f"{len(files)} ranks, {_expanded(files) / 1e6:.0f} MB of JSON", file=sys.stderr)
        other = _holistic(root)
        ours, theirs = [], []
        for _ in range(RUNS):
            ours.append(_measured(sys.executable, _OURS, root / "traces", root / "packets"))
            if other is not None:
                theirs.append(_measured(other, _HTA, root / "traces", root))
        seconds, memory = _medians(ours)
        larger = _measured(sys.executable, _OURS, root / "padded", root / "packets")[1]
    if theirs:
        their_seconds, their_memory = _medians(theirs)
        yield Result("Kineto import against HTA's load, wall", seconds, 1 / 5, yardstick=their_seconds)
        yield Result("Kineto import against HTA's load, memory", memory, 1 / 2, "B", their_memory)
    else:
        yield Result("Kineto import, 8 ranks, 113 MB of JSON", seconds, 10.0)
    yield Result("memory of the same events in four times the text", larger, 1.1, "B", memory)


def _medians(samples: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(each[0] for each in samples), statistics.median(each[1] for each in samples)


def _expanded(files: Sequence[Path]) -> int:
    total = 0
    for path in files:
        with gzip.open(path) as file:
            while chunk := file.read(2**22):
                total += len(chunk)
    return total


def _measured(python: str, code: str, *arguments: Path) -> tuple[float, float]:
    """Seconds and bytes of one run."""
    with tempfile.TemporaryFile("w+") as said:
        running = subprocess.Popen([python, "-c", code, *arguments], stdout=said, stderr=subprocess.DEVNULL)
        largest = 0
        while running.poll() is None:
            largest = max(largest, _bytes_of(running.pid))
            time.sleep(0.02)
        said.seek(0)
        if running.returncode:
            raise subprocess.CalledProcessError(running.returncode, code)
        return float(said.read().rsplit("\n", 1)[1]), float(largest)


def _bytes_of(pid: int) -> int:
    """What a process and those that it started hold in memory."""
    total = 0
    with contextlib.suppress(psutil.Error):  # it may end while it is looked at
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += each.memory_full_info().pss
    return total


def _holistic(root: Path) -> str | None:
    """The interpreter of an environment with Holistic Trace Analysis, None where it cannot be had."""
    venv.create(root / "hta", with_pip=True, symlinks=True)
    python = str(root / "hta" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", HTA, "pandas<3"]
    if subprocess.run(install, capture_output=True, check=False).returncode:
        print(f"left out: {HTA} cannot be installed", file=sys.stderr)
        return None
    return python
