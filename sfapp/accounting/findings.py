"""From lateness and growth to findings: effects with an interval and a chance (accounting.md §17).

A finding needs attention if its chance is at most alpha and its effect at least min_effect. Growth gets half
of alpha, ranks late on average and ranks late in single steps a quarter each.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from sfapp.accounting.carry_over import CarryOver
from sfapp.accounting.late_ranks import (
    Floats,
    LateSteps,
    StageLateness,
    chance_of_events,
    persistently_late,
)
from sfapp.accounting.layout_table import hidden_stages
from sfapp.accounting.leaders import Ints
from sfapp.accounting.measures import Measures
from sfapp.accounting.noise import (
    MeanError,
    WindowSpread,
    difference_error,
    mean_margin,
    step_noise,
    step_spread,
)
from sfapp.accounting.saved_time import SavedTime, saved_time
from sfapp.accounting.window_lateness import lateness_of, lateness_that_costs
from sfapp.model import LABELS, Diagnosis, Gates, Reference
from sfapp.model.findings import Finding, Resolution, StepNoise
from sfapp.model.labels import STRONG_LABELS
from sfapp.model.manifest import Label

POWER = 0.05
"""Chance of missing an effect as large as the resolution."""

LARGEST_RESOLUTION = 10.0
"""Largest resolution, as a multiple of the step; a stage in which only a longer delay would be found has
none."""

GROWTH_PART, PERSISTENT_PART, SINGLE_PART = 0.5, 0.25, 0.25
"""How alpha is divided among growth, ranks late on average, and ranks late in single steps."""

STRONG_PART = 1e-3
"""Part of alpha that a finding's chance must not exceed for strong labels to stand. A share alpha of healthy
windows needs attention by chance, and none of these may carry a strong label."""

_DOMINANT = 0.8
"""Part of the cost of all late ranks that one rank must cause alone to be named alone."""


def with_late_ranks(judged: Diagnosis, measures: Measures, carry: CarryOver | None) -> Diagnosis:
    """Return the diagnosis with the findings of its own matrix (§17)."""
    advance_SN = measures.advance_SN if carry is None else carry.advance_SN
    hidden = hidden_stages(judged)
    late = late_findings(measures, carry, judged.gates)
    judged = judged.changed(
        noise=step_noise(advance_SN.sum(axis=0)),
        findings=tuple(finding for finding, _ in late),
        resolution=Resolution(None, rank_resolution(measures, carry, judged.gates, hidden)),
    )
    jitter = jitter_finding(judged, measures, carry, [saved_N for _, saved_N in late])
    return judged if jitter is None else judged.changed(findings=(*judged.findings, jitter))


def late_findings(measures: Measures, carry: CarryOver | None, gates: Gates) -> list[tuple[Finding, Floats]]:
    """Return a finding for each broad stage in which ranks are late, largest first, with the time that each
    step would save without their lateness, ns [N]."""
    boundary = None if carry is None else carry.boundary
    lateness = lateness_of(measures, boundary)
    if lateness is None:
        return []
    step_ns = mean_step_ns(measures, carry)
    found = []
    for place, stage in enumerate(lateness):
        late = _late_finding(measures, carry, place, stage, gates, step_ns)
        if late is not None:
            found.append(late)
    return sorted(found, key=lambda late: -late[0].effect)


def mean_step_ns(measures: Measures, carry: CarryOver | None) -> float:
    """Return the mean exposed step, as ``StepTime.mean_ns``."""
    source = measures if carry is None else carry
    return float(source.advance_SN.sum()) / measures.steps


def _tests(measures: Measures) -> int:
    """Return the number of tests: ranks times stages."""
    return measures.ranks * len(measures.broad)


def _late_finding(
    measures: Measures,
    carry: CarryOver | None,
    place: int,
    stage: StageLateness,
    gates: Gates,
    step_ns: float,
) -> tuple[Finding, Floats] | None:
    boundary = None if carry is None else carry.boundary
    tests = _tests(measures)
    always_R = persistently_late(stage, gates.alpha * PERSISTENT_PART / tests)
    always = tuple(always_R.nonzero()[0].tolist())
    late_steps = {
        rank: late
        for rank, late in stage.late_steps.items()
        if late.chance * tests <= gates.alpha * SINGLE_PART
    }
    single = {rank: late for rank, late in late_steps.items() if not always_R[rank]}
    if not always and not single:
        return None
    costs = _costs(measures, boundary, place, always, single)
    first, *others = _ordered(costs)
    burst = late_steps.get(first)
    if not others and first in always and burst is not None and 2 * len(burst.steps) < measures.steps:
        # The mean over the window of one burst of late steps is small, and so is what it costs.
        rest, with_burst = tuple(rank for rank in always if rank != first), single | {first: burst}
        by_step = _costs(measures, boundary, place, rest, with_burst)
        if by_step.alone[first] >= _DOMINANT * costs.alone[first]:
            always, single, costs = rest, with_burst, by_step
    saved_N = costs.together_N
    ranks = _ordered(costs)
    effect = float(saved_N.mean())
    chances = [late.chance * tests / SINGLE_PART for late in single.values()]
    chances += [
        stage.error(rank).chance(float(stage.mean_R[rank])) * tests / PERSISTENT_PART for rank in always
    ]
    low, high = (end / measures.steps for end in (costs.low, costs.high))
    chance = min(1.0, *chances)
    listed = sorted({step for rank, late in single.items() if rank in ranks for step in late.steps})
    if set(ranks) & set(always):
        listed = []
    if len(ranks) > 1:  # They may be late in other steps too, in which they do not stand out.
        members = list(measures.members(place))
        high = max(high, float(_excess_SN(measures, carry)[members].sum()) / measures.steps)
    finding = Finding(
        kind="rank",
        stage=measures.broad[place],
        ranks=tuple(map(measures.led_by.rank.__getitem__, ranks)),
        hostname=measures.led_by.hostname[ranks[0]],
        effect=effect / step_ns,
        low=min(effect, low) / step_ns,
        high=min(1.0, max(effect, high) / step_ns),  # of a whole step
        chance=chance,
        steps=tuple(int(measures.step_N[step]) for step in listed),
        needs_attention=effect >= gates.min_effect * step_ns,
    )
    return finding, saved_N


def _costs(
    measures: Measures,
    boundary: int | None,
    place: int,
    always: tuple[int, ...],
    single: Mapping[int, LateSteps],
) -> SavedTime:
    """Return what ranks cost that are late on average, and others that are late in single steps."""
    steps = tuple((rank, late.steps) for rank, late in sorted(single.items()))
    return saved_time(measures, boundary, place, always, steps)


def _ordered(costs: SavedTime) -> list[int]:
    """Return late ranks, the costliest first; only that one if the others cost little."""
    alone = costs.alone
    ordered = sorted(alone, key=lambda rank: -alone[rank])
    whole = float(costs.together_N.sum())
    return ordered[:1] if alone[ordered[0]] >= _DOMINANT * whole else ordered


def rank_resolution(
    measures: Measures, carry: CarryOver | None, gates: Gates, hidden: Sequence[str]
) -> dict[str, float]:
    """Return for each broad stage the lateness, as a part of the step, at which a rank late in every step is
    found.

    Args:
        hidden: broad stages in which ranks wait for each other and the waits are not known.
    """
    boundary = None if carry is None else carry.boundary
    lateness = lateness_of(measures, boundary)
    if lateness is None:
        return {}
    step_ns = mean_step_ns(measures, carry)
    tests = _tests(measures)
    cost = gates.min_effect * step_ns / (1.0 - gates.min_effect)
    costs = lateness_that_costs(measures, boundary, cost, POWER)
    found = {}
    for name, stage, costly in zip(measures.broad, lateness, costs, strict=True):
        if name in hidden:
            continue
        error = MeanError(stage.typical_error, stage.df)
        shown = error.margin(gates.alpha * PERSISTENT_PART / tests) + error.margin(POWER)
        smallest = max(shown, costly) / step_ns
        if smallest <= LARGEST_RESOLUTION:
            found[name] = smallest
    return found


def growth_error(noise: StepNoise | None, reference: Reference | None) -> MeanError | None:
    """Return the error of the difference between a window's mean step and the healthy windows', ns; None if
    unknown."""
    if noise is None or reference is None or reference.noise is None:
        return None
    spread = WindowSpread(reference.between_ns, reference.between_windows)
    return difference_error(noise, reference.noise, reference.steps, spread)


def growth_finding(diagnosis: Diagnosis, gates: Gates) -> Finding | None:
    """Return the growth of the mean step that late ranks do not explain, or None."""
    reference, change, delta = diagnosis.reference, diagnosis.change, diagnosis.delta_ns
    error = growth_error(diagnosis.noise, reference)
    if reference is None or change is None or delta is None or error is None or change <= 0.0:
        return None
    named = {
        finding.stage for finding in diagnosis.findings if finding.kind == "rank" and finding.needs_attention
    }
    rest = {stage: value for stage, value in delta.items() if stage not in named}
    grown = sum(delta.values()) - sum(max(0.0, delta[stage]) for stage in named)
    if not rest or grown <= 0.0:
        return None
    mean = diagnosis.step_time.mean_ns
    margin = error.half_width
    of_mean = max(error.chance(grown), _chance_of_one_event(grown, error, diagnosis.steps))
    chance = min(1.0, of_mean / GROWTH_PART, _chance_of_longest_step(diagnosis, reference))
    return Finding(
        kind="growth",
        stage=max(rest, key=lambda stage: rest[stage]),
        ranks=(),
        hostname=None,
        effect=grown / mean,
        low=max(0.0, grown - margin) / mean,
        high=min(1.0, (grown + margin) / mean),  # of a whole step
        chance=chance,
        needs_attention=chance <= gates.alpha and grown >= gates.min_effect * mean,
    )


def _chance_of_one_event(grown: float, error: MeanError, steps: int) -> float:
    """Return the chance that one event in a healthy window makes its mean step this much longer.

    Single steps have heavy tails, so a mean cannot be less likely than the one event that would explain it,
    however small the chance of that mean is under Student's t. The event's cost is that of all steps.
    """
    if error.se <= 0.0:
        return 0.0
    chance, _ = chance_of_events([math.sqrt(steps) * grown / error.se], steps)
    return chance


def _chance_of_longest_step(diagnosis: Diagnosis, reference: Reference) -> float:
    """Return the chance of the window's longest step in a healthy window: a single step may cause the
    growth."""
    if reference.noise is None or reference.noise.lag1 <= 0.0:
        return 1.0
    beyond = diagnosis.step_time.longest_ns - reference.step_time_ns
    chance, _ = chance_of_events([beyond / step_spread(reference.noise)], diagnosis.steps)
    return min(1.0, chance / GROWTH_PART)


def growth_resolution(diagnosis: Diagnosis, gates: Gates) -> float | None:
    """Return the smallest growth that this window could show, as a part of its step."""
    error = growth_error(diagnosis.noise, diagnosis.reference)
    if error is None:
        return None
    mean = diagnosis.step_time.mean_ns
    needed = max(error.margin(gates.alpha * GROWTH_PART), gates.min_effect * mean)
    smallest = (needed + error.margin(POWER)) / mean
    return smallest if smallest <= LARGEST_RESOLUTION else None


def jitter_finding(
    judged: Diagnosis, measures: Measures, carry: CarryOver | None, saved: Sequence[Floats]
) -> Finding | None:
    """Return the time lost because the slowest rank changes: the imbalance that late ranks do not explain.

    None if there is none, if late ranks could not be searched for, or between roles. Its interval is that of
    the mean over steps of the excess that remains in each step.

    Args:
        saved: for each finding, the time that each step would save without its late ranks, ns [N].
    """
    imbalance, excess = judged.exposed_imbalance, judged.telling_excess
    is_known = judged.resolution is not None and judged.resolution.rank and not judged.mixes_roles
    if imbalance is None or not excess or not is_known:
        return None
    rest = imbalance - sum(finding.effect for finding in judged.findings)
    if rest < judged.gates.min_effect:
        return None
    rest_N = _excess_N(judged, measures, carry)
    for saved_N in saved:
        rest_N = rest_N - saved_N
    margin = mean_margin(rest_N) / mean_step_ns(measures, carry)
    stage = max(excess, key=lambda name: excess[name])
    low, high = max(0.0, rest - margin), min(1.0, rest + margin)
    return Finding("jitter", stage, (), None, rest, low, high, None)


def _excess_N(judged: Diagnosis, measures: Measures, carry: CarryOver | None) -> Floats:
    """Return each step's excess as used in the exposed imbalance, ns [N]: that of own time if it is larger
    (§15)."""
    whole = judged.carry_over_excess or judged.excess or {}
    if measures.own is not None and sum((judged.own_excess or {}).values()) > sum(whole.values()):
        return np.asarray(_excess_SN(measures, carry).sum(axis=0))
    source = carry or measures
    return np.asarray((source.advance_SN - measures.median_SN).clip(min=0).sum(axis=0))


def _excess_SN(measures: Measures, carry: CarryOver | None) -> Ints:
    """Return by how much each stage advances beyond a typical rank's time, ns; of own time if it is known."""
    source = carry or measures
    own = measures.own or measures
    return np.asarray((source.own_advance_SN - own.median_SN).clip(min=0))


