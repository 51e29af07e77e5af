"""Measure the cost of the recorder to training. ``make bench-recorder``; an hour.

    python -m benchmarks.recorder [--out docs/evidence] [--quick] [--only sfapp:20]

Lost throughput is measured inside one job: short alternating blocks of steps with the recorder and without,
and a bootstrap over rounds of blocks. Several launches of the job share the rounds, because the memory layout
of a process affects its speed. Additional blocks without the recorder show the noise. Other tools are
measured on the same job. ``--quick`` is a functional check only; ``--only`` measures the jobs of one tool at
one step length.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sfapp
from benchmarks import machine, reduction
from benchmarks.harness import HEADER, Result
from benchmarks.hot_path import hot_path
from benchmarks.overhead import COLUMNS, TRIMMED, OverheadEstimate
from sfapp.recorder.timing.timer_backend import COMPILED_VARIABLE, IS_COMPILED

ROUNDS = 41
"""Repetitions for the timing of a single step."""

WINDOWS, BEFORE = 10_000, 4_000
"""Number of windows that must not add to a recorder's memory, and number recorded before. Python keeps up to
2,000 free tuples of every length: some 300 kB, reached after about 3,000 windows."""


ROW_NAMES = {"waits": "with waits", "host": "and host"}
"""Names of tools in the table that differ from the tool's own."""

HOW = {
    "stream": "streamed",
    "waits": "recorded with waits",
    "host": "with waits and host evidence",
}
"""Words for the mode of recording in a tool's bar; other tools only record."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One job: a tool and its blocks.

    Attributes:
        bar: maximum of the bound of lost throughput in percent, for the recorder.
        launches: number of launches of the job.
        rounds: number of rounds in all launches; each has equally many steps of every kind.
        groups: number of blocks of each kind in a round.
        steps: number of steps in a block.
        real_time: whether the job's threads have a real-time policy, or the kernel's usual one.
        compiled: whether the recorder may time steps in C, if it was built with a compiler.
    """

    tool: str
    step_ms: float
    bar: float | None
    launches: int
    rounds: int
    groups: int
    steps: int
    real_time: bool = True
    compiled: bool = True

    @property
    def choice(self) -> str:
        """Name for ``--only``."""
        return f"{self.tool}:{self.step_ms:g}"

    @property
    def name(self) -> str:
        """Name in the table."""
        return (
            ROW_NAMES.get(self.tool, self.tool)
            + ("" if self.real_time else " †")
            + ("" if self.compiled else " ‡")
        )


PLANS = (
    # A round is one window of 100 steps, in four blocks: with shorter blocks the machine drifts less in
    # between.
    Plan("sfapp", 2.5, 1.0, launches=12, rounds=600, groups=4, steps=25),
    Plan("sfapp", 2.5, None, launches=4, rounds=160, groups=4, steps=25, real_time=False),
    Plan("sfapp", 2.5, None, launches=4, rounds=160, groups=4, steps=25, compiled=False),
    # Six threads that block on bare locks lose 0.09 % of a 20 ms step, so many rounds are needed to compare
    # with the bar.
    Plan("sfapp", 20.0, 0.2, launches=16, rounds=256, groups=4, steps=25),
    Plan("sfapp", 20.0, None, launches=2, rounds=34, groups=4, steps=25, real_time=False),
    Plan("waits", 2.5, 1.0, launches=12, rounds=600, groups=4, steps=25),
    Plan("waits", 20.0, 0.2, launches=16, rounds=256, groups=4, steps=25),
    Plan("host", 2.5, 1.0, launches=12, rounds=600, groups=4, steps=25),
    Plan("host", 20.0, 0.2, launches=16, rounds=256, groups=4, steps=25),
    Plan("stream", 20.0, 0.2, launches=8, rounds=64, groups=4, steps=25),
    Plan("traceml", 2.5, None, launches=2, rounds=80, groups=4, steps=25),
    Plan("profiler", 2.5, None, launches=2, rounds=20, groups=1, steps=100),
)

LONG_STEP_MS = 20.0
"""Step length from which the A/A noise is the smallest difference that a bar may require."""


REAL_TIME = """\
The jobs' threads therefore have a real-time policy
  (`SCHED_RR`), with and without a tool, under which the standard deviation of a step is 0.2 ms. † is the same
  job under the usual policy. Shorter time slices (0.1 ms) did not reduce the 1.5 ms: at 22 ms per step, 34
  rounds gave a bound of 0.73 %, and 0.49 % of noise."""
USUAL = """\
A real-time policy, under which it is 0.2 ms, was not permitted here (CAP_SYS_NICE, or `ulimit -r 1`): all
rows
  are like † elsewhere."""

