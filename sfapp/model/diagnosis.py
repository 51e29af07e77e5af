"""The verdict on one window: plain, frozen, the same object on every surface (architecture.md).

Built by ``sfapp.accounting`` alone: by ``diagnose`` of one window by itself, by ``diagnose_runs`` among those
of its run. Field names are those of the JSON that ``sfapp analyze --json`` prints. Durations are integer
nanoseconds unless a name says otherwise; shares, gains and excesses are fractions of Σ_t F[S,t] (carry-over
ones of Σ a'). Dicts are keyed by broad stage, in stage order; the wait fit by the stage as recorded. Fields
that need shares are None below the denominator floor.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sfapp.model.findings import Finding, Resolution, StepNoise
from sfapp.model.gates import Baseline, Frontier, Gates
from sfapp.model.manifest import Label

CulpritKind = Literal["chronic", "rotating", "periodic", "one-off", "mixed", "none"]
AimBasis = Literal["delta", "excess", "share"]
WaitsFrom = Literal["window", "run"]

_NULLABLE = frozenset({"sync_boundary", "reference", "device"})
"""Keys of the JSON document whose null is a finding, not an absence."""

QUIET_SEVERITY = 0.05
"""Below this severity a window whose noise is not known is healthy: its labels stand (§12)."""


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
        stage: the broad stage looked at.
        kind: see ``sfapp.model.CULPRITS``.
        rank: global rank of the most frequent leader, None without eligible steps.
        hostname: its host.
        share: fraction of the eligible steps it leads.
        eligible_steps: how many steps count.
        period: spacing in steps where periodic.
        steps: step numbers of the eligible steps where they are no more than 32, else empty.
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
    """One piece of evidence on the aim: what it points at, and whether it agrees (§13).

    ``agrees`` is None where the evidence is absent; ``reason`` then gives the cause (a key of ``REASONS``).
    ``value`` is the number it rests on, in the unit its name implies (share, ns per step, slope).
    """

    name: str
    stage: str | None = None
    rank: int | None = None
    agrees: bool | None = None
    value: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Aim:
    """The one place to look first (§13). It never overrides a label.

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
    """A rival attribution rule on the same matrix (§5): its shares, what it routes to, and by how much
    its total exceeds the exposed makespan (1 = not at all)."""

    rule: str
    shares: dict[str, float]
    routing_set: tuple[str, ...]
    overcount: float


@dataclass(frozen=True, slots=True)
class DeviceEvidence:
    """Sampled device events round forward and loss (§7.8)."""

    sampled: int
    ready: int
    device_share: float | None
    host_ratio: float | None


@dataclass(frozen=True, slots=True)
class StepTime:
    """Exposed step time over the window, ns.

    Attributes:
        mean_ns: of the carry-over frontier where there is one, whatever frontier was chosen: the step time
            that every headline states. ``longest_ns`` is the longest step of the same frontier.
        p50_ns, p95_ns: of the frontier in use.
    """

    mean_ns: float
    p50_ns: float
    p95_ns: float
    longest_ns: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a healthy window contributes to the diagnosis of another: baseline and delta (§4, §12, §13).

    Attributes:
        run_id, window, group: which window of which ranks.
        step_time_ns: mean exposed step.
        stage_median_ns: per recorded stage, the median over steps and ranks; empty where the reference
            was taken from a stored diagnosis, which serves deltas but not the baseline ``reference``.
        typical_ns: per broad stage, the mean over steps of what more than half of the ranks took at least:
            the lower middle value where their number is even. With known waits, of own time (§15).
        advance_ns: per broad stage, mean advance a step of the step-aligned frontier.
        carry_advance_ns: the same of the carry-over frontier, None where absent.
        windows: the healthy windows that all means are taken over; ``window`` stands for them in links.
        steps: how many these have.
        noise: of the steps of the run, None where it is not known.
        between_ns: standard deviation of their means beyond that noise, 0 where they are too few (§17).
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