def with_findings(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with growth added to the findings of its own matrix, largest first.

    What one rank costs in several stages counts together: whatever slows a rank down does so in every stage.
    """
    gates = diagnosis.gates
    findings = [found for found in diagnosis.findings if found.kind != "growth"]
    growth = growth_finding(diagnosis, gates)
    if growth is not None:
        findings.append(growth)
    of_rank: dict[int, float] = defaultdict(float)
    for found in findings:
        if found.needs_attention and len(found.ranks) == 1:
            of_rank[found.ranks[0]] += found.effect

    def size(found: Finding) -> float:
        is_of_one = found.needs_attention and len(found.ranks) == 1
        return of_rank[found.ranks[0]] if is_of_one else found.effect

    findings.sort(key=lambda found: (not found.needs_attention, -size(found), -found.effect))
    resolution = (
        Resolution(growth_resolution(diagnosis, gates), rank=diagnosis.resolution.rank)
        if diagnosis.resolution
        else None
    )
    return diagnosis.changed(findings=tuple(findings), resolution=resolution)


def with_noise_floor(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis without its strong stage labels if no finding is far beyond noise (§17).

    They return if the same window, compared with another reference, has such a finding.
    """
    within_noise = ("within_noise",)
    restored = [Label(label.label) for label in diagnosis.suppressed if label.reasons == within_noise]
    labels = [*diagnosis.labels, *restored]
    suppressed = [label for label in diagnosis.suppressed if label.reasons != within_noise]
    is_on = diagnosis.gates.noise_floor == "measured" and diagnosis.knows_noise
    largest_chance = STRONG_PART * diagnosis.gates.alpha
    is_explained = any(
        found.needs_attention and found.chance is not None and found.chance <= largest_chance
        for found in diagnosis.findings
    )
    if is_on and not is_explained:
        strong = [label for label in labels if label.label in STRONG_LABELS]
        labels = [label for label in labels if label.label not in STRONG_LABELS]
        suppressed += [Label(label.label, within_noise) for label in strong]
    if not restored and len(labels) == len(diagnosis.labels):
        return diagnosis
    order = list(LABELS)
    labels.sort(key=lambda label: order.index(label.label))
    return diagnosis.changed(labels=tuple(labels), suppressed=tuple(suppressed))