PAGE = """\
# Cost of the recorder

Written by `python -m benchmarks.recorder --out docs/evidence` on {machine};
other programs used {others:.0%} of the cores meanwhile. Steps were timed {timed}.

```text
{bars}
```

Throughput lost is the upper bound of a one-sided 95 % confidence interval, by paired bootstrap over rounds of
blocks in jobs of two ranks, DDP over Gloo: windows of 100 steps, gathered over Gloo and written as Parquet
meanwhile (`stream`: sent to an aggregator on the same cores, which writes them). Paper, 8 to 128 ranks,
windows of 400 steps: at most 0.181 %.

```text
{rows}
```

- *Rank 0 receives* counts the results of the reductions on rank 0, for 100 steps of 6 stages; the ranks are
  simulated in one process (`benchmarks/reduction.py`). A ring transfers up to twice as much over a rank's
  connection.
- Memory added by windows is measured after CPython has filled its free lists of tuples (up to 2,000 of every
  length: some 300 kB, reached after about 3,000 windows).
- The rounds come from several launches of a job; `launches` is their number, with the lowest and the highest
  result of a single launch.
- A round has 100 steps with the recorder and 200 without, in blocks of 25 in changing order, so that all
  kinds run in the same minutes. The first window is not counted. The others close early in a block, which
  then includes the cost of closing; `late` is the number of windows still being gathered or written when
  their block ended. Short windows are gathered together (docs/recorder.md), so some rounds bear the cost of
  several. *Without* is the bare loop.
- Two ranks share two cores, each with four threads that Gloo wakes several times per step. Under the kernel's
  usual policy a waking thread may wait for the scheduler's next tick (4 ms here): a bare step of 20 ms then
  has a standard deviation of 1.5 ms. {policy}
- `with waits` is the recorder after `watch_waits(model)`: waits within each stage are measured too. `and
  host` is the same with all host evidence, as it is by default; other rows of the recorder are without it.
- ‡ is the recorder with its steps timed in Python (`SFAPP_COMPILED=off`), as if it was installed without a C
  compiler.
- A/A: the blocks without the recorder, with one half treated as the recorder. The choice of the half is
  arbitrary, so `noise` is the larger bound of both choices. From steps of {long:g} ms, the bound may reach
  `noise` if the bar is lower.
- Trimmed: the mean log ratio of the rounds without the {trimmed:.0%} highest and lowest, which excludes
  bursts of noise. It has no bar.
- The other tools watch the same job, started as documented: TraceML by `traceml run`, with `init()` and
  `trace_step`; torch.profiler with CPU activities and `record_function`. Their work outside the steps is not
  charged to them (the stream's heartbeats and samples and TraceML's samplers and aggregator run in all
  blocks, the profiler makes its trace after its block), so their cost is at least this.
"""


def permitted(plans: Sequence[Plan]) -> list[Plan]:
    """Return the plans that can run here; without permission for a real-time policy, each once without it."""
    if machine.can_use_real_time():
        return list(plans)
    return [replace(plan, real_time=False) for plan in plans if plan.real_time]


def quick(plan: Plan) -> Plan:
    """Return a plan that takes a few seconds."""
    return replace(plan, launches=1, rounds=2, steps=min(plan.steps, 15))


def memory(windows: int, before: int) -> Iterator[Result]:
    """Yield the memory of a recorder of one rank, and the memory that further windows add to it: memory of
    Python and NumPy, not of the Parquet library, which is freed after every packet."""
    with tempfile.TemporaryDirectory() as folder:
        with sfapp.Recorder(folder, run_id="first") as perf:  # loads libraries
            _windows(perf, 1)
        tracemalloc.start()
        perf = sfapp.Recorder(folder, run_id="bench", window_steps=100, gather="local")
        for _ in range(3 * 100):
            with perf.step():
                pass
        perf.close()
        _, peak = tracemalloc.get_traced_memory()
        yield Result("memory of a recorder, window of 100 steps", peak, 1e6, "B")
        perf = sfapp.Recorder(folder, run_id="long", window_steps=1, max_pending=64)
        _windows(perf, before)
        held, _ = tracemalloc.get_traced_memory()
        _windows(perf, windows)
        after, _ = tracemalloc.get_traced_memory()
        perf.close()
        tracemalloc.stop()
    yield Result(f"memory added by {windows:,} windows", max(0, after - held), 50e3, "B")


def _windows(perf: sfapp.Recorder, count: int) -> None:
    """Record this many windows of one step, and return when all are written."""
    for place in range(count):
        with perf.step():
            pass
        while perf.pending > (32 if place + 1 < count else 0):
            time.sleep(0.001)


def is_installed(tool: str) -> bool:
    """Return whether the tool is installed: TraceML is only in the extra ``bench``."""
    return tool != "traceml" or importlib.util.find_spec("traceml_ai") is not None


