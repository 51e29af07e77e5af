"""Turn measures into a verdict under gates, without reading the matrix (docs/architecture.md, Rules)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfapp.accounting.aim import with_reference
from sfapp.accounting.carry_over import CarryOver
from sfapp.accounting.device import device_labels
from sfapp.accounting.explanation import with_reasons
from sfapp.accounting.findings import with_late_ranks
from sfapp.accounting.kernels import quantile
from sfapp.accounting.labels import (
    LimitFacts,
    StageFacts,
    ambiguity_set,
    limiting_labels,
    stage_labels,
    suppress,
)
from sfapp.accounting.layout_table import with_layout
from sfapp.accounting.leaders import (
    Flags,
    Floats,
    Ints,
    StageLeaders,
    culprit,
    eligible_steps,
    most_frequent,
    stage_leaders,
    switch_rate,
)
from sfapp.accounting.measures import Measures
from sfapp.accounting.own_time import own_excess
from sfapp.accounting.pipeline import with_pipeline
from sfapp.accounting.routing import by_name, names, ranked, rivals, routing_set
from sfapp.accounting.run_waits import wait_stages
from sfapp.model import (
    ALL_RANKS,
    DEFAULT_FRONTIER,
    Culprit,
    Diagnosis,
    Frontier,
    Gates,
    Label,
    Leader,
    Reference,
    StepTime,
    WaitFit,
)
from sfapp.model.stages import FORWARD, RESIDUAL

_DEFAULT_GATES = Gates()


def sync_boundary(measures: Measures, waits: tuple[int, ...]) -> int | None:
    """Return the wait stage at whose end ranks synchronise best; the first of equal ones (§10)."""
    return min(waits, key=lambda stage: measures.sync_offsets(stage)[1]) if waits else None


def boundary_in_run(measures: Measures, own: int | None) -> int | None:
    """Return the sync boundary that the run's windows show; the window's own if they show none or if this
    window cannot be aligned (§10)."""
    alignable = measures.consecutive and measures.has_all_rows and measures.ranks > 1
    if measures.run_waits is None or not alignable:
        return own
    stages = measures.window.stages
    found = measures.run_waits.boundary_for(None if own is None else stages[own])
    return None if found is None else stages.index(found)


def judge(
    measures: Measures,
    gates: Gates | None = None,
    frontier: Frontier = DEFAULT_FRONTIER,
    reference: Reference | None = None,
) -> Diagnosis:
    """Judge measured evidence under one set of gates.

    Args:
        measures: from ``measure``.
        gates: defaults if None.
        frontier: the one whose shares decide routing and labels: ``carry_over`` or the paper's ``step`` (§5,
            §10). Carry-over falls back to step if step numbers have gaps.
        reference: the run's healthy window, for delta, change and suspect (§12, §13).
    """
    gates = gates or _DEFAULT_GATES
    is_below_floor = measures.makespan < max(1, gates.floor_ns)
    waits = _find_waits(measures, gates, is_below_floor)
    carry = measures.carry(waits.boundary)
    if carry is None:
        frontier = "step"
    raw = _raw_account(measures, gates, frontier, carry)
    if is_below_floor:
        below = Label("telemetry_limited", ("denominator_floor",))
        return raw.changed(labels=(Label("frontier_accounting"), below))
    judged = _judge_shares(measures, raw, waits, carry)
    judged = with_late_ranks(_with_waits(judged, measures, gates, waits), measures, carry)
    judged = with_reasons(with_pipeline(with_layout(judged, measures), measures), measures)
    return with_reference(judged, reference)


@dataclass(frozen=True, slots=True)
class _FoundWaits:
    """Where ranks wait, as positions of recorded stages.

    Attributes:
        own: wait stages by the window's own fit; ``own_boundary`` is its sync boundary.
        boundary: the sync boundary at which the carry-over frontier is aligned.
        stages: all wait stages, ``boundary`` included.
    """

    own: tuple[int, ...]
    own_boundary: int | None
    boundary: int | None
    stages: tuple[int, ...]


def _find_waits(measures: Measures, gates: Gates, is_below_floor: bool) -> _FoundWaits:
    own = wait_stages(measures.wait_slope_S, measures.wait_se_S, gates.wait_slope)
    own_boundary = sync_boundary(measures, own) if measures.consecutive else None
    boundary = own_boundary if is_below_floor else boundary_in_run(measures, own_boundary)
    stages = tuple(sorted({*own, *(() if boundary is None else (boundary,))}))
    return _FoundWaits(own, own_boundary, boundary, stages)


def _judge_shares(
    measures: Measures, raw: Diagnosis, waits: _FoundWaits, carry: CarryOver | None
) -> Diagnosis:
    """Return the raw account with everything that depends on shares."""
    gates = raw.gates
    step_share_B = _shares(measures, measures.advance_SN)
    carry_share_B = None if carry is None else _shares(measures, carry.advance_SN)
    source: CarryOver | Measures = measures
    share_B = step_share_B
    if carry is not None and carry_share_B is not None and raw.frontier == "carry_over":
        source, share_B = carry, carry_share_B
    top = ranked(share_B)[0]
    at_top = stage_leaders(source.advance_SN, source.leader_SN, source.gap_SN, measures.members(top))
    eligible_N = eligible_steps(at_top, measures.makespan_N, gates.gamma_elig, gates.eta_q, measures.ranks)
    # Labels describe this window's own evidence, so W uses its own fit.
    facts = _facts(measures, share_B, top, eligible_N, at_top.leader_N, waits.own, gates)
    routing = names(measures.broad, routing_set(share_B, gates.tau_c))
    residual_share = _residual_share(measures, step_share_B)
    labels, suppressed = _labels(measures, gates, facts, routing, residual_share)
    carry_excess_B = None if carry is None else _excess(measures, carry.advance_SN)
    own_excess_B = _own_excess(measures, carry or measures)
    excess_B = _excess(measures, measures.advance_SN)
    worst_B = excess_B if carry_excess_B is None else carry_excess_B
    return raw.changed(
        shares=by_name(measures.broad, step_share_B),
        static_gain=_named(measures, facts.gain_B),
        excess=_named(measures, excess_B),
        takeover=_named(measures, facts.takeover_B),
        carry_over_shares=_named(measures, carry_share_B),
        carry_over_excess=_named(measures, carry_excess_B),
        own_excess=_named(measures, own_excess_B),
        exposed_imbalance=_imbalance(worst_B, own_excess_B),
        routing_set=routing,
        co_critical_stages=names(measures.broad, ambiguity_set(facts, gates)),
        labels=tuple(labels),
        reasons=_free_reasons(measures, gates, step_share_B, carry_share_B),
        suppressed=tuple(suppressed),
        leader=_leader(measures, at_top, eligible_N),
        switch_rate=facts.switch_rate,
        eligible_steps=facts.eligible,
        closure_residual_share=residual_share,
        overlap_error_share=measures.closure.overlap_share,
        device=measures.device,
        rivals=rivals(measures, gates.tau_c),
        culprits=_culprits(measures, carry, gates),
    )


def _with_waits(judged: Diagnosis, measures: Measures, gates: Gates, waits: _FoundWaits) -> Diagnosis:
    """Return the diagnosis with the fields that state where ranks wait (§10, §11)."""
    stages = measures.window.stages
    since_sync = None if waits.own else _sync_boundary_since_sync(measures, gates)
    return judged.changed(
        wait_fit=_wait_fit(measures) if measures.has_all_rows else None,
        wait_stages=names(stages, waits.stages),
        met_boundary=None if since_sync is None else stages[since_sync],
        met_fit=None if since_sync is None else _fit(*measures.slopes_since_sync(), since_sync),
        own_boundary=None if waits.own_boundary is None else stages[waits.own_boundary],
        sync_boundary=None if waits.boundary is None else stages[waits.boundary],
        waits_from=None if waits.boundary is None else "window" if waits.boundary in waits.own else "run",
    )


def _named(measures: Measures, value_B: Floats | None) -> dict[str, float] | None:
    return None if value_B is None else by_name(measures.broad, value_B)


def _raw_account(measures: Measures, gates: Gates, frontier: Frontier, carry: CarryOver | None) -> Diagnosis:
    """Return the part that exists even below the denominator floor: identity and raw advances."""
    window = measures.window
    return Diagnosis(
        run_id=window.run_id,
        window=window.number,
        group=window.group,
        stages=measures.broad,
        recorded_stages=window.stages,
        ranks=measures.ranks,
        steps=measures.steps,
        nodes=window.node_count,
        first_step=int(measures.step_N[0]),
        last_step=int(measures.step_N[-1]),
        closed_by=window.manifest.closed_by,
        frontier=frontier,
        baseline=measures.baseline,
        gates=gates,
        exposed_makespan_ns=measures.makespan,
        advances_ns=_integers(measures, measures.advance_SN),
        carry_over_advances_ns=None if carry is None else _integers(measures, carry.advance_SN),
        wait_advances_ns=_wait_advances(measures, carry or measures),
        step_time=_step_time(measures, frontier, carry),
        typical_ns=_typical_ns(measures, carry or measures),
        missing_ranks=measures.window.missing_ranks,
        gather_ok=window.manifest.gather_ok,
        recorder_labels=window.manifest.labels,
    )


def _step_time(measures: Measures, frontier: Frontier, carry: CarryOver | None) -> StepTime:
    """Return mean and longest step of the carry-over frontier if there is one, and quantiles of the frontier
    in use."""
    step_N = measures.makespan_N if carry is None else carry.advance_SN.sum(axis=0)
    sorted_N = np.sort(step_N if frontier == "carry_over" else measures.makespan_N).tolist()
    p50, p95 = quantile(sorted_N, 0.5), quantile(sorted_N, 0.95)
    return StepTime(float(step_N.mean()), p50, p95, float(step_N.max()))


def _typical_ns(measures: Measures, frontier: CarryOver | Measures) -> dict[str, float]:
    """Return for each broad stage the mean over steps of the time that more than half of the ranks took.

    Empty if not known. In a stage with known waits this is their own time plus the time that all ranks waited
    after the last one arrived: waiting for a slow rank does not make a rank slow (§15).
    """
    if not measures.has_all_rows:
        return {}
    typical_SN = measures.most_SN
    if measures.own is not None:
        typical_SN = measures.own.most_SN + (frontier.advance_SN - frontier.own_advance_SN)
    return by_name(measures.broad, measures.by_broad(typical_SN.mean(axis=1)))


def _wait_advances(measures: Measures, frontier: CarryOver | Measures) -> dict[str, int] | None:
    """Return Σ_t a_wait of the broad stages with known waits, ns; None if there are none (§15)."""
    if measures.own is None:
        return None
    wait_B = measures.by_broad((frontier.advance_SN - frontier.own_advance_SN).sum(axis=1))
    known = {measures.broad_of_S[stage] for stage in np.flatnonzero(measures.own.split_SN.any(axis=1))}
    return {measures.broad[place]: int(wait_B[place]) for place in sorted(known)}


def _integers(measures: Measures, advance_SN: Ints) -> dict[str, int]:
    advance_B = measures.by_broad(advance_SN.sum(axis=1))
    return {stage: int(advance) for stage, advance in zip(measures.broad, advance_B, strict=True)}


def _shares(measures: Measures, advance_SN: Ints) -> Floats:
    """Return A or A': the share of each broad stage in all advances (§1, §10)."""
    advance_B = measures.by_broad(advance_SN.sum(axis=1))
    return np.asarray(advance_B / advance_B.sum())


