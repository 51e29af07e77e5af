"""The verdict for every (γA, γG) and the routing set for every τC: exact, from the few places they change."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from sfapp.accounting.judge import judge
from sfapp.accounting.measures import Measures
from sfapp.accounting.routing import names, ranked
from sfapp.model import Diagnosis, Label
from sfapp.model.labels import STAGE_LABELS


@dataclass(frozen=True, slots=True)
class StageVerdict:
    """The part of a verdict that concerns stages.

    Attributes:
        labels: the labels of that part, none where no stage stands out.
        suppressed: the ones that would, were the telemetry complete (§7.2 to §7.4).
        stages: the stages they name.
    """

    labels: tuple[Label, ...]
    suppressed: tuple[Label, ...]
    stages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle of the (γA, γG) plane under one verdict; ends as ``(low, high)``."""

    gamma_a: tuple[float, float]
    gamma_g: tuple[float, float]
    verdict: StageVerdict


@dataclass(frozen=True, slots=True)
class VerdictMap:
    """The plane cut where verdicts change.

    Attributes:
        share: of s1. From γA = share on, s1 is not dominant.
        gains: ascending. Up to γG = gain, a gain counts; beyond, it does not.
        verdicts: by side of ``share`` (below, then from it on) and interval of ``gains``.
    """

    share: float
    gains: tuple[float, ...]
    verdicts: tuple[tuple[StageVerdict, ...], tuple[StageVerdict, ...]]

    def at(self, gamma_a: float, gamma_g: float) -> StageVerdict:
        """Return the verdict under these two gates, other thresholds fixed."""
        return self.verdicts[int(gamma_a >= self.share)][bisect_left(self.gains, gamma_g)]

    @property
    def regions(self) -> tuple[Region, ...]:
        """Rectangles that cover the plane; neighbours under one verdict are one, empty ones left out."""
        below, from_on = (self._columns(verdicts) for verdicts in self.verdicts)
        if below == from_on:
            columns = [((0.0, 1.0), below)]
        else:
            columns = [((0.0, self.share), below), ((self.share, 1.0), from_on)]
        return tuple(
            Region(across, up, verdict)
            for across, parts in columns
            for up, verdict in parts
            if across[0] < across[1] and up[0] < up[1]
        )

    def _columns(self, verdicts: tuple[StageVerdict, ...]) -> list[tuple[tuple[float, float], StageVerdict]]:
        cells = zip(pairwise((0.0, *self.gains, 1.0)), verdicts, strict=True)
        merged = []
        for verdict, group in groupby(cells, key=lambda cell: cell[1]):
            ends = [cell[0] for cell in group]
            merged.append(((ends[0][0], ends[-1][1]), verdict))
        return merged


def verdict_map(measures: Measures, diagnosis: Diagnosis) -> VerdictMap | None:
    """Return the stage verdict over all of γA and γG, the other gates as they are; None below the floor.

    γA is compared with the share of s1 alone, γG with the gain of s1 and with the largest gain (§7.6, §7.7):
    at most six cells, each judged once.
    """
    shares, gains, top = diagnosis.top_stages(), diagnosis.static_gain, diagnosis.top_stage
    if not shares or gains is None or top is None:
        return None
    # The map is the same for all γA and γG and, without device events, for all τC (§7.8).
    others = diagnosis.gates.with_values(gamma_a=0.0, gamma_g=0.0)
    if measures.device is None:
        others = others.with_values(tau_c=0.0)
    key = others, diagnosis.frontier, diagnosis.reference, measures.run_waits
    last: _LastMap = measures.keep("last map", None, lambda _: _LastMap())
    if last.found is None or last.found[0] != key:
        cuts = tuple(sorted({gain for gain in (gains[top], max(gains.values())) if 0 <= gain < 1}))
        below, from_on = (
            tuple(_judged(measures, diagnosis, gamma_a, gamma_g) for gamma_g in (*cuts, 1.0))
            for gamma_a in (0.0, 1.0)
        )
        last.found = key, VerdictMap(shares[top], cuts, (below, from_on))
    return last.found[1]


class _LastMap:
    """The last map of a window: a dragged threshold shows it many times."""

    found: tuple[object, VerdictMap] | None = None


def _judged(measures: Measures, diagnosis: Diagnosis, gamma_a: float, gamma_g: float) -> StageVerdict:
    gates = diagnosis.gates.with_values(gamma_a=gamma_a, gamma_g=gamma_g)
    return stage_verdict(judge(measures, gates, diagnosis.frontier, diagnosis.reference))


def stage_verdict(diagnosis: Diagnosis) -> StageVerdict:
    """Return the part of a diagnosis that γA and γG decide."""
    labels = tuple(label for label in diagnosis.labels if label.label in STAGE_LABELS)
    stages: tuple[str, ...] = ()
    if any(label.label == "co_critical" for label in labels):
        stages = diagnosis.co_critical_stages or ()
    elif (labels or diagnosis.suppressed) and diagnosis.top_stage is not None:
        stages = (diagnosis.top_stage,)
    return StageVerdict(labels, diagnosis.suppressed, stages)


@dataclass(frozen=True, slots=True)
class RoutingInterval:
    """The routing set while ``low < τC ≤ high`` (from zero on in the first)."""

    low: float
    high: float
    stages: tuple[str, ...]


def routing_intervals(diagnosis: Diagnosis) -> tuple[RoutingInterval, ...]:
    """Return the routing set over all of τC: a stage joins where τC passes what those before it add up to
    (§5)."""
    shares = diagnosis.carry_over_shares if diagnosis.frontier == "carry_over" else diagnosis.shares
    if not shares:
        return ()
    share_B = np.array(list(shares.values()))
    order = ranked(share_B)
    found: list[RoutingInterval] = []
    low = reached = 0.0
    for count, stage in enumerate(order, start=1):
        reached += float(share_B[stage])
        high = 1.0 if count == len(order) else min(reached, 1.0)
        # What differs by rounding alone is no interval: the set is full once all but nothing is reached.
        if 1.0 - high < 1e-12:
            high = 1.0
        if high > low:
            found.append(RoutingInterval(low, high, names(tuple(shares), order[:count])))
        low = high
    return tuple(found)