def overhead(plan: Plan) -> OverheadEstimate:
    """Measure a tool on a job with steps of about this length."""
    share = replace(plan, rounds=plan.rounds // plan.launches)
    documents = [_launched(share) for _ in range(plan.launches)]
    late = sum(document["late"] for document in documents)
    return OverheadEstimate.of([document["rounds"] for document in documents], documents[0]["steps"], late)


def _launched(plan: Plan) -> dict[str, Any]:
    """Return the output of one launch of the job."""
    root = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rounds.json"
        command = _launcher(plan.tool, folder, Path(__file__).with_name("recorder_job.py"))
        numbers = (plan.step_ms, plan.rounds, plan.groups, plan.steps, int(plan.real_time))
        command += [str(out), plan.tool, *map(str, numbers)]
        no_aggregator: AbstractContextManager[dict[str, str]] = nullcontext({})
        with _aggregator(folder) if plan.tool == "stream" else no_aggregator as address:
            environment = {**os.environ, **address, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
            environment |= {} if plan.compiled else {COMPILED_VARIABLE: "off"}
            done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
        if done.returncode or not out.is_file():
            raise SystemExit(f"the {plan.tool} job failed:\n{done.stdout[-2_000:]}{done.stderr[-4_000:]}")
        trace = {"traceml": "**/final_summary.json", "stream": "**/*.parquet"}.get(plan.tool)
        if trace and not list(Path(folder).glob(trace)):
            raise SystemExit(f"there is no {trace}: {plan.tool} recorded nothing, so nothing was measured")
        document: dict[str, Any] = json.loads(out.read_text())
    return document


@contextmanager
def _aggregator(folder: str) -> Iterator[dict[str, str]]:
    """Start an aggregator for the job, and yield the environment with its address."""
    address = f"tcp://127.0.0.1:{_free_port()}"
    command = [str(Path(sys.executable).with_name("sfapp")), "aggregate", folder, "--listen", address]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            if not (line := process.stderr.readline()).startswith("listening"):
                raise SystemExit(f"the aggregator did not start: {line}")
            yield {"SFAPP_STREAM": address}
        finally:
            process.terminate()


def _launcher(tool: str, folder: str, script: Path) -> list[str]:
    """Return the command with which the tool's users start a job of two ranks."""
    if tool != "traceml":
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        return [*start, str(script)]
    start = [sys.executable, "-m", "traceml_ai.launcher.cli", "run", str(script), "--nproc-per-node=2"]
    start += [f"--logs-dir={folder}", "--run-name=bench"]
    start += [f"--master-port={_free_port()}", f"--aggregator-port={_free_port()}", "--args"]
    return start


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def judged(plan: Plan, found: OverheadEstimate) -> Result:
    """Compare the bound with its bar."""
    assert plan.bar is not None
    may = max(plan.bar, found.noise_bound) if plan.step_ms >= LONG_STEP_MS else plan.bar
    how = HOW.get(plan.tool, "recorded")
    return Result(
        f"2-rank DDP, {found.step_ms:.1f} ms a step, {how}, throughput lost", found.plain.upper, may, "%"
    )


def main() -> None:
    """Print the tables, and write them to a file if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--quick", action="store_true", help="a few seconds for each job")
    parser.add_argument("--only", metavar="TOOL:MS", choices=sorted({plan.choice for plan in PLANS}))
    options = parser.parse_args()
    if options.only and options.out is not None:
        parser.error("--only measures a part of the page: leave --out away")
    bars, rows, others = [HEADER], [COLUMNS], machine.OtherPrograms()
    missed = 0
    print(HEADER)
    for result in results(options.quick, rows, options.only):
        print(result.line(), flush=True)
        bars.append(result.line())
        missed += not result.holds
    print("", *rows, sep="\n")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "overhead.md").write_text(page(bars, rows, others.share()), encoding="utf-8")
    sys.exit(1 if missed and not options.quick else 0)


def results(is_quick: bool, rows: list[str], only: str | None = None) -> Iterator[Result]:
    """Yield every bar, or those of the jobs ``only``; append each job's row to ``rows``."""
    if only is None:
        yield from hot_path(3 if is_quick else ROUNDS)
        yield from memory(100, 10) if is_quick else memory(WINDOWS, BEFORE)
        yield from reduction.run()
    for plan in permitted([plan for plan in PLANS if only in (None, plan.choice)]):
        if not is_installed(plan.tool):
            rows.append(f"{plan.tool:<10} left out: it is not installed (pip install 'sfapp[bench]')")
            continue
        found = overhead(quick(plan) if is_quick else plan)
        rows.append(found.line(plan.name))
        if plan.bar is not None:
            yield judged(plan, found)


def page(bars: Sequence[str], rows: Sequence[str], others: float) -> str:
    """Return docs/evidence/overhead.md; ``others`` is the load of other programs meanwhile."""
    return PAGE.format(
        machine=machine.describe_machine(),
        others=others,
        bars="\n".join(bars),
        rows="\n".join(rows),
        trimmed=TRIMMED,
        long=LONG_STEP_MS,
        timed="in C" if IS_COMPILED else "in Python",
        policy=REAL_TIME if machine.can_use_real_time() else USUAL,
    )


if __name__ == "__main__":
    main()
