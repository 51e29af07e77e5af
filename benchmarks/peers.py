"""Compare the findings of sfapp, TraceML and HolisticTraceAnalysis on the same faults. About 8 minutes.

    python -m benchmarks.peers [--out docs/evidence] [--hta-python PYTHON] [--fault NAME]

Every tool watches its own launch of the same job (``peers_job.py``), one for each fault, with the fault
present from the first step on, because neither peer compares parts of a run. A tool that is not installed is
left out, which the page states. HolisticTraceAnalysis is started with ``--hta-python`` (or SFAPP_HTA_PYTHON),
the Python of its own environment: ``python -m venv hta && hta/bin/pip install HolisticTraceAnalysis``.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.kineto_job import Shape, write_job
from benchmarks.machine import OtherPrograms, describe_machine
from benchmarks.peers_job import FAULTS
from benchmarks.peers_page import ToolFinding, peers_document
from sfapp.accounting import diagnose_runs
from sfapp.model.stages import DATA, FORWARD
from sfapp.packets import read_windows

ROOT = Path(__file__).resolve().parent.parent
JOB = Path(__file__).with_name("peers_job.py")
RANKS, STEPS = 4, 200
HTA_VARIABLE = "SFAPP_HTA_PYTHON"

TRACEML_STAGES = {"INPUT_STRAGGLER": DATA, "INPUT_BOUND": DATA, "COMPUTE_STRAGGLER": FORWARD}
"""Stage named by each kind of TraceML's diagnoses; other kinds name none."""

TODAY, EARLIER = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclKernel_AllReduce_RING_LL_Sum_f32"
"""Names of the same kernel in current and earlier versions of NCCL."""

Watch = Callable[[str, Path], ToolFinding]


def sfapp_finding(fault: str, folder: Path) -> ToolFinding:
    """Record a job and return the stage and rank of the verdict on its window."""
    _torchrun(folder, "sfapp", fault)
    (diagnosis,) = diagnose_runs([found.window for found in read_windows([folder]).windows])
    aim = diagnosis.aim
    if aim is None or diagnosis.is_healthy:
        return ToolFinding("healthy", is_silent=True)
    steps = aim.steps if isinstance(aim.steps, str) else f"{len(aim.steps)} steps"
    rank = aim.rank_reason if aim.rank is None else f"rank {aim.rank}"
    return ToolFinding(f"{aim.stage}, {rank}, steps: {steps}", stage=aim.stage, rank=aim.rank)


def traceml_finding(fault: str, folder: Path) -> ToolFinding:
    """Run a job under ``traceml run`` and return its primary diagnosis."""
    command = [sys.executable, "-m", "traceml_ai.launcher.cli", "run", str(JOB), f"--nproc-per-node={RANKS}"]
    command += [f"--logs-dir={folder}", "--run-name=peers", f"--master-port={_free_port()}"]
    command += [f"--aggregator-port={_free_port()}", "--args", str(folder), "traceml", fault, str(STEPS)]
    _run(command, f"traceml, {fault}")
    return traceml_result(json.loads((folder / "peers" / "final_summary.json").read_text()))


def traceml_result(summary: dict[str, Any]) -> ToolFinding:
    """Return the finding of a final summary of TraceML: the primary diagnosis, if it is a warning."""
    primary, step_time = summary["primary_diagnosis"], summary["step_time"]["diagnosis"]
    text = f"{primary['status']}: {primary['summary']}"
    if primary["severity"] == "info":
        return ToolFinding(text, is_silent=True)
    ranks = step_time.get("ranks") or [] if primary["section"] == "step_time" else []
    stage = TRACEML_STAGES.get(primary["kind"])
    return ToolFinding(text, stage=stage, rank=ranks[0] if len(ranks) == 1 else None)


def hta_finding(python: str) -> Watch:
    """Return a function that traces a job with the profiler and queries HolisticTraceAnalysis for
    stragglers."""

    def watch(fault: str, folder: Path) -> ToolFinding:
        _torchrun(folder, "profiler", fault)
        return hta_result(_hta(python, folder))

    return watch


def hta_result(found: dict[str, Any]) -> ToolFinding:
    """Return the finding of HolisticTraceAnalysis: the most likely straggler, or why it finds none."""
    if "error" in found:
        return ToolFinding(f"get_potential_stragglers: {found['error']}", has_failed=True)
    ranks = found["stragglers"]
    text = f"potential straggler: {', '.join(f'rank {rank}' for rank in ranks) or 'none'}"
    return ToolFinding(text, rank=ranks[0] if ranks else None, is_silent=not ranks)


def generated(python: str, folder: Path) -> Iterator[tuple[str, ToolFinding]]:
    """Yield the findings of HolisticTraceAnalysis on a generated GPU job, under both names of its NCCL
    kernels."""
    for name in (TODAY, EARLIER):
        traces = folder / name
        for path in write_job(traces, Shape()):
            text = gzip.decompress(path.read_bytes()).decode().replace(TODAY, name)
            path.write_bytes(gzip.compress(text.encode()))
        yield name, hta_result(_hta(python, traces))


def _hta(python: str, folder: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("peers_hta.py")
    document: dict[str, Any] = json.loads(_run([python, str(script), str(folder)], "hta").splitlines()[-1])
    return document


def _torchrun(folder: Path, tool: str, fault: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    _run([*command, str(JOB), str(folder), tool, fault, str(STEPS)], f"{tool}, {fault}")


def _run(command: Sequence[str], name: str) -> str:
    """Run a command and return its output.

    Raises:
        SystemExit: it failed.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stdout[-2_000:]}{done.stderr[-4_000:]}")
    return done.stdout


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def tools(hta_python: str | None) -> dict[str, Watch | None]:
    """Return a function for each tool, by name and version, that watches a job; None if it is not
    installed."""
    found: dict[str, Watch | None] = {"sfapp": sfapp_finding}
    if importlib.util.find_spec("traceml_ai") is None:
        found["TraceML"] = None
    else:
        found[f"TraceML {importlib.metadata.version('traceml-ai')}"] = traceml_finding
    if hta_python is None or shutil.which(hta_python) is None:
        found["HolisticTraceAnalysis"] = None
    else:
        version = "import importlib.metadata as m; print(m.version('HolisticTraceAnalysis'))"
        name = f"HolisticTraceAnalysis {_run([hta_python, '-c', version], 'hta').strip()}"
        found[name] = hta_finding(hta_python)
    return found


def main() -> None:
    """Run every tool on every fault and write docs/evidence/peers.md."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--hta-python", default=os.environ.get(HTA_VARIABLE))
    parser.add_argument("--fault", action="append", choices=[*FAULTS], help="only this one; may be repeated")
    options = parser.parse_args()
    watches, others = tools(options.hta_python), OtherPrograms()
    rows: dict[str, dict[str, ToolFinding | None]] = {}
    for fault in options.fault or FAULTS:
        rows[fault] = {}
        for name, watch in watches.items():
            with tempfile.TemporaryDirectory() as folder:
                rows[fault][name] = None if watch is None else watch(fault, Path(folder))
            print(fault, name, rows[fault][name], sep=": ", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        has_hta = watches.get("HolisticTraceAnalysis", True) is not None
        traces = dict(generated(options.hta_python, Path(folder))) if has_hta else {}
    machine = (
        f"{describe_machine()} over Gloo; other programs used {others.share():.0%} of the cores meanwhile"
    )
    page = peers_document(rows, traces, machine, RANKS, STEPS)
    print(page)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "peers.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
