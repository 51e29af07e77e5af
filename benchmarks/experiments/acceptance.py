"""The targets of the experiments and whether they are reached: the head of docs/evidence/routing.md.

docs/evidence/waits.md has bars of the same kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.experiments.plan import BEYOND, KEPT_ON
from benchmarks.experiments.score import Seen, count, of
from sfapp.accounting.compare import compare

RowT = TypeVar("RowT")

SHARDED = ("fsdp", "zero1")
PAPER_TOLERANCE_MS = 8.63
"""Largest distance of A2 from A1 that the paper allows."""


@dataclass(frozen=True, slots=True)
class AcceptanceBar:
    """One target in words, with the measured result."""

    target: str
    measured: str
    holds: bool

    @property
    def line(self) -> str:
        """Return its row of a table."""
        return f"| {self.target} | {self.measured} | {'holds' if self.holds else '**missed**'} |"


def bars(rows: Sequence[Seen]) -> list[AcceptanceBar]:
    """Return every bar for which there are rows."""
    found = [*_routing(rows), *_beyond(rows), *_scoped(rows), *_removed(rows), *_no_fault(rows)]
    return [bar for bar in found if bar is not None]


def bar_table(found: Sequence[AcceptanceBar]) -> list[str]:
    """Return the lines of a page's head: the number of bars that hold, and each bar."""
    held = sum(bar.holds for bar in found)
    return [
        f"**{held} of {len(found)} bars hold.**",
        "",
        "| target | measured | |",
        "| --- | --- | --- |",
        *(bar.line for bar in found),
    ]


def share_bar(
    target: str, rows: Sequence[RowT], right: Callable[[RowT], bool], least: float = 1.0
) -> AcceptanceBar | None:
    """Return the bar that at least a part of some rows is right; by default all of them."""
    if not rows:
        return None
    hits = sum(map(right, rows))
    return AcceptanceBar(target, f"{hits}/{len(rows)}", hits >= least * len(rows) - 1e-9)


def _routing(rows: Sequence[Seen]) -> Iterable[AcceptanceBar | None]:
    chosen = of(rows, "routing")
    found = count(chosen)
    yield share_bar("hidden rank, step-aligned: top-1 in 40 of 50, as the paper", chosen, _is_top(1), 0.8)
    yield share_bar("hidden rank, step-aligned: top-2 in all", chosen, _is_top(2))
    yield share_bar("hidden rank, step-aligned: in the candidate set in all", chosen, _is_candidate)
    if chosen:
        yield AcceptanceBar(
            "mean candidate set of at most 2.00", f"{found.mean_size:.2f}", found.mean_size <= 2.0
        )
    yield share_bar("the same windows, carry-over delta: stage right in 49 of 50", chosen, _aims, 0.98)


def _beyond(rows: Sequence[Seen]) -> Iterable[AcceptanceBar | None]:
    for family in BEYOND:
        first = [row for row in _host_only(rows) if row.fault.family == family]
        later = [row for row in _host_only(rows, kept_on=True) if row.fault.family == family]
        yield share_bar(f"{family}, carry-over delta: all, in the first window with the fault", first, _aims)
        yield share_bar(f"{family}, carry-over delta: all, in the second window with the fault", later, _aims)


def _host_only(rows: Sequence[Seen], kept_on: bool = False) -> list[Seen]:
    """Return the rows with callbacks without a barrier and optimizers on one host, plain and sharded."""
    ending = KEPT_ON if kept_on else ""
    chosen = [row for name in ("beyond", *SHARDED) for row in of(rows, name + ending)]
    return [row for row in chosen if row.fault.family in BEYOND]


def _scoped(rows: Sequence[Seen]) -> Iterable[AcceptanceBar | None]:
    accumulated = [row for row in of(rows, "accumulation") if row.fault.family in ("data", "backward")]
    yield share_bar("accumulation, data and backward: top-1 in all", accumulated, _is_top(1))
    waited_for = [row for name in SHARDED for row in of(rows, name) if row.fault.family not in BEYOND]
    yield share_bar(
        "sharded, where a wait follows: top-1 in 87 of 90, as the paper", waited_for, _is_top(1), 87 / 90
    )
    yield share_bar("callback/sync: top-2 in all", of(rows, "callbacks"), _is_top(2))


def _removed(rows: Sequence[Seen]) -> Iterable[AcceptanceBar | None]:
    chosen = of(rows, "A/B/A")
    if not chosen:
        return
    away = []
    for place in range(0, len(chosen), 3):
        found = compare(*(row.diagnosis for row in chosen[place : place + 3]))
        before, _, after = (float(found.account(side).step_ns) / 1e6 for side in found.sides)
        away.append(abs(after - before))
    target = f"A/B/A: back within {PAPER_TOLERANCE_MS} ms, as the paper"
    yield AcceptanceBar(target, f"at most {max(away):.2f} ms", max(away) <= PAPER_TOLERANCE_MS)


def _no_fault(rows: Sequence[Seen]) -> Iterable[AcceptanceBar | None]:
    chosen = of(rows, "no fault")
    yield share_bar("no fault: none needs attention", chosen, lambda row: row.diagnosis.is_healthy)
    yield share_bar("no fault: no strong label, as the paper", chosen, lambda row: not row.is_strong)


def _is_top(places: int) -> Callable[[Seen], bool]:
    return lambda row: row.fault.stage in row.ranked()[:places]


def _is_candidate(row: Seen) -> bool:
    return row.fault.stage in row.candidates()


def _aims(row: Seen) -> bool:
    return row.aims_at_stage
