"""The sides of a comparison: exposed time of a window or a whole run by stage (accounting.md §14).

Additive quantities are integer nanoseconds over an integer number of steps, so the parts of a change add up
exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from sfapp.accounting.aim import per_step_delta
from sfapp.accounting.noise import LEAST_WINDOWS, long_run, pooled
from sfapp.accounting.routing import names, routing_set
from sfapp.model import Frontier, Gates
from sfapp.model.findings import StepNoise


@dataclass(frozen=True, slots=True)
class Account:
    """Exposed time on one frontier: integer nanoseconds by broad stage, over ``steps`` steps."""

    steps: int
    advance_ns: Mapping[str, int]

    @property
    def step_ns(self) -> Fraction:
        """Mean exposed step, ns."""
        return Fraction(sum(self.advance_ns.values()), self.steps)

    @property
    def per_step_ns(self) -> dict[str, Fraction]:
        """Mean advance per step by broad stage, ns; the sum is exactly ``step_ns``."""
        return {stage: Fraction(total, self.steps) for stage, total in self.advance_ns.items()}

    @property
    def shares(self) -> dict[str, float]:
        """A or A' over all these steps (§1, §10)."""
        total = sum(self.advance_ns.values())
        return {stage: advance / total if total else 0.0 for stage, advance in self.advance_ns.items()}


@dataclass(frozen=True, slots=True)
class Change:
    """The change from one account to another on the same frontier."""

    before: Account
    after: Account

    @property
    def delta_ns(self) -> dict[str, Fraction]:
        """Change of each stage's mean advance per step, ns; the sum is exactly ``total_ns`` (§4)."""
        return per_step_delta(self.after.advance_ns, self.after.steps, self.before.per_step_ns)

    @property
    def total_ns(self) -> Fraction:
        """Change of the mean exposed step, ns."""
        return self.after.step_ns - self.before.step_ns

    @property
    def relative(self) -> Fraction | None:
        """``total_ns`` as a fraction of the earlier step time; None if that is 0."""
        return self.total_ns / self.before.step_ns if self.before.step_ns else None


@dataclass(frozen=True, slots=True)
class StageLeader:
    """The rank that leads most often at a stage (§3, §12): in ``led`` of ``eligible`` steps.

    Each of several windows contributes only its most frequent leader, so ``led`` is a lower bound.
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
    """Minimum, median and maximum of some windows' values, in the unit of the values."""

    least: float
    median: float
    most: float


@dataclass(frozen=True, slots=True)
class WindowAccount:
    """One window of a side, on both frontiers; ``carry_over`` is None if it is not defined (§10)."""

    window: int
    step: Account
    carry_over: Account | None
    severity: float | None
    needs_attention: bool
    noise: StepNoise | None = None

    def on(self, frontier: Frontier) -> Account | None:
        """Return the account of one frontier."""
        return self.carry_over if frontier == "carry_over" else self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: a window, or all windows of a run with every step counted once.

    Attributes:
        window: its number; None for a whole run.
        windows: their numbers, ascending.
        step, carry_over: all steps on each frontier; ``carry_over`` is None if a window lacks it.
        ranks: the distinct numbers of ranks that the windows have, ascending.
        labels: every label that holds in some window, with the number of windows, in order of decision.
        leaders: by broad stage, None if no step is eligible.
        severity: the worst window's.
        suspect: the stage and rank (None: no single one) to which all windows that need attention point; None
            if none needs attention or they differ.
        waits: Σ of the advances while even the last rank waits, ns by broad stage, for stages whose waits
            every window knows (§15); on the frontier ``waits_on``.
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
    gates: Gates
    waits: Mapping[str, int] = field(default_factory=dict)
    waits_on: Frontier = "step"
    suspect: tuple[str, int | None] | None = None

    @property
    def steps(self) -> int:
        return self.step.steps

    def on(self, frontier: Frontier) -> Account | None:
        """Return all its steps on one frontier."""
        return self.carry_over if frontier == "carry_over" else self.step

    def error_variance(self, frontier: Frontier) -> tuple[float, float] | None:
        """Return the variance of the mean step, ns², and its degrees of freedom; None if a window is too
        short (§17). From four windows on, their differences beyond the noise of steps count too."""
        noises = [window.noise for window in self.windows if window.noise is not None]
        if len(noises) < len(self.windows):
            return None
        noise = pooled(noises)
        run = long_run(noise, noises[0].steps)
        variance, df = run.variance / noise.steps, run.error(1, noise.steps).df
        accounts = [account for window in self.windows if (account := window.on(frontier)) is not None]
        if len(accounts) >= LEAST_WINDOWS:
            differences = np.diff([float(account.step_ns) for account in accounts])
            between = float(np.square(differences).mean()) / 2 / len(accounts)
            if between > variance:
                return between, len(accounts) - 1
        return variance, df

    def shares(self, frontier: Frontier) -> dict[str, float] | None:
        """Return shares of all its steps; None below the denominator floor."""
        account = self.on(frontier)
        return account.shares if account is not None and self.has_shares else None

    def routing_set(self, frontier: Frontier) -> tuple[str, ...] | None:
        """Return C_route of those shares at the windows' own τC (§5)."""
        shares = self.shares(frontier)
        if shares is None:
            return None
        return names(self.stages, routing_set(np.array(list(shares.values())), self.gates.tau_c))

    def spread(self, frontier: Frontier, stage: str | None = None) -> Spread | None:
        """Return the spread of the windows' mean steps (or of one stage's mean advances), ns; each window
        counts once."""
        accounts = [window.on(frontier) for window in self.windows]
        values = [
            (sum(account.advance_ns.values()) if stage is None else account.advance_ns[stage]) / account.steps
            for account in accounts
            if account is not None
        ]
        if len(values) < len(accounts):
            return None
        return Spread(min(values), float(np.median(values)), max(values))
