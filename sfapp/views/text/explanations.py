"""Explain why the labels hold, which gate values would change them, and how they differ from the
recorder's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfapp.accounting import GateChange, own_wait_stages
from sfapp.model import Diagnosis
from sfapp.model.gates import GATE_BY_NAME
from sfapp.model.labels import SUPPRESSING_LABELS, label_words
from sfapp.model.reasons import reason_sentence
from sfapp.views import format
from sfapp.views.text.evidence import no_straggler_words, over_the_run
from sfapp.views.text.findings import healthy_windows
from sfapp.views.text.gate_values import gate_value


def why(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the comparisons that decided routing set, labels and suspect, with their numbers and gates."""
    if diagnosis.shares is None:
        return (
            f"{format.duration(diagnosis.exposed_makespan_ns)} of exposed time is below the floor of "
            f"{format.duration(diagnosis.gates.floor_ns)}: advances only, no shares.",
        )
    sentences = [_routing(diagnosis)]
    if diagnosis.ranks > 1:
        sentences += _stage_verdict(diagnosis)
        sentences += _waiting(diagnosis)
    sentences += [
        f"{_capital(label_words(label.label))}: {_plain_reason(reason)}"
        for label in diagnosis.labels
        if label.label in SUPPRESSING_LABELS
        for reason in label.reasons
    ]
    sentences += [
        f"{_capital(label_words(label.label))} suppressed by "
        f"{format.listed([label_words(reason) for reason in label.reasons])}."
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
            f"The slowest rank of {name} changes in {format.percent(diagnosis.switch_rate)} of consecutive "
            f"eligible steps, above γswitch {format.share(gates.gamma_switch)}."
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
        sentences.append(reason_sentence("evidence_disagrees"))
    return sentences


def _waiting(diagnosis: Diagnosis) -> list[str]:
    """Return where this window's own fit finds a wait, and where the run's other windows do."""
    own = own_wait_stages(diagnosis)
    sentences = []
    if own:
        fits = diagnosis.wait_fit or {}
        parts = []
        for stage in own:
            fit = fits.get(stage)
            slope = f" (slope {format.slope(fit.slope, fit.se)})" if fit else ""
            parts.append(f"{format.in_stage(stage)}{slope}")
        sentences.append(
            f"Ranks wait for each other {format.listed(parts)}, counted when "
            f"slope − 2 SE ≥ {format.share(diagnosis.gates.wait_slope)}."
        )
    if diagnosis.met_boundary is not None and diagnosis.met_fit is not None:
        slope = format.slope(diagnosis.met_fit.slope, diagnosis.met_fit.se)
        stage = format.short_stage(diagnosis.met_boundary)
        sentences.append(
            f"At each sync, ranks wait for the slowest {format.in_short(stage)} (slope {slope}); "
            "used where no window of the run shows a wait over all its steps."
        )
    if diagnosis.waits_from == "run" and diagnosis.sync_boundary is not None:
        sentences.append(
            f"Ranks wait for each other {format.in_stage(diagnosis.sync_boundary)}, inferred "
            f"{over_the_run(diagnosis)}. This window alone cannot show it, for example because a rank is "
            f"late "
            "by the same amount in every step."
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
        return "No suspect."
    name = format.short_stage(aim.stage)
    if aim.basis == "delta" and reference is not None:
        several = len(reference.windows) > 1
        since = healthy_windows(reference) if several else f"window {reference.window}"
        return (
            f"Suspect: {name} grew most since {since}; the mean step changed by "
            f"{format.percent_change(diagnosis.change)}."
        )
    if aim.basis == "excess":
        return f"Suspect: {name} holds most of the time in excess of a typical rank."
    if diagnosis.lacks_data:
        return f"Largest share: {name}; {no_straggler_words(diagnosis)}."
    return f"Largest share: {name}; the window is healthy."


def _plain_reason(reason: str) -> str:
    text = reason_sentence(reason)
    return f"{text[0].lower()}{text[1:]}"


def changes(found: Mapping[str, Sequence[GateChange]], diagnosis: Diagnosis) -> dict[str, str]:
    """Return for each gate, in one line, the values at which the verdict changes.

    Args:
        found: from ``accounting.nearest_changes``.
    """
    return {gate: _gate_line(gate, list(nearest), diagnosis) for gate, nearest in found.items()}


def _gate_line(gate: str, nearest: list[GateChange], diagnosis: Diagnosis) -> str:
    if diagnosis.shares is None:
        return "no shares: below the denominator floor"
    if not nearest:
        return "verdict stable for any value"
    doc = GATE_BY_NAME[gate]
    parts = []
    for change in sorted(nearest, key=lambda change: change.direction == "below"):
        sign = "≥" if change.direction == "above" else "≤"
        value = gate_value(doc, change.value)
        parts.append(f"{doc.symbol} {sign} {value}: {_becomes(change, diagnosis)}")
    return "; ".join(parts)


def _becomes(change: GateChange, diagnosis: Diagnosis) -> str:
    """Return the difference at that value: stage labels gained and lost, or the size of the routing set."""
    parts = []
    gained = [label for label in change.labels if label not in diagnosis.label_names]
    lost = [label for label in diagnosis.label_names if label not in change.labels]
    if gained:
        parts.append(f"gains {_quoted(gained)}")
    elif lost:
        parts.append(f"loses {_quoted(lost)}")
    elif "labels" in change.changes:
        parts.append("labels unchanged, reasons change")
    if "routing_set" in change.changes:
        parts.append(f"{format.counted(len(change.routing_set), 'stage')} in the routing set")
    return ", ".join(parts)


def _quoted(labels: Sequence[str]) -> str:
    return format.listed([f'"{label_words(label)}"' for label in labels])


def against_recorder(diagnosis: Diagnosis) -> str:
    """Return how the labels differ from the recorder's; empty if the recorder stored none."""
    if not diagnosis.recorder_labels:
        return ""
    recorded = [label.label for label in diagnosis.recorder_labels]
    gained = [label_words(label) for label in diagnosis.label_names if label not in recorded]
    lost = [label_words(label) for label in recorded if label not in diagnosis.label_names]
    before = format.listed([label_words(label) for label in recorded], 8)
    if not gained and not lost:
        return f"Same labels as the recorder: {before}."
    parts = []
    if gained:
        parts.append(f"adds {format.listed(gained, 8)}")
    if lost:
        parts.append(f"drops {format.listed(lost, 8)}")
    return f"The recorder's labels are {before}; this verdict {' and '.join(parts)}."


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
