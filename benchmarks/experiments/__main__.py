"""Run the jobs of a plan, judge their windows and write the tables.

    python -m benchmarks.experiments [--plan waits|why|standstill] [--small] [--only ddp-8] [--packets FOLDER]

The plan ``routing`` (the default) writes docs/evidence/routing.md, ``waits`` docs/evidence/waits.md, ``why``
docs/evidence/why.md, and ``standstill`` docs/evidence/hangs.md (``--healthy-minutes 30`` adds a healthy job).
With ``--packets`` existing packets are judged again, and only missing jobs are run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.experiments.launch import Launch, Launchable, launch, launched, machine
from benchmarks.experiments.plan import PlannedJob, full, small
from benchmarks.experiments.routing_page import document
from benchmarks.experiments.score import Seen
from benchmarks.experiments.standstill import FAMILIES, standstill_page
from benchmarks.experiments.waits_page import waits_document
from benchmarks.experiments.waits_plan import WaitJob, full_waits, small_waits
from benchmarks.experiments.waits_score import WaitSeen, judge_waits
from benchmarks.experiments.why_page import why_document
from benchmarks.experiments.why_plan import WhyJob, full_why, skipped_families, small_why
from benchmarks.experiments.why_score import WhySeen, judge_why
from sfapp.accounting import diagnose_runs
from sfapp.packets import read_windows

JobT = TypeVar("JobT", bound=Launchable)
RowT = TypeVar("RowT")


def judge(job: PlannedJob, packets: Path) -> list[Seen]:
    """Return the verdicts on a job's windows; missing or incomplete windows are an error.

    Shares and labels are compared with the paper's, which are step-aligned; the carry-over delta is the same
    on either frontier.
    """
    windows = [found.window for found in read_windows([packets / job.name]).windows]
    diagnoses = {found.window: found for found in diagnose_runs(windows, frontier="step")}
    if sorted(diagnoses) != list(range(len(job.faults))):
        raise SystemExit(f"{job.name}: windows {sorted(diagnoses)} of {len(job.faults)} are there")
    return [Seen(job.name, fault, diagnoses[number]) for number, fault in enumerate(job.faults)]


def experiment(jobs: Sequence[PlannedJob], packets: Path) -> tuple[list[Seen], list[Launch]]:
    """Run the missing jobs of the plan ``routing``, and judge all."""
    return _experiment(jobs, packets, judge)


def waits_experiment(jobs: Sequence[WaitJob], packets: Path) -> tuple[list[WaitSeen], list[Launch]]:
    """Run the missing jobs of the plan ``waits``, and judge all."""
    return _experiment(jobs, packets, _judge_waits)


def _judge_waits(job: WaitJob, packets: Path) -> list[WaitSeen]:
    return judge_waits(job, [found.window for found in read_windows([packets / job.name]).windows])


def why_experiment(jobs: Sequence[WhyJob], packets: Path) -> tuple[list[WhySeen], list[Launch]]:
    """Run the missing jobs of the plan ``why``, and judge all."""
    return _experiment(jobs, packets, _judge_why)


def _judge_why(job: WhyJob, packets: Path) -> list[WhySeen]:
    return judge_why(job, [found.window for found in read_windows([packets / job.name]).windows])


def _experiment(
    jobs: Sequence[JobT], packets: Path, judged: Callable[[JobT, Path], list[RowT]]
) -> tuple[list[RowT], list[Launch]]:
    rows: list[RowT] = []
    launches: list[Launch] = []
    for job in jobs:
        there = (packets / job.name).is_dir()
        launches.append(launched(job, packets) if there else launch(job, packets))
        rows += judged(job, packets)
    return rows, launches


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plan", choices=("routing", "waits", "why", "standstill"), default="routing")
    parser.add_argument("--small", action="store_true", help="one short launch of four ranks")
    parser.add_argument("--only", action="append", help="only the job of this name; may be repeated")
    parser.add_argument("--healthy-minutes", type=float, default=0.0, help="of the plan standstill")
    parser.add_argument("--out", type=Path, default=Path("docs/evidence"))
    parser.add_argument("--packets", type=Path, default=None, help="keep the packets here")
    arguments = parser.parse_args()
    chosen = [f"--plan {arguments.plan}"] * (arguments.plan != "routing") + ["--small"] * arguments.small
    chosen += [f"--only {name}" for name in arguments.only or []]
    chosen += [f"--healthy-minutes {arguments.healthy_minutes:g}"] * (arguments.healthy_minutes > 0)
    command = " ".join(["python -m benchmarks.experiments", *chosen])
    if arguments.plan == "standstill":
        page = arguments.out / "hangs.md"
        families = arguments.only or list(FAMILIES)
        page.write_text(standstill_page(families, arguments.healthy_minutes, command), encoding="utf-8")
        print(page)
        return
    with tempfile.TemporaryDirectory() as scratch:
        packets = arguments.packets or Path(scratch)
        packets.mkdir(parents=True, exist_ok=True)
        text = _page(arguments.plan, arguments.small, arguments.only or [], packets, command)
    arguments.out.mkdir(parents=True, exist_ok=True)
    page = arguments.out / f"{arguments.plan}{'-small' if arguments.small else ''}.md"
    page.write_text(text, encoding="utf-8")
    print(page)


def _page(plan: str, is_small: bool, only: Sequence[str], packets: Path, command: str) -> str:
    """Run a plan and return its page.

    Args:
        only: names of the jobs to run; all if empty.
    """
    if plan == "routing":
        jobs = [job for job in (small() if is_small else full()) if not only or job.name in only]
        rows, launches = experiment(jobs, packets)
        return document(rows, command, machine(launches))
    if plan == "why":
        why_jobs = [job for job in (small_why() if is_small else full_why()) if not only or job.name in only]
        seen, launches = why_experiment(why_jobs, packets)
        return why_document(seen, command, machine(launches), skipped_families())
    wait_jobs = small_waits() if is_small else full_waits()
    waits, launches = waits_experiment([job for job in wait_jobs if not only or job.name in only], packets)
    return waits_document(waits, command, machine(launches))


if __name__ == "__main__":
    main()
