"""Run the jobs, judge their windows, write the tables.

    python -m benchmarks.experiments [--small] [--out docs/evidence] [--packets FOLDER] [--only ddp-8]

With ``--packets`` what is there already is judged again, and only what is missing is run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.experiments.launch import Launch, launch, launched, machine
from benchmarks.experiments.plan import Job, full, small
from benchmarks.experiments.score import Seen
from benchmarks.experiments.tables import document
from sfapp.accounting import diagnose_runs
from sfapp.packets import read_windows


def judge(job: Job, packets: Path) -> list[Seen]:
    """What is said of a job's windows; windows that are missing or were not put together are an error."""
    windows = [found.window for found in read_windows([packets / job.name]).windows]
    diagnoses = {found.window: found for found in diagnose_runs(windows)}
    if sorted(diagnoses) != list(range(len(job.faults))):
        raise SystemExit(f"{job.name}: windows {sorted(diagnoses)} of {len(job.faults)} are there")
    return [Seen(job.name, fault, diagnoses[number]) for number, fault in enumerate(job.faults)]


def experiment(jobs: Sequence[Job], packets: Path) -> tuple[list[Seen], list[Launch]]:
    """Run what is missing, judge everything."""
    rows: list[Seen] = []
    launches: list[Launch] = []
    for job in jobs:
        there = (packets / job.name).is_dir()
        launches.append(launched(job, packets) if there else launch(job, packets))
        rows += judge(job, packets)
    return rows, launches


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="one short launch of four ranks")
    parser.add_argument("--only", action="append", help="only the job of this name; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("docs/evidence"))
    parser.add_argument("--packets", type=Path, default=None, help="keep the packets here")
    arguments = parser.parse_args()
    only = arguments.only or []
    jobs = [job for job in (small() if arguments.small else full()) if not only or job.name in only]
    with tempfile.TemporaryDirectory() as scratch:
        packets = arguments.packets or Path(scratch)
        packets.mkdir(parents=True, exist_ok=True)
        rows, launches = experiment(jobs, packets)
    arguments.out.mkdir(parents=True, exist_ok=True)
    chosen = ["--small"] * arguments.small + [f"--only {name}" for name in only]
    command = " ".join(["python -m benchmarks.experiments", *chosen])
    page = arguments.out / ("routing-small.md" if arguments.small else "routing.md")
    page.write_text(document(rows, command, machine(launches)), encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
