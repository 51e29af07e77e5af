"""The result of a comparison of two or three sides (accounting.md §14)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from sfapp.accounting.comparison_sides import Account, Change, Side
from sfapp.accounting.noise import MeanError
from sfapp.errors import ComparisonError
from sfapp.model import Frontier, Gates

LETTERS = ("A", "B", "C")
"""Names of the sides of a comparison, in order."""

CAVEATS = {
    "rank_counts_differ": "the sides do not have the same number of ranks",
    "steps_not_consecutive": "a window's step numbers have gaps, so only step-aligned frontiers are compared",
    "reduced_rows": "only some windows were reduced by their ranks, which leaves out their offsets",
    "thinned_rows": "some windows were judged by the rows that were kept of them",
    "telemetry_limited": "a window's evidence is limited",
    "denominator_floor": "a window exposes less time than the floor, so shares and routing sets are absent",
    "same_windows": "two sides are the same",
}
"""Limits of the numbers, by machine-readable name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides, or three if the last one is after the fix (A/B/A).

    Attributes:
        split_on: the frontier for times, changes and shares: carry-over if every window has it.
        frontier: the one whose shares decided routing and labels when the windows were judged.
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
        """A, B and, if present, C."""
        return (self.a, self.b) if self.c is None else (self.a, self.b, self.c)

    def of_kept_rows(self) -> Comparison:
        """Return it with the caveat that windows were thinned, which their verdicts do not tell."""
        return replace(self, caveats=(*self.caveats, "thinned_rows"))

    @property
    def gates(self) -> Gates:
        """The gates under which all windows of all sides were judged."""
        return self.a.gates

    @property
    def stages(self) -> tuple[str, ...]:
        return self.a.stages

    def change(self, before: Side, after: Side, frontier: Frontier | None = None) -> Change | None:
        """Return the change from one side to another; None if a side lacks the frontier.

        Args:
            frontier: ``split_on`` if None.
        """
        frontier = frontier or self.split_on
        first, second = before.on(frontier), after.on(frontier)
        return None if first is None or second is None else Change(first, second)

    @property
    def main(self) -> Change:
        """From A to B on ``split_on``."""
        return Change(self.account(self.a), self.account(self.b))

    @property
    def error(self) -> MeanError | None:
        """Standard error of the change from A to B, ns; None if noise is not known (§17)."""
        known = [side.error_variance(self.split_on) for side in (self.a, self.b)]
        parts = [part for part in known if part is not None]
        if len(parts) < len(known):
            return None
        return MeanError(math.sqrt(sum(part[0] for part in parts)), min(part[1] for part in parts))

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """95 % interval of the change from A to B, ns."""
        if self.error is None:
            return None
        total, margin = float(self.main.total_ns), self.error.half_width
        return total - margin, total + margin

    @property
    def chance(self) -> float | None:
        """Chance of a growth from A to B at least this large if the true lengths are equal."""
        return None if self.error is None else self.error.chance(float(self.main.total_ns))

    @property
    def is_beyond_noise(self) -> bool:
        """Whether the step grew from A to B by more than noise explains: its chance is at most alpha. True if
        the chance is unknown."""
        return self.chance is None or self.chance <= self.gates.alpha

    @property
    def is_large_enough(self) -> bool:
        """Whether the step grew from A to B by at least min_effect of B's."""
        change = self.main
        return float(change.total_ns) >= self.gates.min_effect * float(change.after.step_ns)

    @property
    def needs_attention(self) -> bool:
        """Whether the growth from A to B is beyond noise and large enough (§17)."""
        return self.is_beyond_noise and self.is_large_enough

    def account(self, side: Side) -> Account:
        """Return all steps of a side on ``split_on``."""
        account = side.on(self.split_on)
        if account is None:
            raise ComparisonError(f"run {side.run_id!r} has no {self.split_on} frontier in every window")
        return account

    def waiting_ns(self, before: Side, after: Side) -> dict[str, Fraction]:
        """Return the change of the mean a_wait per step, ns, by stage whose waits both sides know on
        ``split_on`` (§15). The rest of such a stage's change is that of its own time."""
        if {before.waits_on, after.waits_on} != {self.split_on}:
            return {}
        return {
            stage: Fraction(after.waits[stage], after.steps) - Fraction(before.waits[stage], before.steps)
            for stage in self.stages
            if stage in before.waits and stage in after.waits
        }

    @property
    def recovery(self) -> Fraction | None:
        """(B − A2) / (B − A1) of the mean steps, A2 being C; None if ``recovery_reason`` gives one."""
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
        """Return labels that hold in some window after and in no window before."""
        return tuple(label for label in after.labels if label not in before.labels)

    def document(self) -> dict[str, Any]:
        """Return the JSON object of this comparison, the same on every surface.

        ``advance_ns`` and ``steps`` of the sides are integers, from which every delta follows exactly.
        """
        from sfapp.accounting.comparison_document import comparison_document  # builds on this module

        return comparison_document(self)
