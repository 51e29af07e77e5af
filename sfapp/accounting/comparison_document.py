"""A comparison as the JSON object that every surface shows."""

from __future__ import annotations

from typing import Any

from sfapp.accounting.comparison_result import LETTERS, Comparison
from sfapp.accounting.comparison_sides import Change, Side, Spread, StageLeader, WindowAccount


def comparison_document(found: Comparison) -> dict[str, Any]:
    """Return the JSON object of a comparison."""
    pairs = [("a_to_b", found.a, found.b)]
    if found.c is not None:
        pairs += [("b_to_c", found.b, found.c), ("a_to_c", found.a, found.c)]
    return {
        "split_on": found.split_on,
        "frontier": found.frontier,
        "stages": list(found.stages),
        **{
            name.lower(): _side_document(found, side)
            for name, side in zip(LETTERS, found.sides, strict=False)
        },
        "changes": {name: _pair_document(found, before, after) for name, before, after in pairs},
        "interval_ns": None if found.interval_ns is None else list(found.interval_ns),
        "chance": found.chance,
        "recovery": None if found.recovery is None else float(found.recovery),
        "recovery_reason": found.recovery_reason,
        "caveats": list(found.caveats),
    }


def _side_document(found: Comparison, side: Side) -> dict[str, Any]:
    shares, routed = side.shares(found.split_on), side.routing_set(found.frontier)
    return {
        "run_id": side.run_id,
        "window": side.window,
        "group": side.group,
        "steps": side.steps,
        "ranks": list(side.ranks),
        "step_time_ns": float(found.account(side).step_ns),
        "advance_ns": {
            frontier: None if account is None else dict(account.advance_ns)
            for frontier, account in (("carry_over", side.on("carry_over")), ("step", side.on("step")))
        },
        "wait_advance_ns": dict(side.waits),
        "shares": shares,
        "routing_set": None if routed is None else list(routed),
        "labels": dict(side.labels),
        "severity": side.severity,
        "leaders": {stage: _leader_document(leader) for stage, leader in side.leaders.items()},
        "windows": [_window_document(found, window) for window in side.windows],
        "spread_ns": _spread_document(side.spread(found.split_on)),
        "stage_spread_ns": {
            stage: _spread_document(side.spread(found.split_on, stage)) for stage in found.stages
        },
    }


def _window_document(found: Comparison, window: WindowAccount) -> dict[str, Any]:
    account = window.on(found.split_on)
    return {
        "window": window.window,
        "steps": window.step.steps,
        "step_time_ns": None if account is None else float(account.step_ns),
        "severity": window.severity,
        "needs_attention": window.needs_attention,
    }


def _pair_document(found: Comparison, before: Side, after: Side) -> dict[str, Any]:
    first, second = before.shares(found.split_on), after.shares(found.split_on)
    routed_before, routed_after = before.routing_set(found.frontier), after.routing_set(found.frontier)
    return {
        "carry_over": _change_document(found.change(before, after, "carry_over")),
        "step": _change_document(found.change(before, after, "step")),
        "waits": _waits_document(found, before, after),
        "shares": None
        if first is None or second is None
        else {stage: second[stage] - first[stage] for stage in found.stages},
        "labels_gained": list(found.labels_gained(before, after)),
        "labels_lost": list(found.labels_gained(after, before)),
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


def _waits_document(found: Comparison, before: Side, after: Side) -> dict[str, dict[str, float]]:
    """Return the changes of own and waiting time in stages with known waits, on ``split_on`` (§15)."""
    whole = Change(found.account(before), found.account(after)).delta_ns
    return {
        stage: {"own_ns": float(whole[stage] - waiting), "waiting_ns": float(waiting)}
        for stage, waiting in found.waiting_ns(before, after).items()
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
