"""Measure the import of other tools' traces against Holistic Trace Analysis on the same files, and judge
traces with known faults.

    python -m benchmarks.traces [--huge] [--out docs/evidence]

Eight ranks, about 113 MB of JSON, compressed like the profiler's own files. Each tool runs in a separate
process; libraries are imported before the clock starts. sfapp reads, derives stages and writes packets and
operator events; Holistic Trace Analysis only loads (``TraceAnalysis``). Memory is the peak of a tool's
processes together, including libraries, with shared memory counted once. If Holistic Trace Analysis cannot be
installed, its lines are left out. With ``--huge``, files of 5 GB are read too. With ``--out``, the page
traces.md is written: these bars, KAIR's, and the verdict on every real trace below ``SFAPP_TRACES``.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import huge_trace, kair, trace_page, trace_verdicts
from benchmarks.costs import HTA, IMPORT, LOAD, cost, holistic, stragglers
from benchmarks.harness import HEADER, Result
from benchmarks.kineto_job import Shape, write_job
from benchmarks.machine import OtherPrograms
from sfapp.accounting import diagnose
from sfapp.importers import ImportOptions, read_traces
from sfapp.importers.straggler_operations import read_table
from sfapp.importers.straggler_replay import what_if
from sfapp.model.stages import DATA
from sfapp.operators import agreement, examine

RUNS = 3
SHAPE = Shape(steps=20, layers=288)
LATE_US = (10_000.0, 20_000.0, 40_000.0, 60_000.0)


def run() -> Iterator[Result]:
    """Yield every bar except those of files of 5 GB."""
    return results([])


def results(remarks: list[str]) -> Iterator[Result]:
    """Yield every bar; append sentences on the yardstick to ``remarks``."""
    yield from importing(remarks)
    yield from verdicts()
    yield from published()


def importing(remarks: list[str]) -> Iterator[Result]:
    """Yield wall time and memory of both tools, and the memory for four times the text."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        files = write_job(root / "traces", SHAPE)
        padded = Shape(steps=SHAPE.steps, layers=SHAPE.layers, padding=2_200)
        write_job(root / "padded", padded)
        print(f"{len(files)} ranks, {_expanded(files) / 1e6:.0f} MB of JSON", file=sys.stderr)
        other = holistic(root)
        ours, theirs = [], []
        for _ in range(RUNS):
            ours.append(cost(sys.executable, IMPORT, root / "traces", root / "packets"))
            if other is not None:
                theirs.append(cost(other, LOAD, root / "traces", root))
        seconds, memory = _medians(ours)
        larger = cost(sys.executable, IMPORT, root / "padded", root / "of-padded")[1]
        if other is not None:
            answer = stragglers(other, root / "traces")
            remarks.append(f"The straggler analysis of {HTA} on the generated job returns: `{answer}`.")
    if theirs:
        their_seconds, their_memory = _medians(theirs)
        yield Result("Kineto import against HTA's load, wall", seconds, 1 / 5, yardstick=their_seconds)
        yield Result("Kineto import against HTA's load, memory", memory, 1 / 2, "B", their_memory)
    else:
        remarks.append(f"{HTA} could not be installed: its lines are left out.")
        yield Result("Kineto import, 8 ranks, 113 MB of JSON", seconds, 10.0)
    yield Result("memory of the same events in four times the text", larger, 1.1, "B", memory)


def verdicts() -> Iterator[Result]:
    """Yield the result for generated jobs in which rank 5 waits longer for data: wrong verdicts."""
    wrong = 0
    for late_us in LATE_US:
        with tempfile.TemporaryDirectory() as folder:
            write_job(Path(folder), Shape(late_us=late_us))
            (found,) = read_traces("kineto", [Path(folder)], ImportOptions()).windows
        diagnosis = diagnose(found.window)
        assert found.operators is not None
        agreed = agreement(diagnosis, examine(found.operators), found.window)
        aim, cause = diagnosis.aim, agreed.cause
        wrong += not (
            aim is not None
            and (aim.stage, aim.rank) == (DATA, 5)
            and cause is not None
            and (cause.nature, cause.rank) == ("input", 5)
            and agreed.kind == "agree"
        )
    name = f"8 ranks, rank 5 late in data: another verdict, of {len(LATE_US)} jobs"
    yield Result(name, 100 * wrong / len(LATE_US), 0.0, "%")


def published() -> Iterator[Result]:
    """Yield the distance of our replay from the published slowdowns of StragglerAnalysis' samples."""
    folder = trace_verdicts.folder_of_traces() / "ops" / "straggler_analysis"
    for path in sorted(folder.glob("result-*.json")):
        sample = path.stem.removeprefix("result-")
        expected = json.loads(path.read_text(encoding="utf-8"))
        found = what_if(read_table(folder / f"trace-{sample}.parquet"))
        pairs = [(found.slowdown, expected["blocking_slowdown"])]
        pairs += [(found.step_s / found.replayed_s, expected["launch_slowdown"])]
        for part, ours in (("dp_rank", found.by_replica), ("stage", found.by_stage)):
            theirs = expected[f"blocking_decompose_by_{part}"]
            pairs += [(value, theirs[str(key)]) for key, value in ours.items()]
        apart = max(abs(ours / theirs - 1) for ours, theirs in pairs)
        yield Result(f"StragglerAnalysis {sample}: farthest of {len(pairs)} slowdowns", 100 * apart, 1.0, "%")


def _medians(samples: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(each[0] for each in samples), statistics.median(each[1] for each in samples)


def _expanded(files: Sequence[Path]) -> int:
    total = 0
    for path in files:
        with gzip.open(path) as file:
            while chunk := file.read(2**22):
                total += len(chunk)
    return total


def main() -> int:
    """Run the measurements; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--huge", action="store_true", help="read files of 5 GB too (5 minutes, 11 GB of disk)"
    )
    parser.add_argument("--out", type=Path, help="folder for traces.md")
    options = parser.parse_args()
    others = OtherPrograms()
    remarks: list[str] = []
    bars: list[str] = []
    missed = 0
    print(HEADER)
    for result in itertools.chain(results(remarks), kair.run(), huge_trace.run() if options.huge else ()):
        bars.append(result.line())
        print(bars[-1], flush=True)
        missed += not result.holds
    if options.out is not None:
        command = "python -m benchmarks.traces" + " --huge" * options.huge + f" --out {options.out}"
        rows = trace_verdicts.rows(trace_verdicts.folder_of_traces())
        text = trace_page.page(command, [HEADER, *bars], remarks, rows, others.share())
        (options.out / "traces.md").write_text(text, encoding="utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