def _excess(measures: Measures, advance_SN: Ints) -> Floats | None:
    """Return X or X': the part of the advances beyond a typical rank's time, by broad stage (§4, §10); None
    if no median over ranks is known."""
    if not measures.has_all_rows:
        return None
    over_S = (advance_SN - measures.median_SN).clip(min=0).sum(axis=1)
    return np.asarray(measures.by_broad(over_S) / advance_SN.sum())


def _own_excess(measures: Measures, frontier: CarryOver | Measures) -> Floats | None:
    """Return the part of the advances by own time beyond a typical rank's, by broad stage; None if no waits
    (§15) or no median over ranks are known."""
    if measures.own is None or not measures.has_all_rows:
        return None
    over_S = own_excess(measures.own, frontier, measures.median_SN, measures.ranks)
    return np.asarray(measures.by_broad(over_S) / frontier.advance_SN.sum())


def _imbalance(excess_B: Floats | None, own_excess_B: Floats | None) -> float | None:
    """Return the exposed imbalance (§4, §10). Ranks that wait for a slow rank within a stage take as long as
    that rank. With known waits, the excess of own time counts if it is larger (§15)."""
    known = [float(value_B.sum()) for value_B in (excess_B, own_excess_B) if value_B is not None]
    return max(known, default=None)


