"""Measure the cost of reading traces in a separate process: our importer, and Holistic Trace Analysis in its
own environment, because its dependencies conflict with ours."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import psutil

HTA = "HolisticTraceAnalysis==0.5.0"

_PROGRAM = """
import sys, time
{imports}
begin = time.perf_counter()
{call}
sys.stdout.write("\\n" + repr(time.perf_counter() - begin))
"""
IMPORT = _PROGRAM.format(
    imports="from pathlib import Path\nimport sfapp.importers.kineto\nfrom sfapp.importers import *",
    call="found = read_traces('kineto', [Path(sys.argv[1])], ImportOptions())\n"
    "assert write_imported(found, Path(sys.argv[2])).packets and not found.refused",
)
"""Our import; arguments are the folder of traces and the folder for packets."""

LOAD = _PROGRAM.format(
    imports="from hta.trace_analysis import TraceAnalysis",
    call="assert len(TraceAnalysis(trace_dir=sys.argv[1]).t.traces) == 8",
)
"""Load by Holistic Trace Analysis; the argument is a folder of eight ranks' traces."""

_ASK = """
import sys
from hta.trace_analysis import TraceAnalysis
try:
    found = f"ranks {TraceAnalysis(trace_dir=sys.argv[1]).get_potential_stragglers(num_candidates=2)}"
except Exception as error:
    found = f"{type(error).__name__}: {error}"
sys.stdout.write("\\n" + found.splitlines()[0])
"""


def holistic(root: Path) -> str | None:
    """Return the interpreter of an environment with Holistic Trace Analysis below ``root``; None if it cannot
    be installed."""
    venv.create(root / "hta", with_pip=True, symlinks=True)
    python = str(root / "hta" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", HTA, "pandas<3"]
    if subprocess.run(install, capture_output=True, check=False).returncode:
        print(f"left out: {HTA} cannot be installed", file=sys.stderr)
        return None
    return python


def stragglers(python: str, folder: Path) -> str:
    """Return the two most likely stragglers of a job according to Holistic Trace Analysis, or its error."""
    answer = subprocess.run([python, "-c", _ASK, folder], capture_output=True, text=True, check=False)
    return answer.stdout.rsplit("\n", 1)[-1] or f"exit status {answer.returncode}"


def cost(python: str, program: str, *arguments: Path) -> tuple[float, float]:
    """Return the seconds of one run without loading libraries, and its peak memory in bytes with them."""
    with tempfile.TemporaryFile("w+") as output:
        running = subprocess.Popen(
            [python, "-c", program, *arguments], stdout=output, stderr=subprocess.DEVNULL
        )
        largest = 0
        while running.poll() is None:
            largest = max(largest, _bytes_of(running.pid))
            time.sleep(0.02)
        output.seek(0)
        if running.returncode:
            raise subprocess.CalledProcessError(running.returncode, program)
        return float(output.read().rsplit("\n", 1)[1]), float(largest)


def _bytes_of(pid: int) -> int:
    """Return the memory of a process and its children: the private memory of each, and the largest shared
    memory.

    Libraries therefore count in full even if other programs have loaded them.
    """
    own, shared = 0, 0
    with contextlib.suppress(psutil.Error):  # The process may end meanwhile.
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                found = each.memory_full_info()
                own += found.uss
                shared = max(shared, found.rss - found.uss)
    return own + shared
