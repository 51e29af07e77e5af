"""Compare injected faults with verdicts, as rows. Pure, so that it can be tested with worked cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.experiments.plan import BACKWARD, PlannedFault
from sfapp.accounting.routing import routing_set
from sfapp.model import Diagnosis
from sfapp.model.labels import STRONG_LABELS

FRONTIER = "frontier"
RULES = (FRONTIER, "per_stage_max", "per_stage_mean", "rank_spread", "slowest_rank", "rank_0")


@dataclass(frozen=True, slots=True)
class Seen:
    """One window: the injected fault and the verdict."""

    job: str
    fault: PlannedFault
    diagnosis: Diagnosis

    def shares(self, rule: str = FRONTIER) -> dict[str, float]:
        if rule == FRONTIER:
            return self.diagnosis.shares or {}
        return next(rival.shares for rival in self.diagnosis.rivals if rival.rule == rule)

    def ranked(self, rule: str = FRONTIER) -> list[str]:
        """Return the stages by share, largest first."""
        shares = self.shares(rule)
        return sorted(shares, key=lambda stage: -shares[stage])

    def candidates(self, rule: str = FRONTIER, tau_c: float = 0.8) -> set[str]:
        """Return the smallest set of leading stages that reaches τC."""
        shares = self.shares(rule)
        names = list(shares)
        return {names[place] for place in routing_set(np.array([shares[name] for name in names]), tau_c)}

    @property
    def aim_stage(self) -> str | None:
        """The suspect stage, whatever the basis of the verdict."""
        return self.diagnosis.aim.stage if self.diagnosis.aim is not None else None

    @property
    def aims_at_stage(self) -> bool:
        """Whether the carry-over delta against the run's healthy window points to the stage."""
        aim = self.diagnosis.aim
        return aim is not None and aim.basis == "delta" and aim.stage == self.fault.stage

    @property
    def aims_at_rank(self) -> bool:
        """Whether the verdict names the rank; a rank that is late inside a group wait cannot be
        distinguished."""
        aim = self.diagnosis.aim
        if aim is None:
            return False
        hidden_by_wait = self.fault.stage == BACKWARD and aim.rank_reason == "all_ranks"
        return aim.rank == self.fault.rank or hidden_by_wait

    @property
    def is_strong(self) -> bool:
        return bool(set(STRONG_LABELS) & set(self.diagnosis.label_names))


@dataclass(frozen=True, slots=True)
class Count:
    """Number of windows that a rule routes right, and the sizes of its sets."""

    rows: int
    top_1: int
    top_2: int
    hit: int
    mean_size: float
    largest: int


def count(rows: Sequence[Seen], rule: str = FRONTIER, tau_c: float = 0.8) -> Count:
    """Count top-1, top-2 and candidate-set hits of a rule."""
    sets = [row.candidates(rule, tau_c) for row in rows]
    return Count(
        rows=len(rows),
        top_1=sum(row.ranked(rule)[0] == row.fault.stage for row in rows),
        top_2=sum(row.fault.stage in row.ranked(rule)[:2] for row in rows),
        hit=sum(row.fault.stage in found for row, found in zip(rows, sets, strict=True)),
        mean_size=sum(map(len, sets)) / max(1, len(sets)),
        largest=max(map(len, sets), default=0),
    )


def of(rows: Iterable[Seen], experiment: str, family: str | None = None) -> list[Seen]:
    """Return the rows of one experiment, optionally of one fault family."""
    return [
        row
        for row in rows
        if row.fault.experiment == experiment and (family is None or row.fault.family == family)
    ]