def _facts(
    measures: Measures,
    share_B: Floats,
    top: int,
    eligible_N: Flags,
    leader_N: Ints,
    waits: tuple[int, ...],
    gates: Gates,
) -> StageFacts:
    makespan = measures.makespan
    declared = measures.window.manifest.model_fit
    measured = any(measures.broad_of_S[stage] != top for stage in waits)
    holds = {"declared": declared, "measured": measured, "on": True, "off": False}
    whole = measures.has_all_rows  # results that need every rank's rows are absent otherwise
    spread_SN = measures.max_SN - measures.median_SN
    return StageFacts(
        share_B=share_B,
        gain_B=(makespan - measures.clipped_BN.sum(axis=1)) / makespan if whole else None,
        takeover_B=measures.takeover_B(top) if whole else None,
        max_share_B=measures.by_broad(measures.max_SN.sum(axis=1)) / makespan,
        spread_share_B=measures.by_broad(spread_SN.sum(axis=1)) / makespan if whole else None,
        top=top,
        eligible=int(eligible_N.sum()),
        switch_rate=switch_rate(leader_N, eligible_N),
        lag_rise_share=measures.lag_rise(top) / makespan if whole else None,
        waits=holds[gates.model_fit],
    )


def _labels(
    measures: Measures, gates: Gates, facts: StageFacts, routing: tuple[str, ...], residual_share: float
) -> tuple[list[Label], list[Label]]:
    """Return all labels in order, and the strong ones that were suppressed (§7)."""
    limits = LimitFacts(measures, residual_share, measures.closure.overlap_share)
    found = [Label("frontier_accounting"), *limiting_labels(limits, gates)]
    if measures.ranks > 1:
        found += stage_labels(facts, gates)
    if measures.device is not None:
        forward = measures.broad.index(FORWARD)
        found += device_labels(
            measures.device, gates, routing, float(facts.share_B[forward]), facts.top > forward
        )
    return suppress(found)


