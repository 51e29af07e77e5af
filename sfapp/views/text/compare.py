"""Describe a comparison: change, stage, rank and recovery (accounting.md §14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from sfapp.accounting import LETTERS, Change, Comparison, Side, StageLeader
from sfapp.model import LABELS
from sfapp.model.labels import label_words
from sfapp.views import format
from sfapp.views.text.change_breakdown import main_stage, where_it_lies
from sfapp.views.text.key_numbers import Number

GROWTH = 0.05
"""Relative change of step time below which there is no warning."""

SEVERE = 0.2

CAVEAT_WORDS: Mapping[str, str] = {
    "rank_counts_differ": (
        "The sides do not have the same number of ranks: a longer step may come from more ranks to wait for."
    ),
    "steps_not_consecutive": (
        "A window's step numbers have gaps, so changes are computed per step: a delay that reaches other "
        "ranks in the next step is charged to the stage in which they wait."
    ),
    "reduced_rows": (
        "Only some windows were reduced by their ranks. How far ranks were ahead of each other at the start "
        "of such a window is not known, so stages can differ between the two kinds although the job does not."
    ),
    "thinned_rows": (
        "Rows of some windows were thinned (sfapp compact): under these settings they are compared by the "
        "steps that were kept."
    ),
    "telemetry_limited": "A window's data is incomplete: ranks or time may be missing.",
    "denominator_floor": (
        "A window exposes less time than the floor: times are compared, but there are no shares or routing "
        "sets."
    ),
    "same_windows": "Two of the sides are the same windows.",
}
"""The text of each caveat by its machine name."""


@dataclass(frozen=True, slots=True)
class LabelChange:
    """A label that only one of A and B has."""

    label: str
    gained: bool

    @property
    def text(self) -> str:
        """``+ waits for other ranks``, ``− stages or ranks tied``."""
        return f"{'+' if self.gained else '−'} {label_words(self.label)}"

    @property
    def meaning(self) -> str:
        """Machine name, change and explanation of the label."""
        change = "gained" if self.gained else "lost"
        return f"{self.label}: {change} from A to B. {LABELS[self.label].explanation}"


@dataclass(frozen=True, slots=True)
class ComparisonWords:
    """A comparison in words; plain text throughout.

    Attributes:
        tone: colour role of the card; ``good`` if B is faster, ``quiet`` if it is as fast.
        kicker: the sides.
        headline: ``B is 78 ms per step slower than A, all of it in data``.
        rest: ``C recovers 98 % of it``; empty without a third side.
        explanation: sentences. numbers: each side's step time, and the recovery.
        labels: gained and lost from A to B. caveats: limitations of the comparison.
    """

    tone: Literal["alarm", "warn", "quiet", "good"]
    kicker: str
    headline: str
    rest: str
    explanation: tuple[str, ...]
    numbers: tuple[Number, ...]
    labels: tuple[LabelChange, ...]
    caveats: tuple[str, ...]


def comparison(found: Comparison) -> ComparisonWords:
    """Return the card of a comparison."""
    return ComparisonWords(
        tone="quiet" if _is_unchanged(found) else _tone(found.main),
        kicker=_kicker(found),
        headline=headline(found),
        rest=recovery_sentence(found),
        explanation=tuple(_explanation(found)),
        numbers=_numbers(found),
        labels=_label_changes(found),
        caveats=tuple(CAVEAT_WORDS[name] for name in found.caveats),
    )


def side_names(found: Comparison) -> tuple[str, ...]:
    """Return ``A · window 12`` if all sides are of one run, else ``A · train-7/12`` or ``A · run
    train-7``."""
    one_run = len({side.run_id for side in found.sides}) == 1
    return tuple(
        f"{letter} · {_side_name(side, one_run)}" for letter, side in zip(LETTERS, found.sides, strict=False)
    )


def _side_name(side: Side, one_run: bool) -> str:
    run = format.clip(side.run_id)
    if side.window is None:
        return "all windows" if one_run else f"run {run}"
    return f"window {side.window}" if one_run else f"{run}/{side.window}"


def headline(found: Comparison) -> str:
    """Return ``B is 78 ms per step slower than A, all of it in data``."""
    change = found.main
    if _is_unchanged(found):
        causes, by = _different_causes(found), f"{format.change(float(change.total_ns))} per step"
        if causes:
            within = "" if _is_small(found) else f" within noise ({by})"
            return f"Same total{within}, different cause: {causes}"
        within = "" if _is_small(found) else ", within noise"
        return f"B is as fast as A ({by}{within})"
    total = float(change.total_ns)
    size = format.change(abs(total)).removeprefix("+")
    direction = "slower" if total > 0 else "faster"
    return f"B is {size} per step {direction} than A{where_it_lies(total, floats(change.delta_ns))}"


def _different_causes(found: Comparison) -> str:
    """Return the likely causes of A and B if they differ, or the stages that changed in opposite directions;
    else empty."""
    a, b = found.a.suspect, found.b.suspect
    if a is not None and b is not None and a != b:
        return f"A {_place(a)}, B {_place(b)}"
    deltas = floats(found.main.delta_ns)
    up, down = main_stage(1.0, deltas), main_stage(-1.0, deltas)
    if min(deltas[up], -deltas[down]) < GROWTH * float(found.main.before.step_ns):
        return ""
    return (
        ", ".join(f"{format.short_stage(one)} {format.change(deltas[one])}" for one in (up, down))
        + " per step"
    )


def _place(suspect: tuple[str, int | None]) -> str:
    stage, rank = suspect
    return format.short_stage(stage) + ("" if rank is None else f" on rank {rank}")


def floats(delta_ns: Mapping[str, Fraction]) -> dict[str, float]:
    """Return exact changes as floats."""
    return {stage: float(delta) for stage, delta in delta_ns.items()}


def recovery_sentence(found: Comparison) -> str:
    """Return ``C recovers 98 % of it``; empty without a third side."""
    if found.c is None:
        return ""
    recovery = found.recovery
    if recovery is None:
        return "no slowdown for C to recover"
    if abs(float(found.main.relative or 0)) < GROWTH:
        return f"C recovers {format.percent(float(recovery))}, of a change too small to be significant"
    if _is_unchanged(found):
        return f"C recovers {format.percent(float(recovery))}, of a change within noise"
    if recovery < 0:
        return "C recovers none of it"
    return f"C recovers {format.percent(float(recovery))} of it"


def leader_words(leader: StageLeader | None, *, at_least: bool = False) -> str:
    """Return ``rank 3 (node-0), 40 of 40 steps``; ``none`` if no rank stands out in any step.

    Args:
        at_least: over several windows, the number of steps is a lower bound.
    """
    if leader is None:
        return "none"
    least = "≥ " if at_least and leader.led < leader.eligible else ""
    of = format.counted(leader.eligible, "step")
    return f"{_rank(leader)}, {least}{format.count(leader.led)} of {of}"


def over_limit(change: Change, limit: Fraction) -> bool:
    """Return whether the mean step grew by more than a relative limit, exactly."""
    return change.after.step_ns > change.before.step_ns * (1 + limit)


def limit_sentence(found: Comparison, limit: Fraction) -> str:
    """Return the result of a regression check: the change with its interval, the limit and the stages."""
    change = found.main
    total = float(change.total_ns)
    relative = None if change.relative is None else float(change.relative)
    where = where_it_lies(total, floats(change.delta_ns)) if change.total_ns else ""
    is_over = over_limit(change, limit)
    verb = "over" if is_over else "within"
    doubt = ""
    if is_over and not found.is_beyond_noise:
        doubt = "; not beyond noise, so it does not fail"
    elif is_over and not found.is_large_enough:
        smallest = format.percent(found.gates.min_effect, 1)
        doubt = f"; below the smallest effect of {smallest}, so it does not fail"
    return (
        f"B's step is {format.duration(float(change.after.step_ns))}, {_signed_percent(relative)} vs "
        f"A's {format.duration(float(change.before.step_ns))}{_interval(found)}: {verb} the limit of "
        f"+{float(100 * limit):g} %{where}{doubt}"
    )


def _interval(found: Comparison) -> str:
    """Return `` (95 %: +4.1 % to +6.3 %)``; empty if noise is not known."""
    before = float(found.main.before.step_ns)
    if found.interval_ns is None or not before:
        return ""
    low, high = (_signed_percent(end / before) for end in found.interval_ns)
    return f" (95 %: {low} to {high})"


def _signed_percent(fraction: float | None) -> str:
    """Format with one digit more than usual, so that a value near a limit shows its side."""
    text = format.percent(fraction, 1)
    return f"+{text}" if fraction is not None and fraction > 0 else text


def _is_unchanged(found: Comparison) -> bool:
    """Return whether the change from A to B is below the smallest effect, or its interval contains none."""
    low, high = found.interval_ns or (1.0, -1.0)
    return _is_small(found) or low <= 0.0 <= high


def _is_small(found: Comparison) -> bool:
    return abs(float(found.main.relative or 0)) < found.gates.min_effect


def _tone(change: Change) -> Literal["alarm", "warn", "quiet", "good"]:
    relative = change.relative or 0
    if relative >= SEVERE:
        return "alarm"
    if relative >= GROWTH:
        return "warn"
    return "good" if relative <= -GROWTH else "quiet"


def _kicker(found: Comparison) -> str:
    runs = {side.run_id for side in found.sides}
    of = f"run {format.clip(found.a.run_id)}: " if len(runs) == 1 else ""
    return of + " → ".join(side_names(found))


def _explanation(found: Comparison) -> list[str]:
    sentences = [_step_sentence(found)]
    if not _is_unchanged(found):
        sentences += [_leader_sentence(found), _misread_sentence(found)]
    if found.c is not None:
        left = found.change(found.a, found.c)
        if left is not None:
            sentences.append(f"Compared with A, C is {_of_step(left)}.")
    sentences.append(_spread_sentence(found))
    return [sentence for sentence in sentences if sentence]


def _step_sentence(found: Comparison) -> str:
    return f"B's mean step is {_of_step(found.main)}; the stages below add up to it exactly."


def _of_step(change: Change) -> str:
    """Return ``+78 ms on 89.1 ms (+88 %)``."""
    relative = None if change.relative is None else float(change.relative)
    before = format.duration(float(change.before.step_ns))
    return f"{format.change(float(change.total_ns))} on {before} ({format.percent_change(relative)})"


def _leader_sentence(found: Comparison) -> str:
    """Return the slowest rank of the stage that changed most, before and after."""
    main = main_stage(float(found.main.total_ns), floats(found.main.delta_ns))
    before, after = found.a.leaders[main], found.b.leaders[main]
    stage = format.in_stage(main)
    if after is None:
        return "" if before is None else f"In B no rank is slowest {stage}; in A it was {_rank(before)}."
    now = f"In B {_rank(after)} is slowest {stage} {_how_often(after, found.b)}"
    if before is None:
        return f"{now}; in A no rank is."
    if before.rank == after.rank:
        return f"{now}, in A {_how_often(before, found.a)}."
    return f"{now}; in A it was {_rank(before)}, {_how_often(before, found.a)}."


def _rank(leader: StageLeader) -> str:
    return (
        f"rank {leader.rank} ({format.clip(leader.hostname)})" if leader.hostname else f"rank {leader.rank}"
    )


def _how_often(leader: StageLeader, side: Side) -> str:
    """Return ``in 40 of 40 steps``; over several windows the number of steps is a lower bound."""
    least = "at least " if len(side.windows) > 1 and leader.led < leader.eligible else ""
    return f"in {least}{format.count(leader.led)} of {format.counted(leader.eligible, 'step')}"


def _misread_sentence(found: Comparison) -> str:
    """Return the stage to which per-step shares attribute the change, if it differs."""
    aligned = found.change(found.a, found.b, "step")
    if found.split_on == "step" or aligned is None or not aligned.total_ns:
        return ""
    carried = main_stage(float(found.main.total_ns), floats(found.main.delta_ns))
    per_step = main_stage(float(aligned.total_ns), floats(aligned.delta_ns))
    if carried == per_step:
        return ""
    return (
        f"Per-step shares point to {format.short_stage(per_step)} instead: a delay after the last wait of "
        f"a step "
        "appears in the next step."
    )


def _spread_sentence(found: Comparison) -> str:
    """Return the spread of a run's windows, if it exceeds the change."""
    wide = []
    for letter, side in zip(LETTERS, found.sides, strict=False):
        spread = side.spread(found.split_on) if len(side.windows) > 1 else None
        if spread is not None and spread.most - spread.least > abs(found.main.total_ns):
            wide.append(
                f"{letter}'s windows range from {format.duration(spread.least)} to "
                f"{format.duration(spread.most)} (median {format.duration(spread.median)})"
            )
    return f"{format.listed(wide)}: more than the change." if wide else ""


def _numbers(found: Comparison) -> tuple[Number, ...]:
    numbers = []
    for letter, side in zip(LETTERS, found.sides, strict=False):
        account = found.account(side)
        steps = format.counted(side.steps, "step")
        windows = "" if side.window is not None else f" in {format.counted(len(side.windows), 'window')}"
        kind = "step" if found.split_on == "carry_over" or side.carry_over is None else "step-aligned step"
        numbers.append(
            Number(f"{kind} of {letter}", format.duration(float(account.step_ns)), steps + windows)
        )
    if found.c is not None:
        recovery = found.recovery
        value = format.percent(None if recovery is None else float(recovery))
        numbers.append(Number("recovery", value, "(B − C) / (B − A)"))
    return tuple(numbers)


def _label_changes(found: Comparison) -> tuple[LabelChange, ...]:
    gained = [LabelChange(label, True) for label in found.labels_gained(found.a, found.b)]
    lost = [LabelChange(label, False) for label in found.labels_gained(found.b, found.a)]
    return (*gained, *lost)
