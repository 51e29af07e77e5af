"""Judge simulated jobs with known faults, and write docs/evidence/ensemble.md.

python -m benchmarks.ensemble [--jobs 1000] [--seed 0] [--out docs/evidence]
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks import machine
from benchmarks.ensemble import scores
from benchmarks.ensemble.scores import CostScore, FaultScore, HealthyScore, OnsetScore
from benchmarks.experiments.acceptance import AcceptanceBar

PAGE = """\
# How often verdicts are right

Written by `python -m benchmarks.ensemble --jobs {jobs} --seed {seed}` on {machine}: simulated jobs
with known faults.

| target | measured | |
| --- | --- | --- |
{bars}

Jobs have 2 to 1,024 ranks that wait for each other at the end of backward, or of forward and backward. The
time of a rank in a stage has noise of 1, 4 or 10 %, in three of ten jobs with heavy tails (Student's t, 3
degrees of freedom), with an autocorrelation of 0, 0.5 or 0.9; whole steps vary together by 0, 5 or 20 %;
ranks differ by up to 0.5 % (standard deviation), and a job drifts by up to 2 %. It has 4 windows of 40 steps.

A fault begins within the third window: on one rank in every step, every tenth step or two steps of a window,
on a random rank in every step, or on all ranks; one job in eight has two. Its size is the time that it takes
per step of the window. *Right* is the planted stage, with the rank, or with "changing ranks" or "all ranks"
if that was planted; *stage only* names the stage and no rank.

For the steps at which faults begin and end, jobs have 6 windows and one fault, which begins anywhere in the
third and ends at least 20 steps later, before the sixth. The intervals are those of the first and the last
episode found for the fault.

## Healthy windows

| noise | waits | windows | need attention | strong label |
| --- | --- | --- | --- | --- |
{healthy}

Jobs of {windows} windows that differ as wholes, beyond the noise of their steps, as other programs on shared
machines make them differ:

| noise between windows | windows | need attention | strong label |
| --- | --- | --- | --- |
{differing}

## Windows with faults

*Clear*: at least {clear:g} times the resolution that the window states.

| waits | faults | windows | right | stage only | missed | wrong |
| --- | --- | --- | --- | --- | --- | --- |
{faulty}

## What faults cost

Jobs with one fault and without drift. The true cost of a fault in a window is how much sooner the job would
have ended without it, everything else being the same. It counts as within the interval if it is so to the
0.1 % of a step that is shown. Without measured waits, it is not known how much of a delay is made up for in
the stage in which ranks wait, and intervals reach down accordingly.

