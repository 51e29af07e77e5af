"""The verdict on one window: plain, frozen, the same object on every surface (architecture.md).

Only ``sfapp.accounting`` builds it: ``diagnose`` from one window alone, ``diagnose_runs`` from a window among
those of its run. Field names are those of the JSON that ``sfapp analyze --json`` prints. Durations are
integer nanoseconds unless a name says otherwise; shares, gains and excesses are fractions of Σ_t F[S,t]
(carry-over ones of Σ a'). Dicts are keyed by broad stage, in stage order; the wait fit by the stage as
recorded. Fields that need shares are None below the denominator floor.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sfapp.model.explanation import Explanation, SharedAttribute
from sfapp.model.findings import Finding, Resolution, StepNoise
from sfapp.model.gates import Baseline, Frontier, Gates
from sfapp.model.manifest import Label
from sfapp.model.parallel_layout import LayoutTable
from sfapp.model.pipeline import Pipeline, StagePast

CulpritKind = Literal["chronic", "rotating", "periodic", "one-off", "mixed", "none"]
AimBasis = Literal["delta", "excess", "share"]
WaitsFrom = Literal["window", "run"]

_NULLABLE = frozenset({"sync_boundary", "reference", "device"})
"""Keys of the JSON document whose null is a finding, not an absence."""

HEALTHY_SEVERITY = 0.05
"""Severity below which a window of unknown noise is healthy; its labels remain (§12)."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The rank that leads the top stage's boundary most often over its eligible steps (§3)."""

    rank: int
    hostname: str
    share: float


@dataclass(frozen=True, slots=True)
class WaitFit:
    """Slope of time spent in a stage on slack brought into it, with its standard error (§11)."""

    slope: float
    se: float


