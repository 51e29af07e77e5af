"""Why the labels are what they are, what would change them, and how they differ from the recorder's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfapp.accounting import GateChange, own_wait_stages
from sfapp.model import GATE_DOCS, REASONS, Diagnosis
from sfapp.views import format
from sfapp.views.text.evidence import over_the_run

_SYMBOLS = {doc.name: doc.symbol for doc in GATE_DOCS}
_LIMITING = ("telemetry_limited", "role_aware_needed", "gradient_accumulation_ambiguous")


def why(diagnosis: Diagnosis) -> tuple[str, ...]:
    """The comparisons that decided routing set, labels and aim, with their numbers and gates."""
    if diagnosis.shares is None:
        return (
            f"{format.duration(diagnosis.exposed_makespan_ns)} of exposed time is below the floor of "
            f"{format.duration(diagnosis.gates.floor_ns)}: raw advances only.",
        )
    sentences = [_routing(diagnosis)]
    if diagnosis.ranks > 1:
        sentences += _stage_verdict(diagnosis)
        sentences += _waiting(diagnosis)
    sentences += [
        f"{label.label}: {_plain_reason(reason)}"
        for label in diagnosis.labels
        if label.label in _LIMITING
        for reason in label.reasons
    ]
    sentences += [
        f"{label.label} would hold, but {format.listed(label.reasons)} withholds it."
        for label in diagnosis.suppressed
    ]
    sentences += _device(diagnosis)
    return (*sentences, _aim_basis(diagnosis))


def _routing(diagnosis: Diagnosis) -> str:
    shares = diagnosis.top_stages()
    chosen = diagnosis.routing_set or ()
    total = sum(shares[stage] for stage in chosen)
    parts = [f"{format.short_stage(stage)} {format.share(shares[stage])}" for stage in chosen]
    together = f" = {format.share(total)}" if len(parts) > 1 else ""
    tau = format.share(diagnosis.gates.tau_c)
    return f"Routing set: {' + '.join(parts)}{together} reaches τC {tau}."


def _stage_verdict(diagnosis: Diagnosis) -> list[str]:
    gates = diagnosis.gates
    order = list(diagnosis.top_stages().items())
    top, share = order[0]
    name = format.short_stage(top)
    reasons = diagnosis.all_reasons
    if "share_tie" in reasons and len(order) > 1:
        second, next_share = order[1]
        return [
            f"{name} {format.share(share)} and {format.short_stage(second)} {format.share(next_share)} are "
            f"tied: they differ by no more than ηA {format.share(gates.eta_a)}."
        ]
    if "leader_switch" in reasons:
        return [
            f"The rank leading {name} changes in {format.percent(diagnosis.switch_rate)} of consecutive "
            f"steps that count, above γswitch {format.share(gates.gamma_switch)}."
        ]
    if share <= gates.gamma_a:
        return [
            f"{name} holds a share of {format.share(share)}, not above γA {format.share(gates.gamma_a)}: "
            "no stage label."
        ]
    sentences = [f"{name} holds a share of {format.share(share)}, above γA {format.share(gates.gamma_a)}."]
    if diagnosis.static_gain is None:
        return [*sentences, f"No stage label: {_plain_reason('reduced_rows')}"]
    gain = diagnosis.static_gain[top]
    side = "reaches" if gain >= gates.gamma_g else "is below"
    sentences.append(f"Its static gain {format.share(gain)} {side} γG {format.share(gates.gamma_g)}.")
    if "evidence_disagrees" in reasons:
        sentences.append(REASONS["evidence_disagrees"])
    return sentences


def _waiting(diagnosis: Diagnosis) -> list[str]:
    """Where this window's own fit finds a wait, and where the run's windows do."""
    own = own_wait_stages(diagnosis)
    sentences = []
    if own:
        fits = diagnosis.wait_fit or {}
        parts = []
        for stage in own:
            fit = fits.get(stage)
            slope = f" (slope {format.slope(fit.slope, fit.se)})" if fit else ""
            parts.append(f"{format.short_stage(stage)}{slope}")
        sentences.append(
            f"Ranks measurably wait for each other in {format.listed(parts)}; "
            f"from {format.share(diagnosis.gates.wait_slope)} on, less two standard errors, it counts."
        )
    if diagnosis.met_boundary is not None and diagnosis.met_fit is not None:
        slope = format.slope(diagnosis.met_fit.slope, diagnosis.met_fit.se)
        stage = format.short_stage(diagnosis.met_boundary)
        sentences.append(
            f"From meeting to meeting ranks wait for who is late in {stage} (slope {slope}); "
            "it counts where no window of the run measures a wait over all its steps."
        )
    if diagnosis.waits_from == "run" and diagnosis.sync_boundary is not None:
        sentences.append(
            f"Ranks wait for each other in {format.short_stage(diagnosis.sync_boundary)}, as measured "
            f"{over_the_run(diagnosis)}. The fit over the whole window does not find it, as where a rank is "
            "late by the same in every step."
        )
    return sentences


def _device(diagnosis: Diagnosis) -> list[str]:
    device, gates = diagnosis.device, diagnosis.gates
    if device is None or device.device_share is None:
        return []
    side = "reaches" if device.device_share >= gates.gamma_dev else "is below"
    return [
        f"Sampled forward device time is {format.share(device.device_share)} of the step, which {side} "
        f"γdev {format.share(gates.gamma_dev)}."
    ]


def _aim_basis(diagnosis: Diagnosis) -> str:
    aim, reference = diagnosis.aim, diagnosis.reference
    if aim is None:
        return "No aim."
    name = format.short_stage(aim.stage)
    if aim.basis == "delta" and reference is not None:
        return (
            f"Aim: {name} grew most against window {reference.window}; the mean step changed by "
            f"{format.percent_change(diagnosis.change)}."
        )
    if aim.basis == "excess":
        return f"Aim: {name} holds most of the time that a typical rank did not need."
    return f"Aim: {name} has the largest share; the window is quiet."


def _plain_reason(reason: str) -> str:
    text = REASONS.get(reason, reason.replace("_", " "))
    return f"{text[0].lower()}{text[1:]}"


def changes(found: Mapping[str, Sequence[GateChange]], diagnosis: Diagnosis) -> dict[str, str]:
    """For each gate, in one line, how far its nearest change of verdict is.

    Args:
        found: from ``accounting.nearest_changes``.
    """
    return {gate: _gate_line(gate, list(nearest), diagnosis) for gate, nearest in found.items()}


def _gate_line(gate: str, nearest: list[GateChange], diagnosis: Diagnosis) -> str:
    if diagnosis.shares is None:
        return "waits for shares: below the denominator floor"
    if not nearest:
        return "verdict stable for any value"
    symbol = _SYMBOLS.get(gate, gate)
    parts = []
    for change in sorted(nearest, key=lambda change: change.direction == "below"):
        sign = "≥" if change.direction == "above" else "≤"
        parts.append(f"{symbol} {sign} {change.value:.3g}: {_becomes(change, diagnosis)}")
    return "; ".join(parts)


def _becomes(change: GateChange, diagnosis: Diagnosis) -> str:
    """What differs there: stage labels gained and lost, or the size of the routing set."""
    said = []
    gained = [label for label in change.labels if label not in diagnosis.label_names]
    lost = [label for label in diagnosis.label_names if label not in change.labels]
    if gained:
        said.append(" + ".join(gained))
    elif lost:
        said.append(f"no {' or '.join(lost)}")
    elif "labels" in change.changes:
        said.append("same labels, other reasons")
    if "routing_set" in change.changes:
        said.append(f"{format.counted(len(change.routing_set), 'stage')} to look at")
    return ", ".join(said)


def against_recorder(diagnosis: Diagnosis) -> str:
    """What these gates say that the recorder did not, and the other way round."""
    if not diagnosis.recorder_labels:
        return "The recorder stored no verdict of its own."
    theirs = [label.label for label in diagnosis.recorder_labels]
    gained = [label for label in diagnosis.label_names if label not in theirs]
    lost = [label for label in theirs if label not in diagnosis.label_names]
    if not gained and not lost:
        return f"Same labels as the recorder's own: {format.listed(theirs, 8)}."
    parts = []
    if gained:
        parts.append(f"adds {format.listed(gained, 8)}")
    if lost:
        parts.append(f"drops {format.listed(lost, 8)}")
    return f"Against the recorder's own verdict ({format.listed(theirs, 8)}), this one {' and '.join(parts)}."
