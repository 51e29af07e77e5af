"""Find how far each gate is from the next change of the verdict, a measure of its robustness."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from sfapp.accounting.findings import STRONG_PART
from sfapp.accounting.judge import judge
from sfapp.accounting.leaders import eligible_steps, stage_leaders, switch_rate
from sfapp.accounting.measures import Measures
from sfapp.model import Diagnosis
from sfapp.model.gates import GATE_BY_NAME
from sfapp.model.labels import STRONG_LABELS


@dataclass(frozen=True, slots=True)
class GateChange:
    """The nearest value at which a gate changes the verdict, in one direction.

    Attributes:
        gate: its name.
        direction: ``above`` or ``below`` the current value.
        value: the first value tried under which the verdict differs.
        labels, routing_set: stage labels and candidate set at that value.
        changes: what differs: ``labels``, ``routing_set`` or both.
    """

    gate: str
    direction: Literal["above", "below"]
    value: float
    labels: tuple[str, ...]
    routing_set: tuple[str, ...]
    changes: tuple[str, ...]


def nearest_changes(
    measures: Measures,
    diagnosis: Diagnosis,
    gates: Iterable[str] = ("tau_c", "gamma_a", "gamma_g"),
) -> Mapping[str, tuple[GateChange, ...]]:
    """Return the nearest changes of labels or routing set below and above each of these gates.

    Only the values of the evidence (a share, a gain, a cumulated share) can matter; they are tried, rounded
    to the gate's grid. A gate without an entry in ``COMPARED_WITH`` is tried on a coarse grid.
    """
    if diagnosis.shares is None:
        return dict.fromkeys(gates, ())
    return {gate: tuple(_changes(measures, diagnosis, gate)) for gate in gates}


def _changes(measures: Measures, diagnosis: Diagnosis, gate: str) -> Iterable[GateChange]:
    doc = GATE_BY_NAME[gate]
    current = float(getattr(diagnosis.gates, gate))
    candidates = sorted(
        {
            round(min(doc.high, max(doc.low, point)), 10)
            for critical in _critical_values(measures, diagnosis, gate)
            for point in _around(critical, doc.step)
        }
    )
    for direction, values in (
        ("below", [value for value in reversed(candidates) if value < current]),
        ("above", [value for value in candidates if value > current]),
    ):
        for value in values:
            other = _judged(measures, diagnosis, gate, value)
            changes = tuple(
                name for name in ("labels", "routing_set") if getattr(other, name) != getattr(diagnosis, name)
            )
            if changes:
                yield GateChange(
                    gate=gate,
                    direction="below" if direction == "below" else "above",
                    value=value,
                    labels=other.label_names,
                    routing_set=other.routing_set or (),
                    changes=changes,
                )
                break


def _judged(measures: Measures, diagnosis: Diagnosis, gate: str, value: float) -> Diagnosis:
    typed = int(value) if GATE_BY_NAME[gate].whole else value
    gates = diagnosis.gates.with_values(**{gate: typed})
    return judge(measures, gates, diagnosis.frontier, diagnosis.reference)


def _around(critical: float, step: float) -> tuple[float, float]:
    """Return the grid points on both sides of a critical value."""
    below = math.floor(critical / step + 1e-9) * step
    return below, below + step


def _critical_values(measures: Measures, diagnosis: Diagnosis, gate: str) -> list[float]:
    """Return values of the evidence that this gate is compared with, or its own grid if none are listed."""
    if gate in ("gamma_elig", "eta_q"):
        return _where_rotation_turns(measures, diagnosis, gate)
    compared_with = COMPARED_WITH.get(gate)
    if compared_with is not None:
        return list(compared_with(diagnosis))
    doc = GATE_BY_NAME[gate]
    steps = min(_GRID_POINTS, round((doc.high - doc.low) / doc.step))
    return [doc.low + (doc.high - doc.low) * place / steps for place in range(steps + 1)]


_GRID_POINTS = 100
"""Number of values tried for a gate without an entry in ``COMPARED_WITH``."""


def _shares(diagnosis: Diagnosis) -> list[float]:
    return list(diagnosis.top_stages().values())


def _gains(diagnosis: Diagnosis) -> list[float]:
    return list((diagnosis.static_gain or {}).values())


def _share_ties(diagnosis: Diagnosis) -> list[float]:
    rivals = [gap for rival in diagnosis.rivals for gap in _gaps(list(rival.shares.values()))]
    return _gaps(_shares(diagnosis)) + rivals


def _wait_slopes(diagnosis: Diagnosis) -> list[float]:
    fits = [fit for fit in (diagnosis.wait_fit or {}).values() if fit is not None]
    return [fit.slope - 2 * fit.se for fit in fits]


def _ready_events(diagnosis: Diagnosis) -> list[float]:
    return [float(diagnosis.device.ready)] if diagnosis.device else []


def _ready_ratio(diagnosis: Diagnosis) -> list[float]:
    device = diagnosis.device
    return [device.ready / device.sampled] if device and device.sampled else []


def _device_shares(diagnosis: Diagnosis) -> list[float]:
    device = diagnosis.device
    return (
        [share for share in (device.device_share, *_shares(diagnosis)) if share is not None] if device else []
    )


def _host_ratio(diagnosis: Diagnosis) -> list[float]:
    device = diagnosis.device
    return [device.host_ratio] if device and device.host_ratio is not None else []


def _is_noise_decisive(diagnosis: Diagnosis) -> bool:
    """Return whether labels could be suppressed or restored as within noise (§17)."""
    within_noise = any(label.reasons == ("within_noise",) for label in diagnosis.suppressed)
    has_strong = any(name in STRONG_LABELS for name in diagnosis.label_names)
    is_on = diagnosis.gates.noise_floor == "measured" and diagnosis.knows_noise
    return is_on and (has_strong or within_noise)


def _effects(diagnosis: Diagnosis) -> list[float]:
    """Return the effects of findings, and the growth that remains without the stages of the largest ones."""
    if not _is_noise_decisive(diagnosis):
        return []
    effects = [finding.effect for finding in diagnosis.findings if finding.chance is not None]
    delta = diagnosis.delta_ns
    if delta is not None:
        late = [finding.stage for finding in diagnosis.findings if finding.kind == "rank"]
        explained = accumulate((max(0.0, delta[stage]) for stage in late), initial=0.0)
        effects += [(sum(delta.values()) - part) / diagnosis.step_time.mean_ns for part in explained]
    return effects


def _chances(diagnosis: Diagnosis) -> list[float]:
    """Return the chances of findings as compared with α, and round values: a larger α finds more."""
    if not _is_noise_decisive(diagnosis):
        return []
    chances = [finding.chance for finding in diagnosis.findings if finding.chance is not None]
    doc = GATE_BY_NAME["alpha"]
    low, high = math.floor(math.log10(doc.low)), math.ceil(math.log10(doc.high))
    rounds = [factor * 10.0**power for power in range(low, high) for factor in (1, 2, 5)]
    return [*rounds, *chances, *(chance / STRONG_PART for chance in chances)]


COMPARED_WITH: dict[str, Callable[[Diagnosis], Iterable[float]]] = {
    "tau_c": lambda diagnosis: accumulate(_shares(diagnosis)),
    "gamma_a": lambda diagnosis: _shares(diagnosis)[:1],
    "gamma_g": _gains,
    "eta_a": _share_ties,
    "eta_g": lambda diagnosis: _gaps(_gains(diagnosis)),
    "gamma_switch": lambda diagnosis: [diagnosis.switch_rate or 0.0],
    "max_residual": lambda diagnosis: [diagnosis.closure_residual_share or 0.0],
    "max_overlap": lambda diagnosis: [diagnosis.overlap_error_share or 0.0],
    "max_missing_ranks": lambda diagnosis: [float(len(diagnosis.missing_ranks))],
    "wait_slope": _wait_slopes,
    "floor_ns": lambda diagnosis: [float(diagnosis.exposed_makespan_ns)],
    "min_event_samples": _ready_events,
    "min_event_ready": _ready_ratio,
    "gamma_dev": _device_shares,
    "gamma_host": _host_ratio,
    "alpha": _chances,
    "min_effect": _effects,
}
"""For gates that are compared with few values: a function that returns these values."""


def _where_rotation_turns(measures: Measures, diagnosis: Diagnosis, gate: str) -> list[float]:
    """Return the nearest values at which the top stage's leader starts or stops counting as rotating.

    For labels, these two gates only decide over which steps the leader is counted (§3, §7.6).
    """
    carry = measures.carry(_recorded(measures, diagnosis.sync_boundary))
    source = carry if carry is not None and diagnosis.frontier == "carry_over" else measures
    if diagnosis.top_stage is None:
        return []
    members = measures.members(measures.broad.index(diagnosis.top_stage))
    leaders = stage_leaders(source.advance_SN, source.leader_SN, source.gap_SN, members)

    def rotates(value: float) -> bool:
        gates = diagnosis.gates.with_values(**{gate: value})
        eligible_N = eligible_steps(
            leaders, measures.makespan_N, gates.gamma_elig, gates.eta_q, measures.ranks
        )
        return switch_rate(leaders.leader_N, eligible_N) > gates.gamma_switch

    doc = GATE_BY_NAME[gate]
    current = float(getattr(diagnosis.gates, gate))
    now = rotates(current)
    grid = [
        round(doc.low + place * doc.step, 10) for place in range(round((doc.high - doc.low) / doc.step) + 1)
    ]
    below = next((value for value in reversed(grid) if value < current and rotates(value) != now), None)
    above = next((value for value in grid if value > current and rotates(value) != now), None)
    return [value for value in (below, above) if value is not None]


def _recorded(measures: Measures, stage: str | None) -> int | None:
    return None if stage is None else measures.window.stages.index(stage)


def _gaps(values: list[float]) -> list[float]:
    largest = max(values, default=0.0)
    return [largest - value for value in values]
