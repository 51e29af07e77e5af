"""Labels, in the order they are decided (accounting.md §7; paper Appendices B and C).

Several labels can hold at once. Nothing here reads the matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sfapp.accounting.leaders import Floats
from sfapp.accounting.measures import Measures
from sfapp.accounting.routing import ranked
from sfapp.model import Gates, Label, Window
from sfapp.model.labels import STRONG_LABELS, SUPPRESSING_LABELS


@dataclass(frozen=True, slots=True)
class StageFacts:
    """Input of the stage verdict: shares of Σ_t F[S,t], by broad stage.

    Attributes:
        share_B: A (or A' under the carry-over frontier); gain_B: G; takeover_B: T of clipping s1.
        max_share_B, spread_share_B: per-stage maxima and rank spread.
        top: s1. eligible: eligible steps of s1. switch_rate: of s1's leader.
        lag_rise_share: Σ_t lag rise of s1.
        waits: W, whether the wait model holds for s1.

    Gains, takeovers, spread and lag rise need every rank's rows: None if the window was reduced.
    """

    share_B: Floats
    gain_B: Floats | None
    takeover_B: Floats | None
    max_share_B: Floats
    spread_share_B: Floats | None
    top: int
    eligible: int
    switch_rate: float
    lag_rise_share: float | None
    waits: bool


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """Input of the limiting labels.

    Attributes:
        measures: the measures of the window.
        residual_share, overlap_share: closure of the step (§2).
    """

    measures: Measures
    residual_share: float
    overlap_share: float

    @property
    def window(self) -> Window:
        return self.measures.window


def telemetry_label(facts: LimitFacts, gates: Gates) -> Label | None:
    """Return ``telemetry_limited`` with every reason that applies (§7.2)."""
    manifest = facts.window.manifest
    checks = (
        ("gather_failed", not manifest.gather_ok),
        ("missing_ranks", len(facts.window.missing_ranks) > gates.max_missing_ranks),
        ("closure_residual", facts.residual_share > gates.max_residual),
        ("overlap_error", facts.overlap_share > gates.max_overlap),
        ("prefetch_unaligned", manifest.prefetch == "unaligned"),
    )
    reasons = [reason for reason, applies in checks if applies]
    reasons += [fault for fault in manifest.faults if fault not in reasons]
    return Label("telemetry_limited", tuple(reasons)) if reasons else None


def role_label(facts: LimitFacts, _: Gates) -> Label | None:
    """Return ``role_aware_needed`` (§7.3): roles are mixed, or model parallelism is declared without
    roles."""
    window = facts.window
    roles = window.ranks.distinct_roles
    reduced = window.manifest.reduced
    if len(roles) > 1 or (reduced is not None and reduced.roles_differ):
        return Label("role_aware_needed", ("roles_differ",))
    degrees = window.manifest.parallelism
    if roles == {None} and max(degrees.tp, degrees.pp, degrees.ep, degrees.cp) > 1:
        return Label("role_aware_needed", ("roles_missing",))
    return None


def accumulation_label(facts: LimitFacts, _: Gates) -> Label | None:
    """Return ``gradient_accumulation_ambiguous`` (§7.4): micro-steps were collapsed, or mixed in one
    window."""
    window = facts.window
    accumulation = window.manifest.accumulation
    reasons = []
    if accumulation.factor > 1 and not accumulation.ordered:
        reasons.append("accumulation_collapsed")
    if "accumulation_mixed" in window.manifest.faults:
        reasons.append("accumulation_mixed")
    return Label("gradient_accumulation_ambiguous", tuple(reasons)) if reasons else None


LIMITS: tuple[Callable[[LimitFacts, Gates], Label | None], ...] = (
    telemetry_label,
    role_label,
    accumulation_label,
)
"""Rules of the limiting labels, in the order in which labels are listed."""


def limiting_labels(facts: LimitFacts, gates: Gates) -> list[Label]:
    """Return every limiting label that applies."""
    return [label for rule in LIMITS if (label := rule(facts, gates)) is not None]


def stage_labels(facts: StageFacts, gates: Gates) -> list[Label]:
    """Return the stage verdict (§7.6) of the first rule that applies. Rules that need gains are skipped if
    there are none (the diagnosis has the reason ``reduced_rows``)."""
    order = ranked(facts.share_B)
    top_share = float(facts.share_B[facts.top])
    runner_up = float(facts.share_B[order[1]]) if len(order) > 1 else 0.0
    if len(order) > 1 and top_share - runner_up <= gates.eta_a:
        return [Label("co_critical", ("share_tie",))]
    if facts.eligible >= 2 and facts.switch_rate > gates.gamma_switch:
        return [Label("co_critical", ("leader_switch",))]
    if top_share <= gates.gamma_a or facts.gain_B is None:
        return []
    if facts.gain_B[facts.top] >= gates.gamma_g:
        if raw_evidence_agrees(facts, gates):
            return [Label("direct_exposure")]
        return [Label("co_critical", ("evidence_disagrees",))]
    if not facts.waits:
        return [Label("co_critical", ("low_static_gain",))]
    waiting = [Label("sync_wait_dependent")]
    if facts.lag_rise_share is not None and facts.lag_rise_share >= gates.eta_a:
        waiting.append(Label("likely_sync_wait"))
    return waiting


def raw_evidence_agrees(facts: StageFacts, gates: Gates) -> bool:
    """Return whether maxima, gains and, if ranks differ at all, spread point to s1 too (§7.6c)."""
    top = facts.top
    if facts.gain_B is None or facts.spread_share_B is None:
        return False
    agrees = facts.max_share_B[top] >= facts.max_share_B.max() - gates.eta_a
    agrees = agrees and facts.gain_B[top] >= facts.gain_B.max() - gates.eta_g
    if facts.spread_share_B.max() >= gates.eta_a:
        agrees = agrees and facts.spread_share_B[top] >= facts.spread_share_B.max() - gates.eta_a
    return bool(agrees)


def ambiguity_set(facts: StageFacts, gates: Gates) -> list[int]:
    """Return C_A ∪ C_G (§7.7), the stages that remain plausible, in order; C_A alone without gains."""
    stages = range(len(facts.share_B))
    chosen = {s for s in stages if facts.share_B[s] >= facts.share_B[facts.top] - gates.eta_a}
    if facts.gain_B is None or facts.takeover_B is None:
        return sorted(chosen)
    largest_gain = float(facts.gain_B.max())
    if largest_gain >= gates.gamma_g:
        chosen |= {s for s in stages if facts.gain_B[s] >= largest_gain - gates.eta_g}
    else:
        chosen |= {s for s in stages if s != facts.top and facts.takeover_B[s] >= gates.eta_a}
    return sorted(chosen)


def suppress(labels: Sequence[Label]) -> tuple[list[Label], list[Label]]:
    """Remove strong labels that telemetry, roles or accumulation do not support.

    Returns:
        the remaining labels; the suppressed ones, whose reasons are the labels that suppress them.
    """
    by = tuple(label.label for label in labels if label.label in SUPPRESSING_LABELS)
    if not by:
        return list(labels), []
    kept = [label for label in labels if label.label not in STRONG_LABELS]
    return kept, [Label(label.label, by) for label in labels if label.label in STRONG_LABELS]
