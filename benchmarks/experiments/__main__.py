"""Run the jobs, judge their windows, write the tables.

    python -m benchmarks.experiments [--small] [--out docs/evidence] [--packets FOLDER] [--only ddp-8]

With ``--packets`` what is there already is judged again, and only what is missing is run.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.experiments.plan import Job, full, small
from benchmarks.experiments.score import Seen
from benchmarks.experiments.tables import document
from sfapp.accounting import diagnose_runs
from sfapp.packets import read_windows


def run(job: Job, packets: Path) -> None:
    """One launch; all its windows."""
    plan = packets / f"{job.name}.json"
    plan.write_bytes(msgspec.json.encode(job))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={job.ranks}", "-m", "benchmarks.experiments.job", str(plan), str(packets)]
    begin = time.monotonic()
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    seconds = time.monotonic() - begin
    print(f"{job.name}: {len(job.faults)} windows in {seconds:.0f} s", file=sys.stderr, flush=True)


def judge(job: Job, packets: Path) -> list[Seen]:
    """What is said of a job's windows; windows that are missing or were not put together are an error."""
    windows = [found.window for found in read_windows([packets / job.name]).windows]
    diagnoses = {found.window: found for found in diagnose_runs(windows)}
    if sorted(diagnoses) != list(range(len(job.faults))):
        raise SystemExit(f"{job.name}: windows {sorted(diagnoses)} of {len(job.faults)} are there")
    return [Seen(job.name, fault, diagnoses[number]) for number, fault in enumerate(job.faults)]


def experiment(jobs: Sequence[Job], packets: Path) -> list[Seen]:
    """Run what is missing, judge everything."""
    rows: list[Seen] = []
    for job in jobs:
        if not (packets / job.name).is_dir():
            run(job, packets)
        rows += judge(job, packets)
    return rows


def machine() -> str:
    """What the numbers were measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="one short launch of four ranks")
    parser.add_argument("--only", action="append", help="only the job of this name; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("docs/evidence"))
    parser.add_argument("--packets", type=Path, default=None, help="keep the packets here")
    arguments = parser.parse_args()
    jobs = [
        job for job in (small() if arguments.small else full()) if job.name in (arguments.only or job.name)
    ]
    with tempfile.TemporaryDirectory() as scratch:
        packets = arguments.packets or Path(scratch)
        packets.mkdir(parents=True, exist_ok=True)
        rows = experiment(jobs, packets)
    arguments.out.mkdir(parents=True, exist_ok=True)
    command = "python -m benchmarks.experiments" + (" --small" if arguments.small else "")
    page = arguments.out / ("routing-small.md" if arguments.small else "routing.md")
    page.write_text(document(rows, command, machine()), encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