@dataclass(frozen=True, kw_only=True)  # Without slots, ``changed`` can copy all fields at once.
class Diagnosis:
    """Verdict of the accounting on one window under one set of gates.

    ``own_boundary`` is the sync boundary by the wait fit of this window and these ranks alone,
    ``sync_boundary`` the one that is taken: the run's windows may know better. ``waits_from`` says whether
    this window's fit shows a wait there too (§10). ``met_boundary`` is where all ranks synchronise by the
    fit per sync, used where ``wait_fit`` finds no wait, and ``met_fit`` is that fit (§11).

    Where waits within stages were measured, ``wait_advances_ns`` is what is left of those stages' advances
    once the last rank has arrived, and ``own_excess`` the excess of own time, both on the carry-over frontier
    where there is one; else both are None. ``exposed_imbalance`` is then Σ of ``own_excess`` where that is
    larger (§15).

    ``noise`` is that of the steps, ``findings`` are the effects in the window, those that need attention
    first and then by size, and ``resolution`` is what the window would have shown (§17). The JSON object also
    has ``needs_attention``.
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
    rivals: tuple[Rival, ...] = ()
    recorder_labels: tuple[Label, ...] = field(default_factory=tuple)

    def changed(self, **values: Any) -> Diagnosis:
        """Return a copy with other values of some fields: ``dataclasses.replace`` in a tenth of its time, of
        which a verdict takes seven."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.__dict__.update(values)
        return other

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels alone, in the order they were decided."""
        return tuple(label.label for label in self.labels)

    @property
    def all_reasons(self) -> tuple[str, ...]:
        """Every reason, whether it belongs to a label or to none."""
        return (*(reason for label in self.labels for reason in label.reasons), *self.reasons)

    @property
    def mixes_roles(self) -> bool:
        """Whether its ranks have several roles: only ranks of one role are compared (§17)."""
        return "roles_differ" in self.all_reasons

    @property
    def telling_excess(self) -> dict[str, float]:
        """Excess by stage from the best evidence there is: of own time, on the carry-over frontier, or
        step-aligned; empty where none is known."""
        return self.own_excess or self.carry_over_excess or self.excess or {}

    @property
    def is_quiet(self) -> bool:
        """Whether the window is healthy: it does not need attention (§17)."""
        return not self.needs_attention

    @property
    def lacks_data(self) -> bool:
        """Whether ranks are missing, or the gather failed: nothing is known about the ranks without rows."""
        return bool(self.missing_ranks) or not self.gather_ok

    @property
    def knows_noise(self) -> bool:
        """Whether effects can be told from noise: there are enough steps (§17)."""
        return self.noise is not None

    @property
    def main_finding(self) -> Finding | None:
        """The largest finding that needs attention, which the aim is about (§17)."""
        return next((finding for finding in self.findings if finding.needs_attention), None)

    @property
    def has_late_ranks(self) -> bool:
        """Whether ranks are late beyond noise and enough to need attention, whatever the reference (§17)."""
        return any(finding.kind == "rank" and finding.needs_attention for finding in self.findings)

    @property
    def is_reference(self) -> bool:
        """Whether it is one of the windows that it is compared with."""
        known = self.reference
        return known is not None and known.run_id == self.run_id and self.window in known.windows

    @property
    def smallest_effect(self) -> float:
        """Smallest effect, as a part of the step, that an aim may rest on (§13, §17)."""
        return self.gates.min_effect if self.knows_noise else QUIET_SEVERITY

    @property
    def needs_attention(self) -> bool:
        """Whether an effect is beyond noise and large enough (§17). Where noise cannot be told, from too few
        steps, whether the severity is large (§12)."""
        if not self.knows_noise:
            return self.severity is not None and self.severity >= QUIET_SEVERITY
        return any(finding.needs_attention for finding in self.findings)

    @property
    def top_stage(self) -> str | None:
        """s1 under the chosen frontier: the first of the routing set."""
        return self.routing_set[0] if self.routing_set else None

    def document(self) -> dict[str, Any]:
        """Return the JSON object of this window, the same on every surface.

        What is absent (shares below the denominator floor, a carry-over that is not defined) has no key;
        ``culprit`` is its kind alone, null where no rank stands out, with the rest in ``culprit_detail``.
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
