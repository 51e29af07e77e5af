"""Windows or whole runs side by side: an exact split of the change in step time (accounting.md §14).

Works on diagnoses alone, so that stored ones can be compared without their matrices. Everything additive is
kept in whole nanoseconds over a whole number of steps, so that the parts of a change add up to it exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from sfapp.accounting.aim import per_step_delta
from sfapp.accounting.routing import names, routing_set
from sfapp.errors import ComparisonError
from sfapp.model import Diagnosis, Frontier

LETTERS = ("A", "B", "C")
"""What the sides of a comparison are called, in order."""

CAVEATS = {
    "rank_counts_differ": "the sides do not have the same number of ranks",
    "steps_not_consecutive": "a window's step numbers have gaps, so only step-aligned frontiers are compared",
    "telemetry_limited": "a window's evidence is limited",
    "denominator_floor": "a window exposes less time than the floor, so shares and routing sets are absent",
    "same_windows": "two sides are the same",
}
"""What to keep in mind beside the numbers, by its machine-readable name."""


@dataclass(frozen=True, slots=True)
class Account:
    """What some steps exposed on one frontier: whole nanoseconds by broad stage, over ``steps`` steps."""

    steps: int
    advance_ns: Mapping[str, int]

    @property
    def step_ns(self) -> Fraction:
        """Mean exposed step, ns."""
        return Fraction(sum(self.advance_ns.values()), self.steps)

    @property
    def per_step_ns(self) -> dict[str, Fraction]:
        """Mean advance a step by broad stage, ns; adds up to ``step_ns`` exactly."""
        return {stage: Fraction(total, self.steps) for stage, total in self.advance_ns.items()}

    @property
    def shares(self) -> dict[str, float]:
        """A or A' of these steps taken together (§1, §10)."""
        total = sum(self.advance_ns.values())
        return {stage: advance / total if total else 0.0 for stage, advance in self.advance_ns.items()}


@dataclass(frozen=True, slots=True)
class Change:
    """From one account to another on the same frontier."""

    before: Account
    after: Account

    @property
    def delta_ns(self) -> dict[str, Fraction]:
        """Change of each stage's mean advance a step, ns; adds up to ``total_ns`` exactly (§4)."""
        return per_step_delta(self.after.advance_ns, self.after.steps, self.before.per_step_ns)

    @property
    def total_ns(self) -> Fraction:
        """Change of the mean exposed step, ns."""
        return self.after.step_ns - self.before.step_ns

    @property
    def relative(self) -> Fraction | None:
        """``total_ns`` as a part of the step before; None where that took no time."""
        return self.total_ns / self.before.step_ns if self.before.step_ns else None


@dataclass(frozen=True, slots=True)
class StageLeader:
    """The rank that leads most often at a stage (§3, §12): in ``led`` of ``eligible`` steps.

    Over several windows each one contributes its most frequent leader, so ``led`` is a least number.
    """

    rank: int
    hostname: str | None
    led: int
    eligible: int

    @property
    def share(self) -> float:
        return self.led / self.eligible


@dataclass(frozen=True, slots=True)
class Spread:
    """The smallest, the middle and the largest of some windows' values, in the unit of the values."""

    least: float
    median: float
    most: float