def _free_reasons(
    measures: Measures, gates: Gates, step_share_B: Floats, carry_share_B: Floats | None
) -> tuple[str, ...]:
    """Return the reasons that belong to no label (§7.5, §10)."""
    reasons = []
    if measures.ranks == 1:
        reasons.append("single_rank")
    elif carry_share_B is not None and np.abs(carry_share_B - step_share_B).max() > gates.eta_a:
        reasons.append("carry_over")
    if not measures.consecutive:
        reasons.append("steps_not_consecutive")
    if not measures.has_all_rows:
        reasons.append("reduced_rows")
    return tuple(reasons)


def _residual_share(measures: Measures, step_share_B: Floats) -> float:
    """Return the closure residual share: the larger of pooled and exposed (§2)."""
    exposed = float(step_share_B[measures.broad.index(RESIDUAL)]) if RESIDUAL in measures.broad else 0.0
    return max(measures.closure.residual_share, exposed)


def _wait_fit(measures: Measures) -> dict[str, WaitFit | None]:
    slope_S, se_S = measures.wait_slope_S, measures.wait_se_S
    return {stage: _fit(slope_S, se_S, place) for place, stage in enumerate(measures.window.stages)}


def _fit(slope_S: Floats, se_S: Floats, stage: int) -> WaitFit | None:
    return None if np.isnan(slope_S[stage]) else WaitFit(float(slope_S[stage]), float(se_S[stage]))


def _sync_boundary_since_sync(measures: Measures, gates: Gates) -> int | None:
    """Return where ranks synchronise by the fit per sync (§11), over all ranks because all of them wait."""
    if measures.window.group != ALL_RANKS:
        return None
    return sync_boundary(measures, wait_stages(*measures.slopes_since_sync(), gates.wait_slope))


def _leader(measures: Measures, at_top: StageLeaders, eligible_N: Flags) -> Leader:
    """Return the most frequent leader at s1 over eligible steps, or over all steps if none is eligible."""
    leader_N = at_top.leader_N[eligible_N] if eligible_N.any() else at_top.leader_N
    position, share = most_frequent(leader_N)
    ranks = measures.led_by
    return Leader(ranks.rank[position], ranks.hostname[position], share)


def _culprits(measures: Measures, carry: CarryOver | None, gates: Gates) -> tuple[Culprit, ...]:
    """Return how leaders behave at every stage, on the carry-over frontier if there is one (§12)."""
    source = carry or measures
    found = []
    for index, stage in enumerate(measures.broad):
        leaders = stage_leaders(source.advance_SN, source.leader_SN, source.gap_SN, measures.members(index))
        eligible_N = eligible_steps(
            leaders, measures.makespan_N, gates.gamma_elig, gates.eta_q, measures.ranks
        )
        ranks = measures.led_by
        found.append(culprit(stage, leaders, eligible_N, measures.step_N, ranks, gates.gamma_switch))
    return tuple(found)
