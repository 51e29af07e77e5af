"""Table of all labels of a diagnosis (accounting.md §7; paper Appendix B).

Each entry holds everything that differs between labels: machine name, words on screen, weight,
strength and texts. Stores, pages, reports and the glossary derive their lists from here.
Machine names appear in JSON, CSV and the store; people read the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from sfapp.model.reasons import REASONS, ReasonSpec, by_name, require_text

LabelGroup = Literal["accounting", "limit", "stage", "device"]
Strength = Literal["none", "weak", "strong"]
Tone = Literal["fact", "strong", "doubt", "limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSpec:
    """Everything that is specific to one label.

    Attributes:
        name: machine name, in snake case.
        words: the label on screen, in a few words.
        weight: unique; where there is room for one label, the heaviest is shown.
        group: ``accounting`` always holds; a ``limit`` suppresses strong stage labels; ``stage`` labels are
            decided by γA and γG; ``device`` labels come from sampled device events.
        strength: how much the label claims.
        reasons: machine names of its possible reasons.
        explanation: one sentence for tooltips, tables and cards.
        definition: the conditions under which it holds, for the glossary.
    """

    name: str
    words: str
    weight: int
    group: LabelGroup
    strength: Strength
    reasons: tuple[str, ...]
    explanation: str
    definition: str

    def __post_init__(self) -> None:
        require_text(self)

    @property
    def tone(self) -> Tone:
        """The colour role of the label's chip."""
        if self.group == "limit":
            return "limit"
        if self.strength == "strong":
            return "strong"
        return "fact" if self.group == "accounting" else "doubt"

    @property
    def glossary_text(self) -> str:
        """The explanation, followed by the conditions."""
        return f"{self.explanation} {self.definition}"


def label_table(specs: Iterable[LabelSpec], reasons: Mapping[str, ReasonSpec]) -> dict[str, LabelSpec]:
    """Return labels by machine name, checked against each other and against the reasons.

    Raises:
        ValueError: a name, the words or a weight occur twice, or a reason does not exist.
    """
    table = by_name(specs)
    weights: dict[int, str] = {}
    for spec in table.values():
        if spec.weight in weights:
            raise ValueError(f"{spec.name!r} and {weights[spec.weight]!r} have the same weight {spec.weight}")
        weights[spec.weight] = spec.name
        for reason in spec.reasons:
            if reason not in reasons:
                raise ValueError(f"{spec.name!r} names the unknown reason {reason!r}")
    return table