@dataclass(frozen=True, slots=True)
class Culprit:
    """How the leaders at one stage behave over a window's eligible steps (§12).

    Attributes:
        stage: the broad stage.
        kind: see ``sfapp.model.CULPRITS``.
        rank: global rank of the most frequent leader, None without eligible steps.
        hostname: its host.
        share: fraction of the eligible steps it leads.
        eligible_steps: number of eligible steps.
        period: spacing in steps if periodic.
        steps: numbers of the eligible steps if there are at most 32, else empty.
    """

    stage: str
    kind: CulpritKind
    rank: int | None = None
    hostname: str | None = None
    share: float = 0.0
    eligible_steps: int = 0
    period: int | None = None
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """One piece of evidence on the suspect: what it points to, and whether it agrees (§13).

    ``agrees`` is None if the evidence is absent; ``reason`` then gives the cause (a key of ``REASONS``).
    ``value`` is its number, in the unit implied by its name (share, ns per step, slope).
    """

    name: str
    stage: str | None = None
    rank: int | None = None
    agrees: bool | None = None
    value: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Aim:
    """The suspect: the place to look at first (§13). It never overrides a label.

    ``rank_reason`` is the reason why no rank is named. ``steps`` is ``"all"``, ``"every K"`` or a list
    of numbers.
    """

    stage: str
    basis: AimBasis
    rank: int | None = None
    hostname: str | None = None
    rank_reason: str | None = None
    steps: str | tuple[int, ...] = "all"
    evidence: tuple[EvidenceLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Rival:
    """A rival attribution rule on the same matrix (§5): its shares, its routing set, and its total over the
    exposed makespan (1: equal)."""

    rule: str
    shares: dict[str, float]
    routing_set: tuple[str, ...]
    overcount: float


@dataclass(frozen=True, slots=True)
class DeviceEvidence:
    """Sampled device events around forward and loss (§7.8)."""

    sampled: int
    ready: int
    device_share: float | None
    host_ratio: float | None


@dataclass(frozen=True, slots=True)
class StepTime:
    """Exposed step time over the window, ns.

    Attributes:
        mean_ns: of the carry-over frontier if there is one, whatever frontier was chosen: the step time in
            every headline. ``longest_ns`` is the longest step of the same frontier.
        p50_ns, p95_ns: of the frontier in use.
    """

    mean_ns: float
    p50_ns: float
    p95_ns: float
    longest_ns: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The healthy windows with which another is compared, for baseline and delta (§4, §12, §13).

    Attributes:
        run_id, window, group: the window and its group of ranks.
        step_time_ns: mean exposed step.
        stage_median_ns: per recorded stage, the median over steps and ranks; empty if the reference
            was taken from a stored diagnosis, which serves deltas but not the baseline ``reference``.
        typical_ns: per broad stage, the mean over steps of the time that more than half of the ranks reach:
            the lower middle value over ranks. With known waits, of own time (§15).
        advance_ns: per broad stage, mean advance per step of the step-aligned frontier.
        carry_advance_ns: the same of the carry-over frontier, None if absent.
        windows: the healthy windows over which all means are taken; ``window`` represents them in links.
        steps: number of their steps.
        noise: of the steps of the run; None if not known.
        between_ns: standard deviation of the means of the run's windows beyond that noise; 0 if there are
            too few (§17). between_windows: number of windows from which it was estimated.
        pipeline: own time of each pipeline stage; empty without a pipeline (§22).
    """

    run_id: str
    window: int
    group: str = "all"
    step_time_ns: float
    stage_median_ns: dict[str, float]
    typical_ns: dict[str, float]
    advance_ns: dict[str, float]
    carry_advance_ns: dict[str, float] | None
    steps: int = 0
    windows: tuple[int, ...] = ()
    noise: StepNoise | None = None
    between_ns: float = 0.0
    between_windows: int = 0
    pipeline: tuple[StagePast, ...] = ()


@dataclass(frozen=True, kw_only=True)  # Without slots, ``changed`` can copy all fields at once.
class Diagnosis:
    """Verdict of the accounting on one window under one set of gates.

    ``own_boundary`` is the sync boundary according to the wait fit of this window and these ranks;
    ``sync_boundary`` is the one in use, which may come from the run's other windows. ``waits_from`` says
    whether this window's fit shows a wait there too (§10). ``met_boundary`` is where all ranks synchronise
    according to the fit per sync, used if ``wait_fit`` finds no wait, and ``met_fit`` is that fit (§11).

    If waits within stages were measured, ``wait_advances_ns`` is the part of those stages' advances after the
    last rank has arrived, and ``own_excess`` the excess of own time, both on the carry-over frontier if there
    is one; otherwise both are None. ``exposed_imbalance`` is then Σ of ``own_excess`` if that is larger
    (§15).

    ``noise`` is that of the steps. ``findings`` are the effects in the window: those that need attention
    first, then by size. ``resolution`` is the smallest effect that the window could show (§17). ``layout``
    shows the ranks by their coordinates, if the packet has them (§20); a large table has no cells.
    ``explanations`` hold host evidence against the lateness of the first rank of each finding; ``shared`` is
    what several late ranks have in common, and ``periods`` what is known to happen every so many steps (§21).
    They are None without such evidence. ``pipeline`` compares pipeline stages (§22). The JSON object also has
    ``needs_attention``.
    """

    run_id: str
    window: int
    group: str
    stages: tuple[str, ...]
    recorded_stages: tuple[str, ...]
    ranks: int
    steps: int
    nodes: int
    first_step: int
    last_step: int
    closed_by: str
    frontier: Frontier
    baseline: Baseline
    gates: Gates
    exposed_makespan_ns: int
    advances_ns: dict[str, int]
    step_time: StepTime
    typical_ns: dict[str, float]
    carry_over_advances_ns: dict[str, int] | None = None
    wait_advances_ns: dict[str, int] | None = None
    shares: dict[str, float] | None = None
    static_gain: dict[str, float] | None = None
    excess: dict[str, float] | None = None
    takeover: dict[str, float] | None = None
    carry_over_shares: dict[str, float] | None = None
    carry_over_excess: dict[str, float] | None = None
    own_excess: dict[str, float] | None = None
    wait_fit: dict[str, WaitFit | None] | None = None
    wait_stages: tuple[str, ...] = ()
    met_boundary: str | None = None
    met_fit: WaitFit | None = None
    own_boundary: str | None = None
    sync_boundary: str | None = None
    waits_from: WaitsFrom | None = None
    exposed_imbalance: float | None = None
    reference: Reference | None = None
    delta_ns: dict[str, float] | None = None
    change: float | None = None
    severity: float | None = None
    noise: StepNoise | None = None
    findings: tuple[Finding, ...] = ()
    resolution: Resolution | None = None
    culprits: tuple[Culprit, ...] = ()
    culprit: Culprit | None = None
    aim: Aim | None = None
    routing_set: tuple[str, ...] | None = None
    co_critical_stages: tuple[str, ...] | None = None
    labels: tuple[Label, ...] = ()
    reasons: tuple[str, ...] = ()
    suppressed: tuple[Label, ...] = ()
    leader: Leader | None = None
    switch_rate: float | None = None
    eligible_steps: int | None = None
    closure_residual_share: float | None = None
    overlap_error_share: float | None = None
    missing_ranks: tuple[int, ...] = ()
    gather_ok: bool = True
    device: DeviceEvidence | None = None
    layout: LayoutTable | None = None
    explanations: tuple[Explanation, ...] | None = None
    shared: tuple[SharedAttribute, ...] | None = None
    periods: dict[str, int] | None = None
    pipeline: Pipeline | None = None
    rivals: tuple[Rival, ...] = ()
    recorder_labels: tuple[Label, ...] = field(default_factory=tuple)

    def changed(self, **values: Any) -> Diagnosis:
        """Return a copy with some fields changed, ten times faster than ``dataclasses.replace``: a verdict is
        copied seven times."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.__dict__.update(values)
        return other

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels, in the order of decision."""
        return tuple(label.label for label in self.labels)

    @property
    def all_reasons(self) -> tuple[str, ...]:
        """Every reason, of labels or of none."""
        return (*(reason for label in self.labels for reason in label.reasons), *self.reasons)

    @property
    def mixes_roles(self) -> bool:
        """Whether its ranks have several roles, so that only ranks of one role are compared (§17)."""
        return "roles_differ" in self.all_reasons

    @property
    def telling_excess(self) -> dict[str, float]:
        """Excess by stage from the best available evidence: of own time, on the carry-over frontier, or
        step-aligned; empty if none is known."""
        return self.own_excess or self.carry_over_excess or self.excess or {}

    @property
    def is_healthy(self) -> bool:
        """Whether the window is healthy: it does not need attention (§17)."""
        return not self.needs_attention

    @property
    def lacks_data(self) -> bool:
        """Whether ranks are missing or the gather failed, so that nothing is known about the ranks without
        rows."""
        return bool(self.missing_ranks) or not self.gather_ok

    @property
    def knows_noise(self) -> bool:
        """Whether there are enough steps to distinguish effects from noise (§17)."""
        return self.noise is not None

    @property
    def main_finding(self) -> Finding | None:
        """The largest finding that needs attention, on which the suspect is based (§17)."""
        return next((finding for finding in self.findings if finding.needs_attention), None)

    @property
    def has_late_ranks(self) -> bool:
        """Whether ranks are late beyond noise and enough to need attention, whatever the reference (§17)."""
        return any(finding.kind == "rank" and finding.needs_attention for finding in self.findings)

    @property
    def aim_explanation(self) -> Explanation | None:
        """Why the suspect rank is late (§21); if none is named, of the largest finding of late ranks. None
        if hosts recorded nothing."""
        found = self.explanations or ()
        if self.aim is None or self.aim.rank is None:
            return found[0] if found else None
        place = (self.aim.stage, self.aim.rank)
        return next((one for one in found if (one.stage, one.rank) == place), None)

    @property
    def is_reference(self) -> bool:
        """Whether it is one of the healthy windows with which it is compared."""
        known = self.reference
        return known is not None and known.run_id == self.run_id and self.window in known.windows

    @property
    def smallest_effect(self) -> float:
        """Smallest effect, as a part of the step, on which a suspect may be based (§13, §17)."""
        return self.gates.min_effect if self.knows_noise else HEALTHY_SEVERITY

    @property
    def needs_attention(self) -> bool:
        """Whether an effect is beyond noise and large enough (§17); with too few steps to estimate noise,
        whether the severity is large (§12)."""
        if not self.knows_noise:
            return self.severity is not None and self.severity >= HEALTHY_SEVERITY
        return any(finding.needs_attention for finding in self.findings)

    @property
    def top_stage(self) -> str | None:
        """s1 under the chosen frontier: the first stage of the routing set."""
        return self.routing_set[0] if self.routing_set else None

    def document(self) -> dict[str, Any]:
        """Return the JSON object of this window, the same on every surface.

        Absent values (shares below the denominator floor, an undefined carry-over) have no key. ``culprit``
        is only its kind, null if no rank stands out; the rest is in ``culprit_detail``.
        """
        found = {key: value for key, value in asdict(self).items() if value is not None or key in _NULLABLE}
        if self.culprit is not None:
            found["culprit"] = None if self.culprit.kind == "none" else self.culprit.kind
            found["culprit_detail"] = asdict(self.culprit)
        found["needs_attention"] = self.needs_attention
        return found

    def top_stages(self) -> dict[str, Any]:
        """Return the chosen frontier's shares, largest first."""
        shares = self.carry_over_shares if self.frontier == "carry_over" else self.shares
        return dict(sorted((shares or {}).items(), key=lambda item: -item[1]))