| fault | waits | windows | true cost within its 95 % interval | median width, of the cost |
| --- | --- | --- | --- | --- |
{costs}
"""

KINDS = {
    "persistent": "one rank, every step",
    "periodic": "one rank, every tenth step",
    "transient": "one rank, two steps",
    "rotating": "a random rank, every step",
    "all": "all ranks",
}


def main() -> None:
    """Run the ensemble, print the bars and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1000, help="healthy jobs; twice as many have faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/evidence"))
    options = parser.parse_args()
    healthy = {waits: scores.healthy(options.jobs, options.seed, waits=waits) for waits in (True, False)}
    faulty = {
        waits: scores.faulty(2 * options.jobs, options.seed + 1, waits=waits) for waits in (True, False)
    }
    differing = scores.differing(max(1, options.jobs // 6), options.seed + 4)
    bars = list(_healthy_bars(healthy))
    bars += _fault_bars(faulty[True])
    bars += _resolution_bars(*scores.at_resolution(max(1, options.jobs // 2), options.seed + 2))
    began, ended = scores.onsets(options.jobs, options.seed + 3)
    bars += [*_onset_bars("begin", began), *_onset_bars("end", ended)]
    costs = {waits: scores.costs(options.jobs, options.seed + 5, waits=waits) for waits in (True, False)}
    bars += [_cost_bar(waits, score) for waits, score in costs.items()]
    for bar in bars:
        print(bar.line)
    options.out.mkdir(parents=True, exist_ok=True)
    page = PAGE.format(
        jobs=options.jobs,
        seed=options.seed,
        machine=machine.describe_machine(),
        bars="\n".join(bar.line for bar in bars),
        healthy="\n".join(line for waits, score in healthy.items() for line in _healthy_rows(waits, score)),
        windows=scores.DIFFERING_WINDOWS,
        differing="\n".join(_differing_rows(differing)),
        faulty="\n".join(line for waits, score in faulty.items() for line in _fault_rows(waits, score)),
        clear=scores.CLEAR,
        costs="\n".join(line for waits, score in costs.items() for line in _cost_rows(waits, score)),
    )
    (options.out / "ensemble.md").write_text(page, encoding="utf-8")


def _healthy_bars(found: dict[bool, HealthyScore]) -> Iterator[AcceptanceBar]:
    rates = [
        score.attention[noise] / score.windows[noise] for score in found.values() for noise in score.windows
    ]
    yield AcceptanceBar(
        "healthy windows that need attention, at every noise: at most 1 %",
        _percent(max(rates)),
        max(rates) <= 0.01,
    )
    strong = sum(score.strong.total() for score in found.values())
    yield AcceptanceBar("strong labels in healthy windows: none", str(strong), strong == 0)


def _fault_bars(score: FaultScore) -> Iterator[AcceptanceBar]:
    clear, total = score.clear, max(1, score.clear.total())
    found = 1 - clear["missed"] / total
    right, wrong = clear["right"] / total, clear["wrong"] / total
    yield AcceptanceBar(
        f"clear faults found: at least 98 % (of {total} windows)", _percent(found), found >= 0.98
    )
    yield AcceptanceBar(
        "clear faults, stage and rank right, waits measured: at least 97 %", _percent(right), right >= 0.97
    )
    yield AcceptanceBar("clear faults, wrong: at most 0.5 %", _percent(wrong), wrong <= 0.005)


def _resolution_bars(rank: Counter[bool], growth: Counter[bool]) -> Iterator[AcceptanceBar]:
    for name, found in (("one late rank", rank), ("growth", growth)):
        part = found[True] / max(1, found.total())
        target = f"faults at exactly the resolution found, {name}: 90 to 98 % (of {found.total()})"
        yield AcceptanceBar(target, _percent(part), 0.90 <= part <= 0.98)


def _onset_bars(name: str, score: OnsetScore) -> Iterator[AcceptanceBar]:
    total = max(1, score.within.total())
    within = score.within[True] / total
    which = f"faults of at least {scores.LARGE:.0%} of a step, where they {name}"
    yield AcceptanceBar(
        f"{which}: within its interval in at least 95 % (of {total})", _percent(within), within >= 0.95
    )
    width = statistics.median(score.widths) if score.widths else math.inf
    yield AcceptanceBar(f"{which}: median interval of at most 3 steps", f"{width:g}", width <= 3)


def _cost_bar(waits: bool, score: CostScore) -> AcceptanceBar:
    found = sum(score.within.values(), Counter[bool]())
    within = found[True] / max(1, found.total())
    target = f"costs, waits {_known(waits)}: within the interval in at least 95 % (of {found.total()})"
    return AcceptanceBar(target, _percent(within), within >= 0.95)


def _cost_rows(waits: bool, score: CostScore) -> Iterator[str]:
    for kind, found in sorted(score.within.items()):
        total = found.total()
        parts = found[True] / total, statistics.median(score.widths[kind])
        yield f"| {KINDS[kind]} | {_known(waits)} | {total} | {' | '.join(map(_percent, parts))} |"


def _healthy_rows(waits: bool, score: HealthyScore) -> Iterator[str]:
    for noise, windows in sorted(score.windows.items()):
        attention, strong = score.attention[noise] / windows, score.strong[noise] / windows
        yield f"| {noise:.0%} | {_known(waits)} | {windows} | {_percent(attention)} | {_percent(strong)} |"


def _differing_rows(score: HealthyScore) -> Iterator[str]:
    for between, windows in sorted(score.windows.items()):
        attention, strong = score.attention[between] / windows, score.strong[between] / windows
        yield f"| {between:.0%} | {windows} | {_percent(attention)} | {_percent(strong)} |"


def _fault_rows(waits: bool, score: FaultScore) -> Iterator[str]:
    for name, outcomes in (("clear", score.clear), ("smaller", score.smaller)):
        total = outcomes.total()
        parts = (outcomes[kind] / max(1, total) for kind in ("right", "stage only", "missed", "wrong"))
        yield f"| {_known(waits)} | {name} | {total} | {' | '.join(map(_percent, parts))} |"


def _known(waits: bool) -> str:
    return "measured" if waits else "not measured"


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


if __name__ == "__main__":
    main()