LABELS: Mapping[str, LabelSpec] = label_table(
    (
        LabelSpec(
            name="frontier_accounting",
            words="time split by stage",
            weight=0,
            group="accounting",
            strength="none",
            reasons=(),
            explanation="The exposed step time is split by stage; the split does not claim a cause.",
            definition="Holds for every usable window.",
        ),
        LabelSpec(
            name="telemetry_limited",
            words="incomplete data",
            weight=80,
            group="limit",
            strength="none",
            reasons=(
                "denominator_floor", "gather_failed", "missing_ranks", "closure_residual", "overlap_error",
                "schema_mismatch", "step_misaligned", "nonmonotonic_clock", "dropped_steps", "nested_stages",
                "nested_steps", "stage_on_another_thread", "stage_outside_step", "hook_failed",
                "profiled_steps", "unknown_stage", "reconfigure_refused", "prefetch_unaligned",
                "optimizers_alternate", "loop_unclear", "accumulation_mixed",
            ),
            explanation="The data is incomplete or does not add up, so stronger labels are suppressed.",
            definition="Holds if ranks or steps are missing, stages do not add up to the step, or the "
            "recorder reported a fault.",
        ),
        LabelSpec(
            name="role_aware_needed",
            words="mixed roles",
            weight=70,
            group="limit",
            strength="none",
            reasons=("roles_differ", "roles_missing"),
            explanation="Ranks play different roles; diagnose one role's group instead of all ranks.",
            definition="Holds if the group has several roles, or model parallelism is declared without "
            "roles.",
        ),
        LabelSpec(
            name="gradient_accumulation_ambiguous",
            words="merged micro-steps",
            weight=60,
            group="limit",
            strength="none",
            reasons=("accumulation_collapsed", "accumulation_mixed"),
            explanation="Micro-steps were merged or mixed, so data and backward cannot be separated.",
            definition="Holds if gradients are accumulated without an order of micro-steps, or the factor "
            "changed inside the window.",
        ),
        LabelSpec(
            name="direct_exposure",
            words="delay in the stage itself",
            weight=110,
            group="stage",
            strength="strong",
            reasons=(),
            explanation="The time in this stage is the delay: shortening the stage shortens the step.",
            definition="Holds if the share is above γA, the static gain reaches γG, and raw durations, "
            "spread "
            "and gain agree.",
        ),
        LabelSpec(
            name="sync_wait_dependent",
            words="gain depends on waits",
            weight=90,
            group="stage",
            strength="strong",
            reasons=(),
            explanation="Shortening the stage alone gains little: the gain of a fix lies in the waits that "
            "it "
            "removes on other ranks.",
            definition="Holds if the share is above γA, the static gain is below γG, and ranks wait for "
            "each "
            "other.",
        ),
        LabelSpec(
            name="likely_sync_wait",
            words="waits for other ranks",
            weight=100,
            group="stage",
            strength="strong",
            reasons=(),
            explanation="The slowest rank falls behind in this stage, and the other ranks wait for it later.",
            definition="Holds together with \"gain depends on waits\" if the rise of the slowest rank's lag "
            "reaches ηA.",
        ),
        LabelSpec(
            name="co_critical",
            words="stages or ranks tied",
            weight=50,
            group="stage",
            strength="weak",
            reasons=("share_tie", "leader_switch", "evidence_disagrees", "low_static_gain"),
            explanation="Several stages or ranks could hold the step back; choosing one needs more evidence.",
            definition="Holds if shares are tied, the slowest rank keeps changing, the evidence "
            "conflicts, or "
            "the gain is small and no wait was measured.",
        ),
        LabelSpec(
            name="forward_device_supported",
            words="forward is device work",
            weight=40,
            group="device",
            strength="strong",
            reasons=(),
            explanation="Sampled device events confirm that forward time is device work.",
            definition="Holds if forward is in the routing set and its device time reaches γdev of the "
            "step.",
        ),
        LabelSpec(
            name="forward_spillover_suspected",
            words="forward cost appears later",
            weight=30,
            group="device",
            strength="weak",
            reasons=(),
            explanation="Forward device time is high, but the host sees the cost in a later stage.",
            definition="Holds if a stage after forward has the largest share and forward's device time "
            "reaches γdev of "
            "the step.",
        ),
        LabelSpec(
            name="forward_host_overhead_suspected",
            words="forward host overhead",
            weight=20,
            group="device",
            strength="weak",
            reasons=(),
            explanation="Forward wall time is high while its device time is low: host overhead.",
            definition="Holds if forward is in the routing set and its device time is at most γhost of "
            "its wall "
            "time.",
        ),
        LabelSpec(
            name="forward_event_scope_limited",
            words="few device events",
            weight=10,
            group="device",
            strength="weak",
            reasons=("too_few_events",),
            explanation="Too few device events finished to judge the device.",
            definition="Holds if finished events miss the ready ratio or the minimum number of samples.",
        ),
    ),
    REASONS,
)  # fmt: skip
"""Every label by its machine name, in the order in which the glossary lists them."""

UNIVERSAL_LABEL = "frontier_accounting"
"""The label of every usable window, which lists leave out."""

STRONG_LABELS = tuple(
    spec.name for spec in LABELS.values() if spec.group == "stage" and spec.strength == "strong"
)
"""Labels that a limiting label suppresses."""

SUPPRESSING_LABELS = tuple(spec.name for spec in LABELS.values() if spec.group == "limit")
"""Labels that suppress the strong ones."""

STAGE_LABELS = tuple(spec.name for spec in LABELS.values() if spec.group == "stage")
"""Labels that γA and γG decide (accounting.md §7.6)."""


def heaviest_label(names: Iterable[str], labels: Mapping[str, LabelSpec] = LABELS) -> str:
    """Return the label to show where there is room for one.

    Raises:
        ValueError: a label is not in the table, or there is none.
    """
    names = tuple(names)
    unknown = [name for name in names if name not in labels]
    if unknown or not names:
        raise ValueError(f"labels without an entry in the table: {', '.join(unknown) or 'none given'}")
    return max(names, key=lambda name: labels[name].weight)


def label_words(name: str) -> str:
    """Return a label's words; for a label of another version of sfapp, its machine name with spaces."""
    return LABELS[name].words if name in LABELS else name.replace("_", " ")
