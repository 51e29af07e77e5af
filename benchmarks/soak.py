"""``make soak``: run streaming jobs on network namespaces while faults are injected around them.

``python -m benchmarks.soak [breaks] [outage] [crowd] [overload] [--short] [--minutes M] [--out FOLDER]``.
The jobs stream under ``sfapp run``, and at the end every step of every rank must be in the packets exactly
once. Needs Linux, root and the command ``ip``.

breaks: inject one fault per trial. Training uses another network than the stream, which shows that it never
waits. outage: disconnect a node with a slow rank completely. crowd: over a thousand ranks on one aggregator
(``benchmarks/many_ranks.py``). overload: as many ranks at a pace that the cores cannot sustain. app: 50
browsers on a live job (``benchmarks/app_soak.py``); needs neither root nor ``ip``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.app_soak import run_app_soak
from benchmarks.many_ranks import OVERLOAD, SMALL, RanksPlan, run_many_ranks
from benchmarks.namespaces import require_cluster
from benchmarks.soak_job import FULL, SHORT, SLOW_FROM_WINDOW, SLOW_RANK, WINDOW_STEPS, Durations, SoakJob
from benchmarks.soak_report import count_steps, trials_table


@dataclass(frozen=True, slots=True)
class PartResult:
    """Section of the page for one part of the soak test, and whether the part passed."""

    section: str
    holds: bool


def breaks(options: argparse.Namespace, durations: Durations) -> PartResult:
    """Inject every fault around a job, one after the other."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, require_cluster(2) as cluster:
        job = SoakJob(cluster, Path(folder), 2, durations)
        job.run_faults(options.minutes)
        windows = job.windows()
    return PartResult(trials_table(job.trials, windows, 2), count_steps(windows, 4).holds)


def outage(options: argparse.Namespace, durations: Durations) -> PartResult:
    """Disconnect a node with a slow rank for half a minute."""
    slow_from = str(SLOW_FROM_WINDOW * WINDOW_STEPS)
    slow = "--slow-rank", str(SLOW_RANK), "--slow-ms", "60", "--slow-from", slow_from
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, require_cluster(2) as cluster:
        job = SoakJob(cluster, Path(folder), 4, durations, slow)
        job.run_outage()
        windows = job.windows()
    return PartResult(trials_table(job.trials, windows, 4), count_steps(windows, 8).holds)


def crowd(options: argparse.Namespace, durations: Durations) -> PartResult:
    """Stream over a thousand ranks to one aggregator for half an hour."""
    plan = SMALL if durations is SHORT else RanksPlan()
    return PartResult(*run_many_ranks(plan.of_minutes(options.minutes or 30)))


def overload(options: argparse.Namespace, durations: Durations) -> PartResult:
    """Stream as many ranks at a pace that the cores cannot sustain."""
    plan = SMALL if durations is SHORT else OVERLOAD
    return PartResult(*run_many_ranks(plan.of_minutes(options.minutes or 5)))


def app(options: argparse.Namespace, durations: Durations) -> PartResult:
    """Keep 50 browsers on the live page of a job for half an hour."""
    return PartResult(*run_app_soak(options.minutes or (2 if durations is SHORT else 30)))


PARTS: dict[str, tuple[str, Callable[[argparse.Namespace, Durations], PartResult]]] = {
    "breaks": ("Faults around a job", breaks),
    "outage": ("A node without network", outage),
    "crowd": ("More than a thousand ranks", crowd),
    "overload": ("As many ranks at a pace above capacity", overload),
    "app": ("Fifty browsers on a live job", app),
}


def page(before: str, sections: Mapping[str, str]) -> str:
    """Return the page with these sections, by title; its other sections stay unchanged."""
    kept = dict(part.split("\n", 1) for part in before.split("\n## ")[1:])
    kept |= {title: f"\n{section}\n" for title, section in sections.items()}
    titles = [title for title, _ in PARTS.values() if title in kept]
    head = "# Soak test: streaming jobs under faults\n\n`make soak`; nodes are network namespaces.\n"
    return head + "".join(f"\n## {title}\n{kept[title].rstrip()}\n" for title in titles)


def main() -> int:
    """Run the chosen parts; return 1 if anything was lost or stored twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="parts to run [default: all]")
    parser.add_argument("--short", action="store_true", help="shorter trials and fewer ranks")
    parser.add_argument("--minutes", type=float, default=0, help="duration; for breaks the shortest")
    parser.add_argument("--out", type=Path, help="folder for soak.md")
    options = parser.parse_args()
    durations = SHORT if options.short else FULL
    all_hold = True
    for name in options.parts or PARTS:
        title, part = PARTS[name]
        result = part(options, durations)
        print(f"## {title}\n\n{result.section}\n", flush=True)
        all_hold = all_hold and result.holds
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            path = options.out / "soak.md"
            before = path.read_text(encoding="utf-8") if path.exists() else ""
            path.write_text(page(before, {title: result.section}), encoding="utf-8")
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