@dataclass(frozen=True, slots=True)
class WindowAccount:
    """One window of a side, on both frontiers; ``carry_over`` is None where it is not defined (§10)."""

    window: int
    step: Account
    carry_over: Account | None
    severity: float | None

    def on(self, frontier: Frontier) -> Account | None:
        """The account of one frontier."""
        return self.carry_over if frontier == "carry_over" else self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: a window, or all windows of a run with every step counted once.

    Attributes:
        window: its number; None for a whole run.
        windows: what it is made of, ascending.
        step, carry_over: all steps on either frontier; ``carry_over`` is None where a window lacks it.
        ranks: how many ranks the windows have, ascending, each number once.
        labels: every label that holds in some window, with the number of windows, in order of decision.
        leaders: by broad stage, None where no step is eligible.
        severity: the worst window's.
    """

    run_id: str
    window: int | None
    group: str
    stages: tuple[str, ...]
    recorded_stages: tuple[str, ...]
    windows: tuple[WindowAccount, ...]
    step: Account
    carry_over: Account | None
    ranks: tuple[int, ...]
    labels: Mapping[str, int]
    leaders: Mapping[str, StageLeader | None]
    severity: float | None
    has_shares: bool
    tau_c: float

    @property
    def steps(self) -> int:
        return self.step.steps

    def on(self, frontier: Frontier) -> Account | None:
        """All its steps on one frontier."""
        return self.carry_over if frontier == "carry_over" else self.step

    def shares(self, frontier: Frontier) -> dict[str, float] | None:
        """Shares of all its steps; None below the denominator floor."""
        account = self.on(frontier)
        return account.shares if account is not None and self.has_shares else None

    def routing_set(self, frontier: Frontier) -> tuple[str, ...] | None:
        """C_route of those shares at the windows' own τC (§5)."""
        shares = self.shares(frontier)
        if shares is None:
            return None
        return names(self.stages, routing_set(np.array(list(shares.values())), self.tau_c))

    def spread(self, frontier: Frontier, stage: str | None = None) -> Spread | None:
        """How the windows' mean steps (or one stage's mean advances) spread, ns, each window counted once."""
        accounts = [window.on(frontier) for window in self.windows]
        values = [
            (sum(account.advance_ns.values()) if stage is None else account.advance_ns[stage]) / account.steps
            for account in accounts
            if account is not None
        ]
        if len(values) < len(accounts):
            return None
        return Spread(min(values), float(np.median(values)), max(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides, or three of which the last should be like the first (A/B/A).

    Attributes:
        split_on: the frontier on which changes are stated first: carry-over where every window has it.
        frontier: the one whose shares decide routing and labels, as the windows were judged.
        caveats: keys of ``CAVEATS``.
    """

    a: Side
    b: Side
    c: Side | None
    split_on: Frontier
    frontier: Frontier
    caveats: tuple[str, ...]

    @property
    def sides(self) -> tuple[Side, ...]:
        """A, B and, where there is one, C."""
        return (self.a, self.b) if self.c is None else (self.a, self.b, self.c)

    @property
    def stages(self) -> tuple[str, ...]:
        return self.a.stages

    def change(self, before: Side, after: Side, frontier: Frontier | None = None) -> Change | None:
        """From one side to another on a frontier, ``split_on`` where None; None where a side lacks it."""
        frontier = frontier or self.split_on
        first, second = before.on(frontier), after.on(frontier)
        return None if first is None or second is None else Change(first, second)

    @property
    def main(self) -> Change:
        """From A to B on ``split_on``."""
        return Change(self.account(self.a), self.account(self.b))

    def account(self, side: Side) -> Account:
        """All steps of a side on ``split_on``."""
        account = side.on(self.split_on)
        if account is None:
            raise ComparisonError(f"run {side.run_id!r} has no {self.split_on} frontier in every window")
        return account

    @property
    def recovery(self) -> Fraction | None:
        """(B − A2) / (B − A1) of the mean steps, A2 being C; None where ``recovery_reason`` says why."""
        if self.c is None or not self.main.total_ns:
            return None
        return (self.account(self.b).step_ns - self.account(self.c).step_ns) / self.main.total_ns

    @property
    def recovery_reason(self) -> str | None:
        """``no_third_window`` or ``no_change`` where there is no recovery ratio."""
        if self.c is None:
            return "no_third_window"
        return None if self.main.total_ns else "no_change"

    def labels_gained(self, before: Side, after: Side) -> tuple[str, ...]:
        """Labels that hold in some window after, and in none before."""
        return tuple(label for label in after.labels if label not in before.labels)

    def document(self) -> dict[str, Any]:
        """The JSON object of this comparison, the same on every surface.

        ``advance_ns`` and ``steps`` of the sides are whole numbers: every delta follows from them exactly.
        """
        pairs = [("a_to_b", self.a, self.b)]
        if self.c is not None:
            pairs += [("b_to_c", self.b, self.c), ("a_to_c", self.a, self.c)]
        return {
            "split_on": self.split_on,
            "frontier": self.frontier,
            "stages": list(self.stages),
            **{name.lower(): self._side(side) for name, side in zip(LETTERS, self.sides, strict=False)},
            "changes": {name: self._pair(before, after) for name, before, after in pairs},
            "recovery": None if self.recovery is None else float(self.recovery),
            "recovery_reason": self.recovery_reason,
            "caveats": list(self.caveats),
        }

    def _side(self, side: Side) -> dict[str, Any]:
        shares, routed = side.shares(self.frontier), side.routing_set(self.frontier)
        return {
            "run_id": side.run_id,
            "window": side.window,
            "group": side.group,
            "steps": side.steps,
            "ranks": list(side.ranks),
            "step_time_ns": float(self.account(side).step_ns),
            "advance_ns": {
                frontier: None if account is None else dict(account.advance_ns)
                for frontier, account in (("carry_over", side.on("carry_over")), ("step", side.on("step")))
            },
            "shares": shares,
            "routing_set": None if routed is None else list(routed),
            "labels": dict(side.labels),
            "severity": side.severity,
            "leaders": {stage: _leader_document(leader) for stage, leader in side.leaders.items()},
            "windows": [self._window(window) for window in side.windows],
            "spread_ns": _spread_document(side.spread(self.split_on)),
            "stage_spread_ns": {
                stage: _spread_document(side.spread(self.split_on, stage)) for stage in self.stages
            },
        }

    def _window(self, window: WindowAccount) -> dict[str, Any]:
        account = window.on(self.split_on)
        return {
            "window": window.window,
            "steps": window.step.steps,
            "step_time_ns": None if account is None else float(account.step_ns),
            "severity": window.severity,
        }

    def _pair(self, before: Side, after: Side) -> dict[str, Any]:
        first, second = before.shares(self.frontier), after.shares(self.frontier)
        routed_before, routed_after = before.routing_set(self.frontier), after.routing_set(self.frontier)
        return {
            "carry_over": _change_document(self.change(before, after, "carry_over")),
            "step": _change_document(self.change(before, after, "step")),
            "shares": None
            if first is None or second is None
            else {stage: second[stage] - first[stage] for stage in self.stages},
            "labels_gained": list(self.labels_gained(before, after)),
            "labels_lost": list(self.labels_gained(after, before)),
            "routing_gained": [stage for stage in routed_after or () if stage not in (routed_before or ())],
            "routing_lost": [stage for stage in routed_before or () if stage not in (routed_after or ())],
        }


def _change_document(change: Change | None) -> dict[str, Any] | None:
    if change is None:
        return None
    return {
        "step_time_ns": float(change.total_ns),
        "relative": None if change.relative is None else float(change.relative),
        "stages_ns": {stage: float(delta) for stage, delta in change.delta_ns.items()},
    }


def _spread_document(spread: Spread | None) -> dict[str, float] | None:
    if spread is None:
        return None
    return {"min": spread.least, "median": spread.median, "max": spread.most}


def _leader_document(leader: StageLeader | None) -> dict[str, Any] | None:
    if leader is None:
        return None
    return {
        "rank": leader.rank,
        "hostname": leader.hostname,
        "led_steps": leader.led,
        "eligible_steps": leader.eligible,
    }


def compare(
    a: Diagnosis | Sequence[Diagnosis],
    b: Diagnosis | Sequence[Diagnosis],
    c: Diagnosis | Sequence[Diagnosis] | None = None,
) -> Comparison:
    """Compare two windows or whole runs, or three of which the last should be like the first.

    Args:
        a, b, c: one diagnosis for a window, all diagnoses of one run for the whole run; judged alike.

    Raises:
        ComparisonError: stages, group, gates or frontiers differ, or a side is empty or holds several runs.
    """
    given = [found for found in (a, b, c) if found is not None]
    diagnoses = [(found,) if isinstance(found, Diagnosis) else tuple(found) for found in given]
    for letter, found in zip(LETTERS, diagnoses, strict=False):
        _require_one_run(letter, found)
    _require_alike(
        [(letter, one) for letter, found in zip(LETTERS, diagnoses, strict=False) for one in found]
    )
    sides = [
        _side(found, whole=not isinstance(one, Diagnosis))
        for one, found in zip(given, diagnoses, strict=True)
    ]
    every = [one for found in diagnoses for one in found]
    carried = all(one.carry_over_advances_ns is not None for one in every)
    return Comparison(
        a=sides[0],
        b=sides[1],
        c=sides[2] if len(sides) > 2 else None,
        split_on="carry_over" if carried else "step",
        frontier="carry_over" if all(one.frontier == "carry_over" for one in every) else "step",
        caveats=_caveats(every, sides, carried),
    )


def _require_one_run(letter: str, diagnoses: Sequence[Diagnosis]) -> None:
    if not diagnoses:
        raise ComparisonError(f"{letter} has no windows: name a window or a run that has some")
    runs = sorted({diagnosis.run_id for diagnosis in diagnoses})
    if len(runs) > 1:
        raise ComparisonError(
            f"{letter} holds windows of {len(runs)} runs ({', '.join(map(repr, runs[:4]))}): name one of them"
        )


def _require_alike(named: Sequence[tuple[str, Diagnosis]]) -> None:
    """Every window is of one stage list and was judged in the same way."""
    first_letter, first = named[0]
    for letter, other in named[1:]:
        places = f"{_place(first_letter, first)} and {_place(letter, other)} cannot be compared"
        if other.recorded_stages != first.recorded_stages:
            what = _stage_difference(first.recorded_stages, other.recorded_stages)
            raise ComparisonError(
                f"{places}: their stages differ ({what}), so a change could not be split over them; "
                "compare windows that were recorded with the same ordered list of stages"
            )
        if other.group != first.group:
            raise ComparisonError(
                f"{places}: one shows group {first.group!r}, the other {other.group!r}; "
                "diagnose the same group on both"
            )
        if (other.gates, other.baseline) != (first.gates, first.baseline):
            raise ComparisonError(
                f"{places}: they were judged under other gates or another baseline; judge both alike"
            )


def _place(letter: str, diagnosis: Diagnosis) -> str:
    return f"{letter} (run {diagnosis.run_id!r}, window {diagnosis.window})"


def _stage_difference(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """What tells two lists of stages apart, in a few words."""
    only_ours = [stage for stage in ours if stage not in theirs]
    only_theirs = [stage for stage in theirs if stage not in ours]
    parts = []
    if only_ours:
        parts.append(f"only the first has {', '.join(map(repr, only_ours[:3]))}")
    if only_theirs:
        parts.append(f"only the second has {', '.join(map(repr, only_theirs[:3]))}")
    if not parts:
        place = next(at for at, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
        parts.append(f"the same stages in another order, from {ours[place]!r} and {theirs[place]!r} on")
    return "; ".join(parts)


def _side(diagnoses: Sequence[Diagnosis], *, whole: bool) -> Side:
    ordered = sorted(diagnoses, key=lambda diagnosis: diagnosis.window)
    first = ordered[0]
    windows = tuple(_window_account(diagnosis) for diagnosis in ordered)
    carried = [window.carry_over for window in windows if window.carry_over is not None]
    labels = Counter(label for diagnosis in ordered for label in dict.fromkeys(diagnosis.label_names))
    severities = [diagnosis.severity for diagnosis in ordered if diagnosis.severity is not None]
    return Side(
        run_id=first.run_id,
        window=None if whole else first.window,
        group=first.group,
        stages=first.stages,
        recorded_stages=first.recorded_stages,
        windows=windows,
        step=_together([window.step for window in windows]),
        carry_over=_together(carried) if len(carried) == len(windows) else None,
        ranks=tuple(sorted({diagnosis.ranks for diagnosis in ordered})),
        labels=dict(labels),
        leaders={stage: _leader(ordered, stage) for stage in first.stages},
        severity=max(severities, default=None),
        has_shares=all(diagnosis.shares is not None for diagnosis in ordered),
        tau_c=first.gates.tau_c,
    )


def _window_account(diagnosis: Diagnosis) -> WindowAccount:
    carried = diagnosis.carry_over_advances_ns
    return WindowAccount(
        diagnosis.window,
        Account(diagnosis.steps, diagnosis.advances_ns),
        None if carried is None else Account(diagnosis.steps, carried),
        diagnosis.severity,
    )


def _together(accounts: Sequence[Account]) -> Account:
    """Every step counted once."""
    stages = accounts[0].advance_ns
    totals = {stage: sum(account.advance_ns[stage] for account in accounts) for stage in stages}
    return Account(sum(account.steps for account in accounts), totals)


def _leader(diagnoses: Sequence[Diagnosis], stage: str) -> StageLeader | None:
    led: Counter[tuple[int, str | None]] = Counter()
    eligible = 0
    for diagnosis in diagnoses:
        for culprit in diagnosis.culprits:
            if culprit.stage == stage and culprit.rank is not None:
                eligible += culprit.eligible_steps
                led[culprit.rank, culprit.hostname] += round(culprit.share * culprit.eligible_steps)
    if not eligible:
        return None
    (rank, hostname), steps = max(led.items(), key=lambda item: (item[1], -item[0][0]))
    return StageLeader(rank, hostname, steps, eligible)


def _same(one: Side, other: Side) -> bool:
    """By content: two folders may hold runs of one name."""
    return (one.run_id, one.windows) == (other.run_id, other.windows)


def _caveats(every: Sequence[Diagnosis], sides: Sequence[Side], carried: bool) -> tuple[str, ...]:
    holds = {
        "rank_counts_differ": len({side.ranks for side in sides}) > 1,
        "steps_not_consecutive": not carried,
        "telemetry_limited": any("telemetry_limited" in diagnosis.label_names for diagnosis in every),
        "denominator_floor": not all(side.has_shares for side in sides),
        "same_windows": any(_same(one, other) for one, other in combinations(sides, 2)),
    }
    return tuple(name for name in CAVEATS if holds[name])
