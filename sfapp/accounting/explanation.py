"""Why a rank is late: its host's evidence held against its lateness (accounting.md §21).

A cause is claimed only where its evidence differs from that of the other ranks, goes with the rank's late
steps, and accounts for a part of the delay that matters. Chances are corrected for all channels tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sfapp.accounting.associations import (
    chance_in_steps,
    chance_of_excess,
    chance_of_signs,
    effective_steps,
    holm,
    over_peers,
    rank_correlation,
    slope,
    without_outliers,
)
from sfapp.accounting.host_channels import OF_MACHINE, HostChannel, HostRecord, has_host_evidence, host_record
from sfapp.accounting.late_ranks import Floats, has_enough_steps
from sfapp.accounting.measures import Measures
from sfapp.accounting.shared_attributes import with_shared_attributes
from sfapp.model import Diagnosis
from sfapp.model.explanation import CAUSES, CauseKind, ChannelEvidence, Explanation, HostCause
from sfapp.model.findings import Finding
from sfapp.model.host_evidence import MINOR_FAULTS, THROTTLED
from sfapp.model.periods import known_periods

LEAST_PART = 0.25
"""Least part of the delay that a cause must account for."""

LEAST_SLOPE = 0.5
"""Slope of lateness on a time from which the time may explain it; 1 if it is the only cause."""

STEADY = 0.25
"""Standard deviation of a time, as a part of its mean, up to which it is the same in every step."""

LONGEST_MINOR_FAULT_MS = 0.02
"""Longest time that one minor fault accounts for: pages are also touched first by whatever else takes
time."""

MOST_EXPLAINED = 4
"""Number of findings of one window whose ranks are examined."""

_OF_CPU = ("gc", "page_faults")
_NOT_OF_CPU = ("throttled", "page_faults", "storage", "no_core")
"""Specific causes within CPU time, and within time without it."""


@dataclass(frozen=True, slots=True)
class _ExplainedKey:
    """What an explanation depends on besides the matrix."""

    stage: str
    rank: int
    steps: tuple[int, ...]
    alpha: float


@dataclass(frozen=True, slots=True)
class _Tested:
    """One channel held against the lateness, with its chance before correction."""

    channel: HostChannel
    value: float
    peers: float
    correlation: float | None
    accounts_ms: float
    chance: float


def with_reasons(judged: Diagnosis, measures: Measures) -> Diagnosis:
    """Return the diagnosis with what may explain its late ranks (§21)."""
    explained = with_shared_attributes(with_explanations(judged, measures), measures.window)
    periods = known_periods(measures.window.manifest)
    return explained.changed(periods=periods) if periods else explained


def with_explanations(judged: Diagnosis, measures: Measures) -> Diagnosis:
    """Return the diagnosis with an explanation of each finding of late ranks that needs attention; unchanged
    if nothing was recorded on the hosts."""
    late = [found for found in judged.findings if found.kind == "rank" and found.needs_attention]
    if not late or not has_host_evidence(measures.window):
        return judged
    alpha = judged.gates.alpha
    return judged.changed(
        explanations=tuple(explain_finding(measures, found, alpha) for found in late[:MOST_EXPLAINED])
    )


def explain_finding(measures: Measures, finding: Finding, alpha: float) -> Explanation:
    """Return why the latest rank of a finding is late, as far as its host recorded it."""
    key = _ExplainedKey(finding.stage, finding.ranks[0], finding.steps, alpha)
    return measures.keep("explanation", key, partial(_explain, measures))


def _explain(measures: Measures, key: _ExplainedKey) -> Explanation:
    place = measures.window.ranks.place(key.rank)
    assert place is not None  # Findings of late ranks need every rank's rows.
    record = host_record(measures, measures.broad.index(key.stage), place)
    late = np.flatnonzero(np.isin(measures.step_N, key.steps)).tolist() if key.steps else []
    return explain(key.stage, key.rank, record, late, key.alpha)


def explain(stage: str, rank: int, record: HostRecord, late: Sequence[int], alpha: float) -> Explanation:
    """Return why the first rank of a record is late.

    Args:
        late: positions of its late steps; empty if it is late on average.
        alpha: largest chance of a claimed cause.
    """
    reason = _refusal(record)
    late_NR = over_peers(record.own_NR) if record.own_NR.shape[1] > 1 else record.own_NR
    others_N = np.delete(late_NR[:, 0], late)
    if late and len(others_N) and others_N.mean() >= STEADY * late_NR[list(late), 0].mean():
        late = []  # The rank is late in its other steps, too.
    delay_ms = _in_steps(late_NR[:, 0], late)
    steps = len(late) or len(record.own_NR)
    if reason is not None:
        return Explanation(stage, rank, delay_ms * 1e6, steps, reason=reason)
    tested = [one for one in (_test(channel, late_NR, late) for channel in record.channels) if one]
    chances = holm([one.chance for one in tested])
    evidence = [_evidence(one, chance) for one, chance in zip(tested, chances, strict=True)]
    telling = [
        one for one in evidence if one.chance <= alpha and one.accounts_ns >= LEAST_PART * delay_ms * 1e6
    ]
    causes = _causes(telling, delay_ms * 1e6, knows_cpu=any(c.cause == "computing" for c in record.channels))
    recorded = {channel.cause for channel in record.channels if channel.name not in OF_MACHINE}
    claimed = {cause.kind for cause in causes}
    return Explanation(
        stage=stage,
        rank=rank,
        delay_ns=delay_ms * 1e6,
        steps=steps,
        causes=causes,
        evidence=tuple(sorted(evidence, key=lambda one: -one.accounts_ns)),
        unaffected=tuple(kind for kind in CAUSES if kind in recorded - claimed),
        unrecorded=tuple(kind for kind in CAUSES if kind not in recorded | claimed),
    )


def _in_steps(value_N: Floats, late: Sequence[int]) -> float:
    """Return the mean over all steps; of single steps, by how much they exceed the others."""
    if not late or len(late) == len(value_N):
        return float(value_N.mean())
    return float(value_N[list(late)].mean() - np.delete(value_N, late).mean())


def _refusal(record: HostRecord) -> str | None:
    """Return why a record cannot be examined; None if it can."""
    if record.own_NR.shape[1] < 2:
        return "too_few_ranks"
    return None if has_enough_steps(len(record.own_NR)) else "too_few_steps"


def _test(channel: HostChannel, late_NR: Floats, late: Sequence[int]) -> _Tested | None:
    """Return a channel held against the lateness; None if it has no values or the same one everywhere."""
    known_N = ~np.isnan(channel.value_NR[:, 0])
    compared_R = np.asarray(~np.isnan(channel.value_NR[known_N]).any(axis=0))
    if not compared_R[0] or compared_R.sum() < 2:
        return None
    value_NR = channel.value_NR[known_N][:, compared_R]
    if not has_enough_steps(len(value_NR)) or not np.ptp(value_NR) > 0.0:
        return None
    kept = np.flatnonzero(known_N).tolist()
    excess_NR, known_late_N = over_peers(value_NR), late_NR[known_N, 0]
    late = [kept.index(step) for step in late if step in kept]
    excess_N = excess_NR[:, 0]
    paired: tuple[Floats, Floats] = (
        (known_late_N, excess_N)
        if channel.starts_N is None
        else _by_interval(channel.starts_N, known_late_N, excess_N)
    )
    correlation, by_correlation = rank_correlation(*paired)
    if late:
        chance = chance_in_steps(excess_NR, late)
    else:
        by_steps = by_correlation
        usual = float(excess_NR[:, 1:].std(axis=0).max())
        if channel.is_time and (channel.name == THROTTLED or _may_explain(*paired, usual)):
            by_steps = 2.0 * min(by_correlation, chance_of_signs(paired[1], effective_steps(*paired)))
        by_signs = chance_of_signs(paired[1], effective_steps(paired[1], paired[1]))
        against_peers = 2.0 * min(chance_of_excess(paired[1]), by_signs)
        chance = min(1.0, max(against_peers, by_steps))
    delay_ms = _in_steps(known_late_N, late)
    accounts = _accounts(channel, paired, _in_steps(excess_N, late))
    shown = late or slice(None)
    return _Tested(
        channel,
        float(value_NR[shown, 0].mean()),
        float(np.median(value_NR[shown, 1:].mean(axis=0))),
        correlation,
        min(max(0.0, delay_ms), max(0.0, accounts)),
        chance,
    )


def _by_interval(starts_N: Sequence[int], late_N: Floats, excess_N: Floats) -> tuple[Floats, Floats]:
    """Return means over the intervals between readings: the values within one are not known apart."""
    starts = [start for start in starts_N if start < len(late_N)]
    sizes = np.diff([*starts, len(late_N)])
    return np.add.reduceat(late_N, starts) / sizes, np.add.reduceat(excess_N, starts) / sizes


def _may_explain(late_N: Floats, excess_N: Floats, usual: float) -> bool:
    """Return whether lateness may follow a time one to one. A time that varies while the lateness does not is
    spent elsewhere. (Throttling is not tested so, since it is added up over the cores of a control group.)

    Args:
        usual: largest standard deviation of the time on another rank. Variation of that size shows nothing,
            since it may lie in other stages; nor does one that is small against the time.
    """
    # A single step far outside, as with a collection between two windows, tells nothing about the others.
    late_N, excess_N = without_outliers(late_N), without_outliers(excess_N)
    spread = float(excess_N.std())
    if spread < max(STEADY * float(excess_N.mean()), 1.5 * usual):
        return True
    found, error = slope(late_N, excess_N)
    return found + 2.0 * error >= LEAST_SLOPE


def _accounts(channel: HostChannel, paired: tuple[Floats, Floats], more: float) -> float:
    """Return how much lateness goes with an excess over the peers, ms: a time itself, of counts what goes
    with them by regression."""
    if channel.is_time:
        return more
    found, error = slope(*paired)
    each = found if np.isfinite(error) else 0.0
    return (min(each, LONGEST_MINOR_FAULT_MS) if channel.name == MINOR_FAULTS else each) * more


def _evidence(tested: _Tested, chance: float) -> ChannelEvidence:
    return ChannelEvidence(
        channel=tested.channel.name,
        cause=tested.channel.cause,
        value=tested.value,
        peers=tested.peers,
        correlation=tested.correlation,
        accounts_ns=tested.accounts_ms * 1e6,
        chance=chance,
    )


def _causes(telling: Sequence[ChannelEvidence], delay_ns: float, *, knows_cpu: bool) -> tuple[HostCause, ...]:
    """Return the causes, each with the part of the delay that no more specific one accounts for."""
    by_kind: dict[CauseKind, list[ChannelEvidence]] = {}
    for one in telling:
        if one.cause is not None:
            by_kind.setdefault(one.cause, []).append(one)
    most = {kind: max(one.accounts_ns for one in found) for kind, found in by_kind.items()}
    cpu_ns = most.get("computing", 0.0) if knows_cpu else delay_ns
    other_ns = most.get("blocked", 0.0) if knows_cpu else delay_ns
    unexplained_ns = delay_ns  # Both together may be more: medians of peers do not add up.
    parts: dict[CauseKind, float] = {}
    for kind in CAUSES:
        if kind not in most:
            continue
        of_cpu = of_other = 0.0
        if kind in _OF_CPU or kind == "computing":
            of_cpu = min(most[kind], cpu_ns, unexplained_ns)
        if kind in _NOT_OF_CPU or kind == "blocked":
            of_other = min(most[kind] - of_cpu, other_ns, unexplained_ns - of_cpu)
        cpu_ns, other_ns = cpu_ns - of_cpu, other_ns - of_other
        parts[kind] = of_cpu + of_other
        unexplained_ns -= parts[kind]
    large = {kind: part for kind, part in parts.items() if part >= LEAST_PART * delay_ns}
    return tuple(_cause(kind, part, by_kind) for kind, part in sorted(large.items(), key=lambda one: -one[1]))


def _cause(kind: CauseKind, part: float, by_kind: Mapping[CauseKind, Sequence[ChannelEvidence]]) -> HostCause:
    evidence = by_kind[kind]
    return HostCause(kind, part, min(one.chance for one in evidence), tuple(one.channel for one in evidence))
