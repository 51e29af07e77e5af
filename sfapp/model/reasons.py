"""Reasons of labels and kinds of culprit: machine names, words on screen and explanations (accounting.md
§7, §12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, TypeVar


class NamedSpec(Protocol):
    """An entry of a table: a frozen dataclass with a machine name and words for the screen."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str: ...
    @property
    def words(self) -> str: ...


SpecT = TypeVar("SpecT", bound=NamedSpec)


def require_text(spec: NamedSpec) -> None:
    """Check that no text of an entry is empty.

    Raises:
        ValueError: names the entry and the field.
    """
    for item in fields(spec):
        value = getattr(spec, item.name)
        if isinstance(value, str) and not value.strip():
            raise ValueError(f"{type(spec).__name__} {spec.name!r} has no {item.name}")


def by_name(specs: Iterable[SpecT]) -> dict[str, SpecT]:
    """Index entries by machine name.

    Raises:
        ValueError: a name or the words of an entry occur twice.
    """
    table: dict[str, SpecT] = {}
    words: dict[str, str] = {}
    for spec in specs:
        if spec.name in table:
            raise ValueError(f"{spec.name!r} occurs twice in the table")
        if spec.words in words:
            raise ValueError(f"{spec.name!r} and {words[spec.words]!r} both read {spec.words!r}")
        table[spec.name] = spec
        words[spec.words] = spec.name
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonSpec:
    """Why a label holds, or why a piece of evidence or a rank is absent.

    Attributes:
        name: machine name, in snake case.
        words: the reason on screen, in a few words.
        explanation: one sentence for tooltips and the glossary.
    """

    name: str
    words: str
    explanation: str

    def __post_init__(self) -> None:
        require_text(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CulpritSpec:
    """How the slowest rank of a stage recurs over a window's steps.

    Attributes:
        name: machine name, ``Culprit.kind``.
        words: the kind on screen.
        explanation: when it holds, for tooltips and the glossary.
    """

    name: str
    words: str
    explanation: str

    def __post_init__(self) -> None:
        require_text(self)


REASONS: Mapping[str, ReasonSpec] = by_name(
    ReasonSpec(name=name, words=words, explanation=explanation)
    for name, words, explanation in (
        ("denominator_floor", "too little time", "The window holds too little exposed time for shares to "
        "mean "
         "anything."),
        ("gather_failed", "gather failed", "The window's gather did not complete."),
        ("missing_ranks", "missing ranks", "Ranks that should have reported are absent."),
        ("closure_residual", "time outside stages", "Too much of the step lies outside the named stages."),
        ("overlap_error", "overlapping stages", "Stages overlap: their sum exceeds the measured step."),
        ("schema_mismatch", "different stage lists", "Ranks reported different stage lists."),
        ("step_misaligned", "different steps", "Ranks reported different steps; only the common ones are "
                                               "used."),
        ("nonmonotonic_clock", "clock ran backwards", "A rank's clock ran backwards."),
        ("dropped_steps", "dropped steps", "The recorder dropped steps."),
        ("nested_stages", "nested stages", "A stage was opened inside another one; its time counts for the "
                                           "outer "
         "one."),
        ("nested_steps", "nested steps", "A step was opened inside another one; the inner one is recorded."),
        ("stage_on_another_thread", "stage on another thread", "A stage was opened on another thread than "
        "its "
         "step's; its time is left out."),
        ("stage_outside_step", "stage outside a step", "A stage was opened outside a step; its time is not "
         "recorded."),
        ("hook_failed", "hook failed", "A hook of the recorder in a training framework failed; the time "
                                       "that it "
         "should measure is left out."),
        ("profiled_steps", "profiled steps", "A capture's profiler slowed some of these steps down on the "
                                             "ranks "
         "that it ran on."),
        ("unknown_stage", "unknown stage", "A stage was opened that the recorder does not know; its time "
                                           "is in "
         "the residual."),
        ("reconfigure_refused", "reconfiguration refused", "The recorder refused a new configuration that it "
         "cannot record, and kept the old one."),
        ("prefetch_unaligned", "unaligned prefetch", "Data waits may belong to another step than the one "
        "they "
         "were recorded in."),
        ("optimizers_alternate", "alternating optimizers", "Different optimizers step in turn; each "
        "optimizer "
         "step is recorded as a step."),
        ("loop_unclear", "training loop unclear", "The observed calls of the training loop leave open which "
         "stage some of its time belongs to."),
        ("roles_differ", "roles differ", "The group holds more than one role."),
        ("roles_missing", "roles missing", "Model parallelism is declared but ranks carry no role."),
        ("accumulation_collapsed", "micro-steps in one stage", "Several micro-steps share one broad stage."),
        ("accumulation_mixed", "accumulation changed", "The accumulation factor or the sync pattern changed "
         "inside the window."),
        ("single_rank", "single rank", "One rank alone gives no evidence across ranks."),
        ("carry_over", "delays carry over", "A delay from one step appears in the next: step-aligned shares "
         "charge it to a stage that did not cause it."),
        ("steps_not_consecutive", "gaps between steps", "Step numbers have gaps, so the window-aligned "
        "frontier "
         "is not defined."),
        ("reduced_rows", "rows of few ranks", "The frontier covers all ranks, but only a few ranks' rows "
                                              "were "
         "kept: gains, excess, lags and the wait fit are not available."),
        ("share_tie", "equal shares", "The two largest shares are tied."),
        ("leader_switch", "slowest rank changes", "The slowest rank changes too often to name one."),
        ("evidence_disagrees", "attribution rules differ", "Raw durations, spread or gain point to another "
        "stage than "
         "the frontier."),
        ("low_static_gain", "little gain alone", "Clipping the stage alone would gain little, and no wait "
        "model "
         "supports more."),
        # Why no rank is named, or why a check is absent.
        ("rotating", "rank differs by step", "The slowest rank differs from step to step."),
        ("all_ranks", "all ranks equally", "All ranks spend the time equally; no rank stands out."),
        ("one_eligible_step", "one step only", "One rank is slowest in this stage by a clear margin in a "
         "single step; it may not recur."),
        ("no_eligible_steps", "no eligible steps", "In no step is one rank slowest in this stage by a clear "
         "margin."),
        ("no_clear_leader", "no clear rank", "No rank is slowest often enough to be named."),
        ("several_ranks", "several ranks", "Several ranks are late beyond noise; none of "
         "them accounts for most of it."),
        ("within_noise", "within noise", "No effect in the window is far enough beyond noise for a strong "
         "label."),
        ("no_reference", "no healthy window", "The run has no complete healthy window after its first to "
         "compare with."),
        ("reference_differs", "reference has other stages", "The reference has other stages, so it cannot be "
         "compared."),
        ("step_time_not_grown", "step time did not grow", "The mean step is not clearly above the "
        "reference."),
        ("quiet", "healthy", "Exposed imbalance is too small to count."),
        ("below_gamma_g", "gain too small", "No stage reaches the static gain gate."),
        ("no_wait_measured", "no wait found", "The window shows no stage that ranks wait in."),
        ("waits_measured", "waits measured", "Own time and waiting in the suspect stage are known."),
        ("no_waits_recorded", "no waits recorded", "The packet holds no waits within stages."),
        ("pipeline_too_large", "pipeline too large", "The pipeline has too many stages and micro-steps for a "
         "replay."),
        ("replay_differs", "replay differs", "A replay of the window misses its step time by over 5 %."),
        ("not_sampled", "not sampled", "No device events were sampled."),
        ("too_few_events", "too few device events", "Too few device events finished."),
        ("no_device_share", "little device time", "Sampled device time is a small share of the step."),
    )
)  # fmt: skip
"""Every reason by its machine name."""

CULPRITS: Mapping[str, CulpritSpec] = by_name(
    CulpritSpec(name=name, words=words, explanation=explanation)
    for name, words, explanation in (
        ("chronic", "persistent", "The same rank is slowest in at least 80 % of the eligible steps."),
        ("rotating", "different ranks", "The slowest rank keeps changing."),
        ("periodic", "periodic", "The delay returns at a fixed spacing of steps."),
        ("one-off", "transient", "The delay appears in one or two steps only."),
        ("mixed", "mixed", "One rank is slowest often, but in less than 80 % of the eligible steps."),
        ("none", "no single rank", "No step singles out a rank at this stage."),
    )
)
"""Every kind of culprit (``Culprit.kind``) by its machine name."""

UNNAMED_RANKS: Mapping[str, str] = {
    "all_ranks": "on all ranks",
    "rotating": "on changing ranks",
    "several_ranks": "on several ranks",
}
"""Why the suspect names no rank (``aim_rank_reason``), as lists of windows say it."""


def reason_words(name: str) -> str:
    """Return a reason's words; of one that only another version of sfapp knows, its machine name with
    spaces."""
    return REASONS[name].words if name in REASONS else name.replace("_", " ")


def reason_sentence(name: str) -> str:
    """Return a reason's explanation; of an unknown one, its machine name with spaces."""
    return REASONS[name].explanation if name in REASONS else name.replace("_", " ")
